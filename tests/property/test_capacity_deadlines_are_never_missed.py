# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever spot does, a deadline that was admitted is kept, and greedily too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.capacity_deadline import play
from ullage.engines.capacity.deadline import (
    DeadlineProgress,
    DeadlineVerdict,
    ProgressLine,
    greedy,
    infeasible,
    uniform_progress,
)

RUNS = st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=12)


@st.composite
def lines(draw: st.DrawFn) -> ProgressLine:
    """Times from all orders: starts shorter and longer than a tick, deadlines just kept."""
    work_s, tick_s = draw(st.integers(1, 4000)), draw(st.sampled_from([1, 7, 60, 195, 600]))
    tick_s = max(tick_s, work_s // 100)
    changeover_s = draw(st.sampled_from([0, 1, 59, 60, 300, 720]))
    slack_s = draw(st.integers(0, 4000))
    return ProgressLine(
        work_s=work_s,
        deadline_s=work_s + 2 * changeover_s + slack_s,
        changeover_s=changeover_s,
        tick_s=tick_s,
    )


def ours(line: ProgressLine, at: DeadlineProgress) -> DeadlineVerdict:
    return uniform_progress(line, at)


@given(line=lines(), runs=RUNS)
def test_no_deadline_is_missed(line: ProgressLine, runs: list[tuple[bool, int]]) -> None:
    assert infeasible(line, allow_spot=True, allow_on_demand=True) is None
    up = [there for there, ticks in runs for _ in range(ticks)]
    assert play(ours, line, up).late_s == 0
    assert play(greedy, line, up).late_s == 0


@given(line=lines(), runs=RUNS)
def test_spot_all_the_time_needs_no_on_demand_beyond_the_net(
    line: ProgressLine, runs: list[tuple[bool, int]]
) -> None:
    always = [True] * (line.deadline_s // line.tick_s + 2)
    found = play(ours, line, always)
    if line.deadline_s - line.work_s >= line.reserve_s:
        assert found.on_demand_s == 0
        assert found.starts == 1
