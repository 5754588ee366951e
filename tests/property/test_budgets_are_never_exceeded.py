# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever prices do and pools come and go, no job is ever let run above its budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job
from fakes.toy_pools import PoolPlay, a_pool, aim

CI = settings(max_examples=12, deadline=None, derandomize=True)
POOLS = ("a", "b", "od")
prices = st.integers(2, 60).map(lambda tenths: tenths / 10)
events = st.tuples(
    st.sampled_from(["price", "give", "take", "wait"]), st.sampled_from(POOLS), prices
)


@pytest.mark.slow
@CI
@given(st.lists(events, min_size=3, max_size=10), st.sampled_from(["CostPerWork", "Makespan"]))
def test_no_job_is_let_run_above_its_budget(
    happened: list[tuple[str, str, float]], objective: str
) -> None:
    toy = PoolPlay({name: a_pool(name, 2.0, spot=name != "od") for name in POOLS})
    for name in POOLS:
        toy.give(name)
    job = a_job().exclusive(1).gang(2).checkpointed().with_(work_steps=90_000)
    toy.add(job.with_(cost=aim(objective, budget_per_hour=2.5)))
    for what, pool, price in happened:
        match what:
            case "price":
                toy.price(pool, price)
            case "give":
                toy.give(pool)
            case "take":
                toy.take(pool)
        toy.run(600, step_s=300)
        assert toy.dearest["train"] <= 2.5
    before = toy.counts["EvictPod"], toy.chosen()
    toy.run(1200, step_s=300)
    assert (toy.counts["EvictPod"], toy.chosen()) == before, "nothing changed, so no one moves"
