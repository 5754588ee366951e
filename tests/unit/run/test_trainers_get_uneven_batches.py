# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of accelerate, transformers and Lightning train the same, however batches are divided.

A trainer that the interpreter does not have is not tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from fakes.straggler_runs import Run, has, runs_of
from ullage.api.rebalancing import EvenReason

PACKAGES: Final = {"accelerate": "accelerate", "trainer": "transformers", "lightning": "lightning"}
KINDS: Final = [kind for kind, package in PACKAGES.items() if has("torch") and has(package)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KINDS, reason="no trainer is installed: the hook is not tried in one"),
]
PROGRAM: Final = "--slow=3 --steps=60 --length=590 --sample-s=0.006"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Run]]:
    """All runs, by policy."""
    lines = [f"{PROGRAM} --kind={kind}" for kind in KINDS]
    return runs_of(tmp_path_factory.mktemp("runs"), lines)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_samples_are_those_of_even_batches(
    runs: Mapping[str, Sequence[Run]], kind: str
) -> None:
    even, uneven = (runs[policy][KINDS.index(kind)] for policy in ("Observe", "Rebalance"))
    assert min(uneven.sizes[1]) < 8 < max(uneven.sizes[0]), uneven.output
    assert uneven.epochs == even.epochs
    pairs = zip(even.weights, uneven.weights, strict=True)
    assert max(abs(mine - other) for mine, other in pairs) <= 1e-6
    slow = uneven.records[1]
    assert EvenReason.of_code(slow.even_reason) is EvenReason.NONE
    assert 0 < slow.batch < slow.even_batch
