# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks and traces divide unused time: each rule has its least evidence, and is silent without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.reasons import Reason
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule as Rule
from ullage.engines.efficiency.rules import Finding, JudgedWorkload, findings_of, gain_permille
from ullage.engines.efficiency.step_rules import (
    RANK_STEPS_LEAST,
    TRACED_STEPS_LEAST,
    RankSteps,
    StepClaim,
    StepPart,
    StepsBehind,
    explained_by,
    place_of,
    rank_claims,
    trace_claims,
    without_repeats,
)

WINDOW = 900_000
HALF_USED = RecentUsage(
    allocated_ms=WINDOW,
    used_ms=WINDOW * 55 // 100,
    needed_percent=98,
    duty_percent=100,
    kernel_idle_percent=5,
    memory_mib=70_000,
)


def rank(number: int = 0, **changes: object) -> RankSteps:
    steady = RankSteps(rank=number, steps=500, step_micros=100_000, data_wait_micros=1_000)
    return replace(steady, **changes)  # type: ignore[arg-type]


TRACED = [reason for reason in Reason if place_of(reason) is not None]
BEHIND = StepsBehind(
    rank=2, ratio=1.6, lost_micros=30_000.0, step_micros=100_000, cause="mostly to compute"
)


def rules(claims: tuple[StepClaim, ...]) -> set[Rule]:
    return {claim.rule for claim in claims}


def found(
    claims: tuple[StepClaim, ...], recent: RecentUsage = HALF_USED, **changes: object
) -> dict[Rule, Finding]:
    subject = JudgedWorkload(
        percent=100,
        memory_mib=80_000,
        is_job=True,
        fixed_share=False,
        whole_device=True,
        members=(ObservedUsage(recent=recent),),
        claims=claims,
    )
    return {
        finding.rule: finding
        for finding in findings_of(replace(subject, **changes))  # type: ignore[arg-type]
    }


def traced(*findings: tuple[Reason, int], steps: int = 5) -> tuple[StepClaim, ...]:
    return trace_claims(steps, "trace a", [(*each, "figures 7 of 9") for each in findings])


def test_data_is_waited_for_by_every_rank_or_by_none() -> None:
    slow = rank(data_wait_micros=15_000)
    assert rules(rank_claims([slow], None)) == {Rule.WAITS_FOR_DATA}
    assert rules(rank_claims([slow, replace(slow, rank=1)], None)) == {Rule.WAITS_FOR_DATA}
    assert rank_claims([slow, rank(1)], None) == ()
    assert rank_claims([rank(data_wait_micros=9_900)], None) == ()


def test_a_rank_at_its_cpu_limit_is_named() -> None:
    (claim,) = rank_claims([rank(), rank(3, throttled_percent=35)], None)
    assert claim.rule is Rule.CPU_THROTTLED
    assert "rank 3" in claim.evidence
    assert "35 %" in claim.evidence
    assert rank_claims([rank(throttled_percent=19)], None) == ()


def test_a_slow_rank_costs_what_the_others_wait() -> None:
    (claim,) = rank_claims([rank(), rank(1), rank(2)], BEHIND)
    assert (claim.rule, claim.share) == (Rule.SLOW_RANK, 0.3)
    assert rank_claims([rank()], replace(BEHIND, lost_micros=9_000.0)) == ()


@pytest.mark.parametrize("few", [{"steps": RANK_STEPS_LEAST - 1}, {"step_micros": 0}])
def test_a_rank_with_few_steps_silences_all_ranks(few: dict[str, int]) -> None:
    stopped = rank(throttled_percent=90, data_wait_micros=90_000)
    assert rank_claims([stopped, replace(stopped, rank=1, **few)], BEHIND) == ()
    assert rank_claims([], BEHIND) == ()


@pytest.mark.parametrize("reason", TRACED)
def test_each_finding_of_a_trace_is_one_of_the_workload(reason: Reason) -> None:
    place = place_of(reason)
    assert place is not None
    rule, _ = place
    finding = found(traced((reason, 25)))[rule]
    assert finding.gain_permille == 250
    assert 0 < finding.confidence < 0.9
    assert finding.evidence == "figures 7 of 9, in trace a"
    assert traced((reason, 25), steps=TRACED_STEPS_LEAST - 1) == ()


def test_what_says_nothing_about_unused_time_is_left_out() -> None:
    assert traced((Reason.CLOCKS_UNALIGNED, 50)) == ()


def test_work_that_uses_its_device_is_never_called_wasteful_by_its_own_reports() -> None:
    busy = replace(HALF_USED, used_ms=WINDOW * 99 // 100)
    claims = traced(*((reason, 90) for reason in TRACED))
    assert found(claims, busy) == {}
    assert found(claims, replace(HALF_USED, duty_percent=0)) == {}, "no steps in the windows"
    assert found(claims, is_job=False) == {}


def test_a_gain_below_the_least_is_no_finding() -> None:
    assert Rule.WAITS_FOR_DATA not in found(traced((Reason.WAITS_FOR_DATA, 1)))
    assert Rule.WAITS_FOR_DATA in found(traced((Reason.WAITS_FOR_DATA, 2)))


def test_allocations_take_no_known_time_and_are_told_where_some_is_unused() -> None:
    finding = found(traced((Reason.ALLOCATES_IN_STEPS, 0)))[Rule.ALLOCATES_IN_STEPS]
    assert finding.gain_permille == 0


def test_parts_of_a_step_add_up_and_claims_of_one_part_do_not() -> None:
    data, idle = (Reason.WAITS_FOR_DATA, 15), (Reason.HOST_BOUND, 20)
    apart = found(traced(data, idle))
    assert gain_permille(list(apart.values())) == 350
    alike = found(traced(idle, (Reason.SHORT_KERNELS, 20), (Reason.SYNCHRONISES_OFTEN, 10)))
    assert gain_permille(list(alike.values())) == 200


def test_what_was_used_cuts_a_claim() -> None:
    waits = found(traced((Reason.WAITS_FOR_DATA, 30), (Reason.EXPOSED_COMMUNICATION, 40)))
    assert waits[Rule.WAITS_FOR_DATA].gain_permille == 300
    assert waits[Rule.EXPOSED_COMMUNICATION].gain_permille == 150  # 45 % are unused


def test_shares_of_a_step_count_for_the_time_with_steps() -> None:
    claims = traced((Reason.HOST_BOUND, 40))
    assert found(claims, replace(HALF_USED, duty_percent=80))[Rule.HOST_BOUND].gain_permille == 250
    assert found(claims, replace(HALF_USED, duty_percent=50)).get(Rule.HOST_BOUND) is None


def test_counters_of_the_device_come_before_the_trace() -> None:
    host = replace(HALF_USED, used_ms=WINDOW * 4 // 10, kernel_idle_percent=45)
    finding = found(traced((Reason.HOST_BOUND, 10)), host)[Rule.HOST_BOUND]
    assert finding.gain_permille == 450
    ranks = rank_claims([rank(data_wait_micros=30_000)], None)
    (first,) = without_repeats(ranks, traced((Reason.WAITS_FOR_DATA, 12)))
    assert first.share == 0.3


def test_collectives_may_count_as_used_and_lower_the_confidence() -> None:
    both = found(traced((Reason.WAITS_FOR_DATA, 15), (Reason.EXPOSED_COMMUNICATION, 25)))
    of_data = both[Rule.WAITS_FOR_DATA].confidence
    assert both[Rule.EXPOSED_COMMUNICATION].confidence < of_data


CLAIMS = st.lists(
    st.builds(
        lambda rule, part, share: StepClaim(rule=rule, part=part, share=share, evidence="7"),
        st.sampled_from(Rule),
        st.sampled_from(StepPart),
        st.floats(0, 1),
    ),
    unique_by=lambda claim: claim.rule,
    max_size=8,
).map(tuple)


@given(CLAIMS, st.integers(1, 400), st.integers(0, 100), st.integers(0, 100))
def test_claims_explain_unused_time_alone_and_each_moment_once(
    claims: tuple[StepClaim, ...], allocated: int, used_percent: int, duty: int
) -> None:
    used = allocated * used_percent // 100
    kept = explained_by(claims, allocated_ms=allocated, used_ms=used, duty_percent=duty)
    moments = [
        {moment for begin, end in spans for moment in range(begin, end)} for _, spans in kept
    ]
    for (claim, _), held in zip(kept, moments, strict=True):
        assert held <= set(range(used, allocated))
        assert len(held) <= claim.share * allocated * duty / 100 + 1
    parts = {claim.part for claim, _ in kept}
    for part in parts:
        own = [held for (claim, _), held in zip(kept, moments, strict=True) if claim.part is part]
        widest = max(own, key=len)
        assert all(held <= widest for held in own), "claims of one part lie over each other"


@given(
    st.lists(
        st.builds(
            lambda number, step, data, stopped: RankSteps(
                rank=number,
                steps=1000,
                step_micros=step,
                data_wait_micros=int(step * data),
                throttled_percent=stopped,
            ),
            st.integers(0, 63),
            st.integers(1_000, 2_000_000),
            st.floats(0, 0.095),
            st.integers(0, 19),
        ),
        max_size=16,
    ),
    st.integers(60, 100),
)
def test_clean_work_has_no_finding(ranks: list[RankSteps], used_percent: int) -> None:
    recent = replace(HALF_USED, used_ms=WINDOW * used_percent // 100)
    assert found(rank_claims(ranks, None), recent) == {}


@pytest.mark.parametrize("micros", [10**18, 0])
def test_hostile_times_of_ranks_stay_within_a_step(micros: int) -> None:
    wild = rank(data_wait_micros=micros, step_micros=1, throttled_percent=10**6)
    behind = replace(BEHIND, lost_micros=float(micros), step_micros=1)
    assert all(0 <= claim.share <= 1 for claim in rank_claims([wild], behind))
    assert gain_permille(list(found(rank_claims([wild], behind)).values())) <= 450
