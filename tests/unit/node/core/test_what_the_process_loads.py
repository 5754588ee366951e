# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

SHARED = (
    "build_metrics",
    "connections",
    "doubling",
    "environment",
    "faults",
    "listener",
    "logs",
    "metric_families",
    "secure_metrics",
    "supervised",
    "threads",
    "times",
    "token_access",
)
HEAVY = ("pydantic", "kubernetes", "scipy", "pynvml", "numpy", "yaml")
PROGRAM = "import sys, ullage_node.serve; print(' '.join(sorted(sys.modules)))"


def test_the_agent_loads_no_client_library_and_no_models() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint(HEAVY)
    ours = {name for name in done.stdout.split() if name.startswith("ullage.")}
    names = (
        "captures",
        "checks",
        "codec",
        "dataio",
        "devices",
        "environment",
        "faults",
        "interruptions",
        "labels",
        "lanes",
        "loads",
        "nodespec",
        "numbers",
        "observations",
        "rank_traces",
        "readers",
        "reasons",
        "rebalancing",
        "slices",
        "steps",
        "times",
        "traces",
        "usage",
        "wire_fields",
        "words",
        "xids",
    )
    engine = {
        name
        for name in ours
        if name.startswith(
            ("ullage.engines.admission", "ullage.engines.dataio", "ullage.engines.lanes")
        )
    }
    assert ours - engine <= {
        "ullage.api",
        "ullage.engines",
        "ullage.process",
        *(f"ullage.process.{name}" for name in SHARED),
        *(f"ullage.api.{name}" for name in names),
    }
