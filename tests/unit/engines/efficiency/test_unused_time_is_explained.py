# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule speaks where its evidence is there, and is silent on work that uses what it holds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.usage import ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule as Rule
from ullage.engines.efficiency.gains import length, union
from ullage.engines.efficiency.rules import Finding, JudgedWorkload, findings_of, gain_permille

WINDOW = 900_000
BUSY = RecentUsage(
    allocated_ms=WINDOW,
    used_ms=WINDOW * 9 // 10,
    needed_percent=98,
    duty_percent=100,
    kernel_idle_percent=5,
    memory_mib=70_000,
)


def member(recent: RecentUsage, *, estimated: bool = False) -> ObservedUsage:
    return ObservedUsage(recent=recent, estimated=estimated)


def job(*members: ObservedUsage, percent: int = 100) -> JudgedWorkload:
    return JudgedWorkload(
        percent=percent,
        memory_mib=80_000,
        is_job=True,
        fixed_share=False,
        whole_device=False,
        members=members,
    )


def rules(subject: JudgedWorkload) -> set[Rule]:
    return {finding.rule for finding in findings_of(subject)}


def the(rule: Rule, subject: JudgedWorkload) -> Finding:
    return next(finding for finding in findings_of(subject) if finding.rule is rule)


IDLE = replace(BUSY, used_ms=0, needed_percent=0, duty_percent=0, memory_mib=0)
SMALL_SHARE = replace(BUSY, used_ms=WINDOW // 5, needed_percent=28)
HOST = replace(BUSY, used_ms=WINDOW * 4 // 10, kernel_idle_percent=45)
SMALL = replace(BUSY, used_ms=WINDOW * 3 // 10, needed_percent=90, memory_mib=20_000)
WAITS = replace(BUSY, used_ms=WINDOW * 55 // 100, duty_percent=60)
MEMORY = replace(BUSY, memory_mib=20_000)
PLANTED = {
    Rule.IDLE: IDLE,
    Rule.OVERSIZED_SHARE: SMALL_SHARE,
    Rule.HOST_BOUND: HOST,
    Rule.SMALL_BATCH: SMALL,
    Rule.BETWEEN_STEPS: WAITS,
    Rule.MEMORY_UNUSED: MEMORY,
}


def test_work_that_uses_what_it_holds_has_no_finding() -> None:
    assert findings_of(job(member(BUSY))) == ()


@pytest.mark.parametrize("rule", PLANTED)
def test_each_antipattern_is_found_with_its_figures(rule: Rule) -> None:
    finding = the(rule, job(member(PLANTED[rule])))
    assert 0 < finding.confidence < 1
    assert any(character.isdigit() for character in finding.evidence)
    assert (finding.gain_permille > 0) == (rule is not Rule.MEMORY_UNUSED)


def test_without_two_windows_of_each_member_nothing_is_said() -> None:
    assert findings_of(job()) == ()
    assert findings_of(job(ObservedUsage())) == ()
    assert findings_of(job(member(IDLE), ObservedUsage())) == ()


def test_idle_explains_everything_and_one_burst_ends_it() -> None:
    (finding,) = findings_of(job(member(IDLE)))
    assert finding.rule is Rule.IDLE
    assert finding.gain_permille == 1000
    assert Rule.IDLE not in rules(job(member(replace(IDLE, needed_percent=9))))
    assert Rule.IDLE not in rules(job(member(replace(IDLE, used_ms=WINDOW // 100))))


def test_a_gang_is_idle_when_all_its_members_are() -> None:
    assert Rule.IDLE in rules(job(member(IDLE), member(IDLE)))
    assert Rule.IDLE not in rules(job(member(IDLE), member(BUSY)))


def test_a_share_that_is_enough_has_room_above_what_is_needed() -> None:
    finding = the(Rule.OVERSIZED_SHARE, job(member(SMALL_SHARE)))
    assert finding.percent == 35  # 28 x 1.25, a multiple of 5
    assert finding.gain_permille == 650
    assert finding.memory_mib == 80_000
    close = replace(SMALL_SHARE, needed_percent=57)  # 75 of 100 would be enough
    assert Rule.OVERSIZED_SHARE not in rules(job(member(close)))
    fixed = replace(job(member(SMALL_SHARE)), fixed_share=True)
    assert Rule.OVERSIZED_SHARE not in rules(fixed)


def test_time_that_was_withheld_is_no_evidence_against_the_workload() -> None:
    frozen = replace(IDLE, allocated_ms=WINDOW, withheld_ms=WINDOW + 1000)
    assert findings_of(job(member(frozen))) == ()


@pytest.mark.parametrize("rule", PLANTED)
def test_what_is_left_beside_withheld_time_is_judged_while_it_is_a_window(rule: Rule) -> None:
    free = PLANTED[rule]
    kept = replace(free, withheld_ms=free.allocated_ms)
    assert findings_of(job(member(kept))) == findings_of(job(member(free)))


def test_steps_are_needed_where_a_rule_reads_them() -> None:
    few = replace(WAITS, duty_percent=0)
    assert Rule.BETWEEN_STEPS not in rules(job(member(few)))
    service = replace(job(member(WAITS)), is_job=False)
    assert Rule.BETWEEN_STEPS not in rules(service)


def test_time_between_steps_is_not_the_hosts() -> None:
    within = replace(HOST, kernel_idle_percent=28, duty_percent=92)
    finding = the(Rule.HOST_BOUND, job(member(within)))
    assert finding.gain_permille == 200
    between = replace(HOST, kernel_idle_percent=27, duty_percent=92)
    assert Rule.HOST_BOUND not in rules(job(member(between)))


def test_reported_steps_never_make_time_wasted() -> None:
    """A workload that reports wildly changes the reasons, not the unused time."""
    for duty in (1, 50, 100):
        claims = replace(BUSY, duty_percent=duty, used_ms=WINDOW)
        assert gain_permille(findings_of(job(member(claims)))) == 0


def test_estimates_and_reports_lower_the_confidence() -> None:
    measured = the(Rule.OVERSIZED_SHARE, job(member(SMALL_SHARE)))
    estimated = the(Rule.OVERSIZED_SHARE, job(member(SMALL_SHARE, estimated=True)))
    reported = the(Rule.BETWEEN_STEPS, job(member(WAITS)))
    assert measured.confidence == 0.9
    assert estimated.confidence == reported.confidence == 0.72


PERCENT = st.integers(0, 100)
WINDOWS = st.builds(
    lambda allocated, part, withheld, peak, duty, idle, memory: RecentUsage(
        allocated_ms=allocated,
        used_ms=allocated * part // 100,
        withheld_ms=withheld,
        needed_percent=max(peak, part),
        duty_percent=duty,
        kernel_idle_percent=idle,
        memory_mib=memory,
    ),
    st.integers(0, 300),
    PERCENT,
    st.integers(0, 50),
    PERCENT,
    PERCENT,
    PERCENT,
    st.integers(0, 100_000),
)
MEMBERS = st.builds(
    lambda recent, estimated: ObservedUsage(recent=recent, estimated=estimated),
    st.none() | WINDOWS,
    st.booleans(),
)


@given(st.lists(MEMBERS, max_size=3), st.integers(1, 100), st.booleans())
def test_gains_of_a_set_are_unused_time_and_count_once(
    members: list[ObservedUsage], percent: int, is_job: bool
) -> None:
    subject = replace(job(*members, percent=percent), is_job=is_job)
    findings = findings_of(subject)
    if not findings:
        return
    windows = [held.recent for held in members if held.recent is not None]
    idle = sum(window.allocated_ms - window.used_ms for window in windows)
    allocated = findings[0].allocated_ms
    moments = {
        moment
        for finding in findings
        for begin, end in finding.explained
        for moment in range(begin, end)
    }
    together = gain_permille(findings)
    assert together == len(moments) * 1000 // allocated  # brute force: each moment once
    assert len(moments) <= idle
    assert together <= sum(finding.gain_permille for finding in findings) + len(findings)
    assert together >= max(finding.gain_permille for finding in findings)
    assert [f.gain_permille for f in findings] == sorted(
        (f.gain_permille for f in findings), reverse=True
    )


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(INTERVALS)
def test_a_union_is_the_set_of_its_moments(intervals: list[tuple[int, int]]) -> None:
    moments = {moment for begin, end in intervals for moment in range(begin, end)}
    assert length(intervals) == len(moments)
    spans = union(intervals)
    assert {moment for begin, end in spans for moment in range(begin, end)} == moments
    assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))
