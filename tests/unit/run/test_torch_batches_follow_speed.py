# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock DDP program trains the same weights on the same samples, however batches are divided.

All programs run in two processes, one for each policy, whose forks are the ranks. ``TORCH_PYTHON``
names an interpreter with torch where this one has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from fakes.straggler_runs import RANKS, Run, has, runs_of
from ullage.api.rebalancing import EvenReason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not has("torch"), reason="torch is not installed: the hook is not tried"),
]
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
    "sharded": EvenReason.MODEL_SHARDED,
}
LINES: Final = (*DIVIDED.values(), *(f"{SLOW} --steps=40 --kind={kind}" for kind in KEPT))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Run]]:
    """All runs, by policy."""
    return runs_of(tmp_path_factory.mktemp("runs"), LINES)


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
