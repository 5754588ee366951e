# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Spot or on-demand under a deadline: Uniform Progress with a safety net.

After "Can't Be Late" (NSDI 2024): progress follows a line to the deadline; on-demand is bought when
it falls behind and there is no spot, and permanently when the remaining time is just enough. Time
and work are whole seconds: sums of fractions have missed deadlines. A gang is all on spot or all on
on-demand. It must never let the remaining time fall below the work left and one start.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.words import SpendMode
from ullage.engines.capacity.records import CapacityWhy


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine:
    """The line from nothing at 0 to all work at the deadline.

    Attributes:
        work_s: Seconds of uninterrupted running that the work takes.
        deadline_s: Seconds from the start until the deadline.
        changeover_s: Seconds from a decision until work resumes: start and restore.
        tick_s: Seconds between decisions.
    """

    work_s: int
    deadline_s: int
    changeover_s: int
    tick_s: int

    def __post_init__(self) -> None:
        """Accept whole seconds only.

        Raises:
            ValueError: a time that is not a whole number, or out of range.
        """
        times = (self.work_s, self.deadline_s, self.changeover_s, self.tick_s)
        if not all(isinstance(value, int) for value in times):
            raise ValueError(f"times are whole seconds, not {times}")
        if min(times) < 0 or not self.work_s or not self.deadline_s or not self.tick_s:
            raise ValueError(f"work, deadline and tick are above 0, not {times}")

    @property
    def reserve_s(self) -> int:
        """Seconds above the work left at which waiting ends.

        Two changeovers: one that spot may still waste, one for on-demand. Where decisions are
        further apart than a changeover, a lost tick is added.
        """
        return 2 * self.changeover_s + (self.tick_s if self.changeover_s < self.tick_s else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineProgress:
    """State of a job on its way to a deadline.

    Attributes:
        elapsed_s: Seconds since its start.
        done_s: Seconds of work that are saved.
        running: Current capacity; idle after spot was interrupted.
        spot_available: The whole gang could run on spot now.
        committed: It stays on on-demand until the end.
        changeover_left_s: Seconds until it works; used only by the published rules.
    """

    elapsed_s: int
    done_s: int
    running: SpendMode = SpendMode.IDLE
    spot_available: bool = False
    committed: bool = False
    changeover_left_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineVerdict:
    """Capacity that a gang should run on until the next decision.

    Attributes:
        mode: Spot, on-demand or nothing.
        reason: Reason of the choice.
        committed: On-demand until the end.
    """

    mode: SpendMode
    reason: CapacityWhy
    committed: bool = False


def infeasible(line: ProgressLine, *, allow_spot: bool, allow_on_demand: bool) -> str | None:
    """Reason to refuse a deadline at admission; ``None`` = it can be met.

    Args:
        line: Work and deadline.
        allow_spot: The job may use spot.
        allow_on_demand: It may fall back to on-demand.
    """
    if not allow_on_demand:
        kind = "a spot-only job" if allow_spot else "a job that may use nothing"
        return f"{kind} cannot keep a deadline: allow on-demand as a fallback"
    needed = line.work_s + 2 * line.changeover_s
    if line.deadline_s < needed:
        return (
            f"the deadline of {line.deadline_s / 3600:.2f} h is "
            f"{(needed - line.deadline_s) / 3600:.2f} h too early: {line.work_s / 3600:.2f} h of "
            f"work and two starts of {line.changeover_s / 60:.0f} min need {needed / 3600:.2f} h"
        )
    return None


def uniform_progress(line: ProgressLine, at: DeadlineProgress) -> DeadlineVerdict:
    """Choose the capacity to run on.

    Args:
        line: Work and deadline.
        at: State of the job.
    """
    if at.done_s >= line.work_s:
        return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.FINISHED)
    if at.committed:
        return DeadlineVerdict(
            mode=SpendMode.ON_DEMAND, reason=CapacityWhy.SAFETY_NET, committed=True
        )
    spare_s = _spare_s(line, at)
    if at.running is SpendMode.SPOT:
        return DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.STAYS_ON_SPOT)
    if at.running is SpendMode.IDLE:
        if spare_s < line.reserve_s:
            return DeadlineVerdict(
                mode=SpendMode.ON_DEMAND, reason=CapacityWhy.SAFETY_NET, committed=True
            )
        if at.spot_available:
            return DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.ON_SPOT)
        if _behind(line, at, ahead_s=0):
            return DeadlineVerdict(mode=SpendMode.ON_DEMAND, reason=CapacityWhy.BEHIND)
        return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.AHEAD)
    held = (
        not at.spot_available
        or _behind(line, at, ahead_s=2 * line.changeover_s)
        # a switch back may waste a changeover and a tick, and on-demand then has to start again
        or spare_s < line.reserve_s
    )
    if held:
        return DeadlineVerdict(mode=SpendMode.ON_DEMAND, reason=CapacityWhy.ON_DEMAND_HELD)
    return DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.ON_SPOT)


def greedy(line: ProgressLine, at: DeadlineProgress) -> DeadlineVerdict:
    """The baseline: spot when available, else idle until the safety net.

    Args:
        line: Work and deadline.
        at: State of the job.
    """
    if at.done_s >= line.work_s:
        return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.FINISHED)
    if at.committed:
        return DeadlineVerdict(
            mode=SpendMode.ON_DEMAND, reason=CapacityWhy.SAFETY_NET, committed=True
        )
    if at.running is SpendMode.SPOT:
        return DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.STAYS_ON_SPOT)
    if _spare_s(line, at) < line.reserve_s:
        return DeadlineVerdict(
            mode=SpendMode.ON_DEMAND, reason=CapacityWhy.SAFETY_NET, committed=True
        )
    if at.spot_available:
        return DeadlineVerdict(mode=SpendMode.SPOT, reason=CapacityWhy.ON_SPOT)
    return DeadlineVerdict(mode=SpendMode.IDLE, reason=CapacityWhy.AHEAD)


def next_in_s(line: ProgressLine, at: DeadlineProgress, verdict: DeadlineVerdict) -> int:
    """Seconds until the verdict may change by time alone.

    Args:
        line: Work and deadline.
        at: State of the job.
        verdict: The verdict for that state.
    """
    if verdict.mode is not SpendMode.IDLE or verdict.reason is CapacityWhy.FINISHED:
        return line.tick_s
    # the line passes the work done at t = cp R0 / C0; the net is reached as idle time passes
    crossing_s = at.done_s * line.deadline_s // line.work_s + 1 - at.elapsed_s
    net_s = _spare_s(line, at) - line.reserve_s + 1
    return max(1, min(line.tick_s, crossing_s, net_s))


def _spare_s(line: ProgressLine, at: DeadlineProgress) -> int:
    """R - C: seconds left beyond those that the work needs."""
    return line.deadline_s - at.elapsed_s - (line.work_s - at.done_s)


def _behind(line: ProgressLine, at: DeadlineProgress, *, ahead_s: int) -> bool:
    """True when the work done is below the line some seconds ahead, in whole numbers."""
    return at.done_s * line.deadline_s < (at.elapsed_s + ahead_s) * line.work_s
