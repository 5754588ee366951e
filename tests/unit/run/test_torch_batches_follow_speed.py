# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP program trains the same weights on the same samples, however batches are divided.

All programs run in two processes, one for each policy, whose forks are the ranks. ``TORCH_PYTHON``
names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import ullage
import ullage_run
from ullage.api.rebalancing import EvenReason
from ullage.api.steps import RankRecord

PYTHON: Final = os.environ.get("TORCH_PYTHON", sys.executable)
HAS_TORCH: Final = (
    subprocess.run(
        [PYTHON, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"], check=False
    ).returncode
    == 0
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: the hook is not tried"),
]
DRIVER: Final = Path(__file__).parents[3] / "bench" / "straggler_ranks.py"
RANKS: Final = 3
PATIENCE_S: Final = 3500.0
SLOW: Final = "--slow=3 --steps=60 --length=590 --sample-s=0.006"
"""Some epochs, in which rank 1 sleeps long enough to be the slowest on any machine."""
DIVIDED: Final = {
    "SGD": f"{SLOW} --optimizer=SGD",
    "dropout, workers, no last batch": (
        f"{SLOW} --optimizer=AdamW --kind=dropout --workers=2 --drop-last"
    ),
    "two optimizers": f"{SLOW} --optimizer=AdamW --kind=two --drop-last",
    "a penalty, accumulated": f"{SLOW} --kind=penalty --accumulate=2",
    "computed again": f"{SLOW} --kind=recomputed",
}
KEPT: Final = {
    "batchnorm": EvenReason.BATCH_NORM,
    "sum": EvenReason.LOSS_NOT_A_MEAN,
    "contrastive": EvenReason.IN_BATCH_LOSS,
    "single": EvenReason.NOT_DATA_PARALLEL,
    "gather": EvenReason.GATHERS_SAMPLES,
}
LINES: Final = (*DIVIDED.values(), *(f"{SLOW} --steps=40 --kind={kind}" for kind in KEPT))


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


def start(folder: Path, policy: str) -> subprocess.Popen[bytes]:
    """Begin all runs under a policy."""
    (folder / "trace").mkdir(parents=True)
    (folder / "record").write_bytes(bytes(64))
    runtime, contract = Path(ullage_run.__file__).parent, Path(ullage.__file__).parent.parent
    path = [str(runtime / "autostep"), str(runtime.parent), str(contract)]
    return subprocess.Popen(
        [PYTHON, str(DRIVER), str(RANKS), str(folder), *LINES],
        env={
            **os.environ,
            "PYTHONPATH": ":".join(path),
            "ULLAGE_STEPS": str(folder / "record"),
            "ULLAGE_STRAGGLERS": policy,
            "OMP_NUM_THREADS": "1",
        },
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Run]]:
    """All runs, by policy."""
    folder = tmp_path_factory.mktemp("runs")
    drivers = {policy: start(folder / policy, policy) for policy in ("Observe", "Rebalance")}
    try:
        for driver in drivers.values():
            assert driver.wait(PATIENCE_S) == 0
    finally:
        for driver in drivers.values():
            driver.kill()
            driver.wait()
    return {
        policy: [Run.read(folder / policy / str(number)) for number in range(len(LINES))]
        for policy in drivers
    }


@pytest.mark.parametrize("name", DIVIDED)
def test_weights_and_samples_are_those_of_even_batches(
    runs: Mapping[str, Sequence[Run]], name: str
) -> None:
    number = list(DIVIDED).index(name)
    even, uneven = runs["Observe"][number], runs["Rebalance"][number]
    assert {size for sizes in even.sizes for size in sizes} <= {8, -(-590 // RANKS) % 8}
    assert min(uneven.sizes[1]) < 8 < max(uneven.sizes[0]), uneven.output
    assert len(even.epochs) >= 2
    assert uneven.epochs == even.epochs
    pairs = zip(even.weights, uneven.weights, strict=True)
    assert max(abs(mine - other) for mine, other in pairs) <= 1e-6
    slow = uneven.records[1]
    assert (slow.even_batch, EvenReason.of_code(slow.even_reason)) == (8, EvenReason.NONE)
    assert 0 < slow.batch < 8
    assert slow.even_step_ns > 0


@pytest.mark.parametrize("kind", KEPT)
def test_other_programs_keep_their_batches(runs: Mapping[str, Sequence[Run]], kind: str) -> None:
    number = len(DIVIDED) + list(KEPT).index(kind)
    even, kept = runs["Observe"][number], runs["Rebalance"][number]
    assert kept.sizes == even.sizes
    assert kept.weights == even.weights
    assert EvenReason.of_code(kept.records[0].even_reason) is KEPT[kind]
    assert KEPT[kind].value in kept.output
