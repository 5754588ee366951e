# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rank that others wait for is named with the part of its step that is longer, or none is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.traced_jobs import RankPlan, TracedJob
from ullage.api.rank_traces import CollectiveColumns, RankTrace
from ullage.api.reasons import Reason
from ullage.engines.tracing.job_trace import ClockAlignment, DelayCause, JobTrace
from ullage.engines.tracing.join import MAX_RANKS, NodeTrace, joined
from ullage.engines.tracing.perfetto import perfetto_view

SLOW = {
    DelayCause.INPUT: RankPlan(data=2200.0),
    DelayCause.COMPUTE: RankPlan(compute=6000.0),
    DelayCause.HOST: RankPlan(host=2500.0),
}


def reasons(job: JobTrace) -> list[Reason]:
    return [finding.reason for finding in job.findings]


@pytest.mark.parametrize("cause", SLOW)
@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("nodes", ["aaaa", "aabb", "abcd"])
def test_the_slow_rank_is_named(cause: DelayCause, device: bool, nodes: str) -> None:
    plans = [replace(RankPlan(), node=node) for node in nodes]
    plans[2] = replace(SLOW[cause], node=nodes[2])
    job = joined(TracedJob(ranks=plans, device=device, clocks={"b": 40_000.0, "d": -9e6}).traces())
    straggler = job.straggler
    assert straggler is not None
    assert (straggler.rank, straggler.cause) == (2, cause)
    assert straggler.collectives == 10
    assert straggler.arrives_last >= 5 if cause is not DelayCause.COMPUTE else 10
    assert 1800 <= straggler.delay_micros <= 3300
    assert straggler.slowdown_percent >= 150
    assert job.message.endswith(
        f"rank 2 arrives last in {straggler.arrives_last} of 10 collectives ({cause.value.lower()})"
    )
    assert reasons(job)[0] is Reason.STRAGGLER
    assert job.findings[0].rank == 2


def test_copies_are_a_cause_on_a_device() -> None:
    plans = [RankPlan(copies=100.0)] * 3 + [RankPlan(copies=3000.0)]
    straggler = joined(TracedJob(ranks=plans, device=True).traces()).straggler
    assert straggler is not None
    assert (straggler.rank, straggler.cause) == (3, DelayCause.COPIES)


@given(st.integers(0, 10_000), st.integers(2, 6), st.booleans())
@settings(max_examples=25)
def test_equal_ranks_have_no_straggler(seed: int, ranks: int, device: bool) -> None:
    job = joined(
        TracedJob(ranks=[RankPlan()] * ranks, seed=seed, luck=150.0, device=device).traces()
    )
    assert job.straggler is None
    assert Reason.STRAGGLER not in reasons(job)


@pytest.mark.parametrize("seed", range(6))
def test_a_rank_that_is_late_by_luck_is_no_straggler(seed: int) -> None:
    """Parts of steps vary: the rank that is last most often works no longer than others."""
    job = joined(TracedJob(ranks=[RankPlan()] * 2, seed=seed, luck=900.0).traces())
    assert max(view.lead_micros for view in job.ranks) > 500
    assert job.straggler is None


def test_without_clocks_the_rank_that_waits_least_is_the_last() -> None:
    plans = [RankPlan(node=node) for node in "ab"] + [RankPlan(node="c", compute=6000.0)]
    job = joined(TracedJob(ranks=plans, steps=3, clocks={"b": 1e7}).traces())
    assert job.alignment is ClockAlignment.UNALIGNED
    assert job.straggler is not None
    assert (job.straggler.rank, job.straggler.arrives_last) == (2, 6)


def test_one_line_says_it_all() -> None:
    job = joined(TracedJob(ranks=[RankPlan(), RankPlan(compute=6000.0)]).traces())
    assert job.message.startswith("2 ranks, steps 1200-1204, compute ")
    assert "exposed communication" in job.message
    assert joined(TracedJob(ranks=[RankPlan()], first_step=0).traces()).message.startswith(
        "1 rank, 5 steps, compute "
    )


def test_waiting_for_one_rank_is_no_finding_of_communication() -> None:
    even = TracedJob(ranks=[RankPlan(compute=500.0, data=20.0)] * 3, transfer=600.0).traces()
    assert reasons(joined(even)) == [Reason.EXPOSED_COMMUNICATION]
    slow = TracedJob(ranks=[RankPlan()] * 3 + [RankPlan(compute=9000.0)]).traces()
    assert reasons(joined(slow)) == [Reason.STRAGGLER]


def test_waiting_for_data_is_a_finding() -> None:
    job = joined(TracedJob(ranks=[RankPlan(data=900.0)] * 2).traces())
    assert reasons(job) == [Reason.WAITS_FOR_DATA]
    assert 18 <= job.findings[0].share_percent <= 26
    assert joined(TracedJob(ranks=[RankPlan(data=900.0)] * 2, steps=2).traces()).findings == ()


def test_ranks_of_other_steps_are_not_compared() -> None:
    plans = [RankPlan(), RankPlan(compute=6000.0)]
    first, second = TracedJob(ranks=plans).traces()
    late = replace(second.trace, first_step=1300)
    job = joined([first, replace(second, trace=late)])
    assert (job.collectives, job.straggler) == (0, None)


def test_a_rank_with_more_collectives_is_compared_where_the_numbers_agree() -> None:
    first, second = TracedJob(ranks=[RankPlan(), RankPlan(compute=6000.0)]).traces()
    columns = second.trace.collectives
    of = tuple(3 if step == 1 else 2 for step in columns.step)
    odd = replace(second.trace, collectives=replace(columns, of=of))
    assert joined([first, replace(second, trace=odd)]).collectives == 8


def test_a_forged_rank_changes_nothing() -> None:
    traces = TracedJob(ranks=[RankPlan(), RankPlan(compute=6000.0)]).traces()
    forged = [replace(one, trace=replace(one.trace, rank=999_999_999)) for one in traces]
    assert joined(forged) == joined(traces)


def test_what_cannot_be_joined_is_refused() -> None:
    one = TracedJob(ranks=[RankPlan()]).traces()[0]
    with pytest.raises(ValueError, match="rank 0 is there twice"):
        joined([one, one])
    with pytest.raises(ValueError, match="0 traces"):
        joined([])


def test_wild_columns_join_to_figures() -> None:
    """Whatever a node reports within the schema, the join ends and its result can be stored."""
    big = 2**53
    columns = CollectiveColumns(
        kinds=TracedJob(ranks=[RankPlan()]).traces()[0].trace.collectives.kinds,
        kind=(0, 0),
        step=(big, 0),
        ordinal=(0, big),
        of=(0, 0),
        starts_micros=(big, 0),
        spans_micros=(0, big),
    )
    wild = RankTrace(start_micros=big, collectives=columns)
    ranks = [NodeTrace(rank=rank, node=f"n{rank % 2}", trace=wild) for rank in range(3)]
    job = joined(ranks)
    assert JobTrace.from_wire(json.loads(json.dumps(job.to_wire()))) == job


def test_of_many_ranks_those_that_others_wait_for_are_listed() -> None:
    plans = [RankPlan()] * (MAX_RANKS + 5) + [RankPlan(compute=6000.0)]
    job = joined(TracedJob(ranks=plans, steps=3).traces())
    assert (len(job.ranks), job.ranks_left_out) == (MAX_RANKS, 6)
    assert job.ranks[-1].rank == MAX_RANKS + 5
    assert job.straggler is not None


def test_perfetto_shows_ranks_on_one_clock() -> None:
    plans = [RankPlan(node="a"), RankPlan(node="b", compute=6000.0)]
    traces = TracedJob(ranks=plans, clocks={"b": 5e6}).traces()
    body = json.loads(json.dumps(perfetto_view(joined(traces), traces)))
    events = body["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0 on a", "rank 1 on b"]
    starts = [event["ts"] for event in events if event.get("cat") == "step"]
    assert len(starts) == 10
    assert 0 <= min(starts) <= max(starts) < 60_000
    arrows = [event for event in events if event.get("cat") == "waits"]
    assert len(arrows) == 20
    assert {event["pid"] for event in arrows if event["ph"] == "s"} == {1}
    assert {event["pid"] for event in arrows if event["ph"] == "f"} == {0}
