# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever prices do: a job moves seldom, for a gain, and comes to rest when they do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job
from fakes.choosing import RATES, STEPS, Market, known, nodes
from ullage.api.schedulingpolicy import ReconsiderTerms
from ullage.api.trainingjob import CostAim

HOLD_S = ReconsiderTerms().hold_s
_PRICES = st.tuples(st.floats(0.3, 6.0), st.floats(0.1, 2.0), st.sampled_from((30, 300, 900)))


def _worth(kind: str, prices: tuple[float, float]) -> float:
    return dict(zip(("a100", "t4"), prices, strict=True))[kind] / RATES[kind]


@pytest.mark.slow
@given(moves=st.lists(_PRICES, min_size=1, max_size=6), jobs=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_no_job_moves_often_and_all_come_to_rest(
    moves: list[tuple[float, float, int]], jobs: int
) -> None:
    market = Market([*nodes(a100=1, t4=3), known(**RATES)])
    market.price(a100=4.0, t4=0.6)
    for number in range(jobs):
        one = a_job(f"job{number}").with_(workload_class="resnet", work_steps=STEPS)
        market.add(one.with_(cost=CostAim(objective="CostPerWork")).checkpointed())
    market.settle()
    for a100, t4, lasts in moves:
        market.price(a100=a100, t4=t4)
        before, gone = {f"job{at}": market.types(f"job{at}") for at in range(jobs)}, market.moves[:]
        market.passes(lasts, every=60.0)
        for name, _ in market.moves[len(gone) :]:
            (was,), (now,) = before[name], market.types(name)
            assert _worth(now, (a100, t4)) < 0.8 * _worth(was, (a100, t4)), "for a gain alone"
    for name in {name for name, _ in market.moves}:
        times = [at for one, at in market.moves if one == name]
        assert all(later - sooner >= HOLD_S for sooner, later in pairwise(times))
    market.passes(4 * HOLD_S, every=120.0)
    rested = len(market.moves)
    market.passes(3 * HOLD_S, every=120.0)
    assert len(market.moves) == rested
