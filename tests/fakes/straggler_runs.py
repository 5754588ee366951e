# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs of the programs of ``bench/straggler_ranks.py``: what they leave behind.

``TORCH_PYTHON`` names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import ullage
import ullage_run
from ullage.api.steps import RankRecord

PYTHON: Final = os.environ.get("TORCH_PYTHON", sys.executable)
DRIVER: Final = Path(__file__).parents[2] / "bench" / "straggler_ranks.py"
RANKS: Final = 3
PATIENCE_S: Final = 3500.0


@cache
def has(package: str) -> bool:
    """True if the interpreter has a package."""
    code = f"import importlib.util as u; exit(not u.find_spec({package!r}))"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run of the program left behind."""

    epochs: Sequence[Sequence[int]]
    """Samples of all ranks, by epoch that was completed, in order of their numbers."""
    sizes: Sequence[Sequence[int]]
    """Batches of each rank."""
    weights: Sequence[float]
    records: Sequence[RankRecord]
    output: str

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Read what it left in its folder."""
        reports = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]
        raws = [(folder / f"record-{rank}").read_bytes() for rank in range(RANKS)]
        parts = zip(*(report["epochs"] for report in reports), strict=True)
        return cls(
            epochs=[sorted(itertools.chain(*epoch)) for epoch in parts],
            sizes=[report["sizes"] for report in reports],
            weights=reports[0]["weights"],
            records=[record for raw in raws if (record := RankRecord.unpack(raw)) is not None],
            output="".join((folder / f"output-{rank}").read_text() for rank in range(RANKS)),
        )


def start(folder: Path, policy: str, lines: Sequence[str]) -> subprocess.Popen[bytes]:
    """Begin all runs under a policy, one for each line of arguments."""
    (folder / "trace").mkdir(parents=True)
    (folder / "record").write_bytes(bytes(64))
    runtime, contract = Path(ullage_run.__file__).parent, Path(ullage.__file__).parent.parent
    path = [str(runtime / "autostep"), str(runtime.parent), str(contract)]
    return subprocess.Popen(
        [PYTHON, str(DRIVER), str(RANKS), str(folder), *lines],
        env={
            **os.environ,
            "PYTHONPATH": ":".join(path),
            "ULLAGE_STEPS": str(folder / "record"),
            "ULLAGE_STRAGGLERS": policy,
            "OMP_NUM_THREADS": "1",
        },
    )


def runs_of(folder: Path, lines: Sequence[str]) -> Mapping[str, Sequence[Run]]:
    """All runs, by policy; those of both policies run at the same time."""
    drivers = {policy: start(folder / policy, policy, lines) for policy in ("Observe", "Rebalance")}
    try:
        for driver in drivers.values():
            assert driver.wait(PATIENCE_S) == 0
    finally:
        for driver in drivers.values():
            driver.kill()
            driver.wait()
    return {
        policy: [Run.read(folder / policy / str(number)) for number in range(len(lines))]
        for policy in drivers
    }
