# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A control plane with KWOK nodes for benchmarks, beside whatever cluster runs already."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCALCLUSTER: Final = str(ROOT / "localcluster" / "run")
HOME: Final = ROOT / "build" / "kwok"
SLOTS_PER_NODE: Final = 64


@contextmanager
def kwok_cluster(nodes: int, *, scheduler_qps: int = 2000) -> Iterator[Path]:
    """Start it, install our CRDs, yield the kubeconfig's path, take it down."""
    environment = {**os.environ, "LOCALCLUSTER_HOME": str(HOME)}

    def localcluster(*words: str, quiet: bool = False) -> str:
        done = subprocess.run(
            [LOCALCLUSTER, *words], env=environment, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None,
        )  # fmt: skip
        return done.stdout

    localcluster(
        "up", "--nodes", "0", "--kwok", str(nodes),
        "--kwok-resource", f"ullage.dev/slot={SLOTS_PER_NODE}",
        "--label", "ullage.dev/node=true", "--scheduler-qps", str(scheduler_qps),
    )  # fmt: skip
    try:
        status = json.loads(localcluster("status", "--json", quiet=True))
        kubeconfig = Path(status["kubeconfig"])
        subprocess.run(
            [status["kubectl"], "--kubeconfig", str(kubeconfig), "apply", "--server-side",
             "--filename", str(ROOT / "crds")],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        yield kubeconfig
    finally:
        localcluster("down", quiet=True)
