# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.batching_play import Arrivals, Outcome, WorkerPool, play
from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchChooser, BatchPolicy, BatchRules
from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.waiting import BatchRequest

COSTS = BatchCosts(fixed_s=0.1, factors={1: 1.0, 2: 1.0})


def a_chooser(policy: BatchPolicy = BatchPolicy.ORLOJ) -> BatchChooser:
    return BatchChooser(
        rules=BatchRules(policy=policy, sizes=(1, 2)),
        costs=COSTS,
        histograms={"default": TimeHistogram.of([1.0, 2.0])},
    )


def arrivals(at: list[float], single: list[float], slo_s: float) -> Arrivals:
    come = np.array(at)
    return Arrivals(arrival_s=come, single_s=np.array(single), deadline_s=come + slo_s)


def test_a_batch_runs_as_long_as_its_longest_member() -> None:
    played = play(arrivals([0, 0.5, 0.5], [1, 1, 2], 10), a_chooser(), COSTS)
    assert played.end_s.tolist() == [1.1, 3.2, 3.2]
    assert played.batch_sizes == (1, 2)
    assert played.finish_rate == 1


def test_a_late_request_is_not_in_time_and_a_hopeless_one_never_runs() -> None:
    played = play(arrivals([0, 0.1], [2, 2], 1.5), a_chooser(), COSTS)
    assert played.outcomes == (Outcome.LATE, Outcome.DROPPED)
    assert played.finish_rate == 0


def test_a_static_batch_that_is_not_full_is_padded() -> None:
    costs = BatchCosts(fixed_s=0.1, factors={1: 1.0, 4: 2.0})
    rules = BatchRules(policy=BatchPolicy.FIFO, sizes=(4,))
    played = play(
        arrivals([0, 0.5, 0.5], [1, 1, 1], 10), BatchChooser(rules=rules, costs=costs), costs
    )
    assert played.batch_sizes == (1, 2)
    assert played.end_s.tolist() == [1.1, 3.2, 3.2]


def test_two_workers_run_two_batches() -> None:
    played = play(arrivals([0, 0.01], [1, 1], 10), a_chooser(), COSTS, workers=2)
    assert played.batch_sizes == (1, 1)


def test_a_full_queue_refuses() -> None:
    pool = WorkerPool(chooser=a_chooser(), workers=(), capacity=1)
    requests = [BatchRequest(number=at, arrival_s=0, deadline_s=9) for at in range(2)]
    assert [pool.offer(request) for request in requests] == [True, False]
    assert pool.dispatch(0.0).batches == ()
    pool.release(0)
    assert [batch.requests for batch in pool.dispatch(0.0).batches] == [(requests[0],)]


@given(
    gaps=st.lists(st.floats(0, 1), min_size=1, max_size=40),
    policy=st.sampled_from(list(BatchPolicy)),
    slo_s=st.floats(0.1, 6),
    workers=st.integers(1, 3),
)
def test_each_request_ends_or_is_dropped(
    gaps: list[float], policy: BatchPolicy, slo_s: float, workers: int
) -> None:
    single = np.resize([1.0, 2.0], len(gaps)).tolist()
    given_ones = arrivals(np.cumsum(gaps).tolist(), single, slo_s)
    played = play(given_ones, a_chooser(policy), COSTS, workers=workers)
    for at, outcome in enumerate(played.outcomes):
        ended = not np.isnan(played.end_s[at])
        assert ended == (outcome is not Outcome.DROPPED)
        if ended:
            assert (played.end_s[at] <= given_ones.deadline_s[at]) == (outcome is Outcome.MET)
    assert sum(played.batch_sizes) == sum(o is not Outcome.DROPPED for o in played.outcomes)
