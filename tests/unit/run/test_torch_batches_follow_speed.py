# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP program trains the same weights on the same samples, however batches are divided.

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
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: the hook is not tried"),
]
PROGRAM: Final = Path(__file__).parents[3] / "bench" / "straggler_program.py"
RANKS: Final = 3
LENGTH: Final = ("--steps=70", "--length=590", "--sample-s=0.008")
"""About three epochs; a slow rank sleeps long enough to be the slowest on any machine."""
PATIENCE_S: Final = 600.0


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


def run(folder: Path, policy: str, *arguments: str) -> Run:
    """Run the program to its end, rank 1 three times as slow as the others."""
    folder.mkdir()
    (folder / "record").write_bytes(bytes(64))
    (folder / "trace").mkdir()
    runtime, contract = Path(ullage_run.__file__).parent, Path(ullage.__file__).parent.parent
    path = [str(runtime / "autostep"), str(runtime.parent), str(contract)]
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(path),
        "ULLAGE_STEPS": str(folder / "record"),
        "ULLAGE_STRAGGLERS": policy,
        "OMP_NUM_THREADS": "1",
    }
    launcher = [PYTHON, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
    done = subprocess.run(
        [
            *launcher,
            "--standalone",
            str(PROGRAM),
            "--out",
            str(folder),
            "--slow=3",
            *LENGTH,
            *arguments,
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    reports: list[Mapping[str, list[list[int]]]] = [
        json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)
    ]
    raws = [(folder / "trace" / f"record-{rank}").read_bytes() for rank in range(RANKS)]
    parts = zip(*(report["epochs"] for report in reports), strict=True)
    return Run(
        epochs=[sorted(itertools.chain(*epoch)) for epoch in parts],
        sizes=[report["sizes"] for report in reports],  # type: ignore[misc]
        weights=reports[0]["weights"],  # type: ignore[arg-type]
        records=[record for raw in raws if (record := RankRecord.unpack(raw)) is not None],
        output=done.stdout,
    )


def difference(left: Run, right: Run) -> float:
    """Largest difference between two weights of the same place."""
    return max(abs(mine - other) for mine, other in zip(left.weights, right.weights, strict=True))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--optimizer=SGD",),
        ("--optimizer=AdamW", "--kind=dropout", "--workers=2", "--drop-last"),
        ("--optimizer=AdamW", "--kind=two", "--drop-last"),
        ("--optimizer=SGD", "--kind=syncbatchnorm", "--workers=1"),
        ("--optimizer=SGD", "--kind=penalty", "--accumulate=2"),
    ],
    ids=" ".join,
)
def test_weights_and_samples_are_those_of_even_batches(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    even = run(tmp_path / "even", "Observe", *arguments)
    uneven = run(tmp_path / "uneven", "Rebalance", *arguments)
    assert {size for sizes in even.sizes for size in sizes} <= {8, -(-590 // RANKS) % 8}
    assert min(uneven.sizes[1]) < 8 < max(uneven.sizes[0]), uneven.output
    assert uneven.epochs == even.epochs
    assert difference(uneven, even) <= 1e-6
    slow = uneven.records[1]
    assert (slow.even_batch, EvenReason.of_code(slow.even_reason)) == (8, EvenReason.NONE)
    assert 0 < slow.batch < 8
    assert slow.even_step_ns > 0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("batchnorm", EvenReason.BATCH_NORM),
        ("sum", EvenReason.LOSS_NOT_A_MEAN),
        ("contrastive", EvenReason.IN_BATCH_LOSS),
        ("single", EvenReason.NOT_DATA_PARALLEL),
        ("gather", EvenReason.GATHERS_SAMPLES),
    ],
)
def test_other_programs_keep_their_batches(tmp_path: Path, kind: str, reason: EvenReason) -> None:
    arguments = (f"--kind={kind}", "--steps=40")
    even = run(tmp_path / "even", "Observe", *arguments)
    refused = run(tmp_path / "refused", "Rebalance", *arguments)
    assert refused.sizes == even.sizes
    assert refused.weights == even.weights
    assert EvenReason.of_code(refused.records[0].even_reason) is reason
    assert reason.value in refused.output
