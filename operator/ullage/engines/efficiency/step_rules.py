# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explanations of unused time by the parts of a step, from records of ranks and from a trace.

Both are what the workload's own program reports. So they only divide time that the nodes' counters
say was not used: a claim gets a place on the axis of unused time, and what of it was used is cut.

Parts of a step are disjoint, and so are their places, from the end of the axis: pauses between
steps and waiting for data, then idle time of the device, waiting for a slow rank, communication,
copies. Claims of one part lie over each other. Thresholds: derived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.words import EfficiencyRule
from ullage.engines.efficiency.gains import Interval

RANK_STEPS_LEAST: Final = 100
"""Steps of a rank before its means say anything."""
TRACED_STEPS_LEAST: Final = 5
"""Steps of a trace that findings may rest on."""
DATA_SHARE: Final = 0.1
"""Part of its steps that every rank waits for data at least."""
THROTTLED_PERCENT: Final = 20
"""Part of the time that a container is stopped at its CPU limit at least."""
LOST_SHARE: Final = 0.1
"""Part of the step that a slow rank costs the others at least."""
GAIN_LEAST: Final = 0.02
"""Part of the allocated time that a claim must explain to be a finding."""


class StepPart(IntEnum):
    """Parts of a step, in the order of their places from the end of the axis."""

    BETWEEN = 0
    """No step is under way, or it waits for data."""
    IDLE = 1
    """The device waits for the program."""
    OTHER_RANKS = 2
    """The rank waits for a slower one."""
    COMMUNICATION = 3
    COPIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClaim:
    """An explanation by a part of the step.

    Attributes:
        rule: The explanation.
        part: Part of the step that it explains.
        share: How much of the step, 0 to 1; 0 = it takes no time that is known.
        evidence: Its figures as a sentence.
        of_kernels: Its time may be counted as used, as collectives run as kernels of a GPU.
    """

    rule: EfficiencyRule
    part: StepPart
    share: float
    evidence: str
    of_kernels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """Means of the steps of one rank; times in microseconds.

    Attributes:
        throttled_percent: Part of the time in which its container was stopped at its CPU limit.
    """

    rank: int
    steps: int
    step_micros: int
    data_wait_micros: int
    throttled_percent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsBehind:
    """A rank that the others wait for.

    Attributes:
        ratio: Its own part of a step over the median of the others.
        lost_micros: How much longer that is.
        step_micros: Time of a step.
        cause: What it takes longer for, as words after the ratio.
    """

    rank: int
    ratio: float
    lost_micros: float
    step_micros: int
    cause: str


_OF_KERNELS: Final = (EfficiencyRule.EXPOSED_COMMUNICATION, EfficiencyRule.SLOW_RANK)


def rank_claims(ranks: Sequence[RankSteps], behind: StepsBehind | None) -> tuple[StepClaim, ...]:
    """Claims of the ranks of a workload.

    Args:
        ranks: All its ranks; of a few steps only, they say nothing.
        behind: The slowest rank, where one is slow; ``None`` also where slowness is of no interest.
    """
    if not ranks or any(r.steps < RANK_STEPS_LEAST or r.step_micros <= 0 for r in ranks):
        return ()
    claims: list[StepClaim] = []
    waits = min(min(1.0, rank.data_wait_micros / rank.step_micros) for rank in ranks)
    if waits >= DATA_SHARE:
        who = "every rank waits" if len(ranks) > 1 else "the program waits"
        claims.append(
            StepClaim(
                rule=EfficiencyRule.WAITS_FOR_DATA,
                part=StepPart.BETWEEN,
                share=waits,
                evidence=f"{who} for its next batch for {waits:.0%} of its steps or more",
            )
        )
    stopped = max(ranks, key=lambda rank: rank.throttled_percent)
    if stopped.throttled_percent >= THROTTLED_PERCENT:
        claims.append(
            StepClaim(
                rule=EfficiencyRule.CPU_THROTTLED,
                part=StepPart.BETWEEN,
                share=min(100, stopped.throttled_percent) / 100,
                evidence=f"the container of rank {stopped.rank} is stopped at its CPU limit for"
                f" {stopped.throttled_percent} % of the time",
            )
        )
    if behind is not None and behind.step_micros > 0:
        lost = min(1.0, behind.lost_micros / behind.step_micros)
        if lost >= LOST_SHARE:
            claims.append(
                StepClaim(
                    rule=EfficiencyRule.SLOW_RANK,
                    part=StepPart.OTHER_RANKS,
                    share=lost,
                    evidence=f"rank {behind.rank} takes {behind.ratio:.2f} times as long as the"
                    f" others, {behind.cause}; they wait for it for {lost:.0%} of a step",
                    of_kernels=True,
                )
            )
    return tuple(claims)


def trace_claims(
    steps: int, where: str, findings: Iterable[tuple[Reason, int, str]]
) -> tuple[StepClaim, ...]:
    """Claims of the last trace of a workload.

    Args:
        steps: Steps that every traced rank has.
        where: The trace, for the evidence.
        findings: Reason, percent of the step that could be saved, and figures in a sentence.
    """
    if steps < TRACED_STEPS_LEAST:
        return ()
    claims: list[StepClaim] = []
    for reason, percent, message in findings:
        place = place_of(reason)
        if place is None:
            continue
        rule, part = place
        claims.append(
            StepClaim(
                rule=rule,
                part=part,
                share=min(100, max(0, percent)) / 100,
                evidence=f"{message}, in {where}",
                of_kernels=rule in _OF_KERNELS,
            )
        )
    return tuple(claims)


def place_of(reason: Reason) -> tuple[EfficiencyRule, StepPart] | None:
    """Rule and part of the step of a finding of a trace; ``None`` = no reason for unused time."""
    match reason:
        case Reason.STRAGGLER:
            return EfficiencyRule.SLOW_RANK, StepPart.OTHER_RANKS
        case Reason.WAITS_FOR_DATA:
            return EfficiencyRule.WAITS_FOR_DATA, StepPart.BETWEEN
        case Reason.EXPOSED_COMMUNICATION:
            return EfficiencyRule.EXPOSED_COMMUNICATION, StepPart.COMMUNICATION
        case Reason.HOST_BOUND:
            return EfficiencyRule.HOST_BOUND, StepPart.IDLE
        case Reason.SHORT_KERNELS:
            return EfficiencyRule.SHORT_KERNELS, StepPart.IDLE
        case Reason.SYNCHRONISES_OFTEN:
            return EfficiencyRule.SYNCHRONISES_OFTEN, StepPart.IDLE
        case Reason.ALLOCATES_IN_STEPS:
            return EfficiencyRule.ALLOCATES_IN_STEPS, StepPart.IDLE
        case Reason.PAGEABLE_COPIES:
            return EfficiencyRule.PAGEABLE_COPIES, StepPart.COPIES
        case _:
            return None


def without_repeats(*groups: Iterable[StepClaim]) -> tuple[StepClaim, ...]:
    """Claims of several sources; of one rule, that of the first source stays."""
    kept: dict[EfficiencyRule, StepClaim] = {}
    for group in groups:
        for claim in group:
            kept.setdefault(claim.rule, claim)
    return tuple(kept.values())


def explained_by(
    claims: Sequence[StepClaim], *, allocated_ms: int, used_ms: int, duty_percent: int
) -> list[tuple[StepClaim, tuple[()] | tuple[Interval]]]:
    """Claims that explain enough of the unused time, each with its interval.

    A claim without time of its own stays where enough is unused.

    Args:
        claims: Claims of one workload, at most one of each rule.
        allocated_ms: Length of the axis, device milliseconds.
        used_ms: Its used part, at the beginning.
        duty_percent: Time in which a step was under way; shares of a step are parts of it.
    """
    steps_ms = allocated_ms * duty_percent / 100
    longest: defaultdict[StepPart, float] = defaultdict(float)
    longest[StepPart.BETWEEN] = allocated_ms - steps_ms
    for claim in claims:
        longest[claim.part] = max(longest[claim.part], claim.share * steps_ms)
    ends: dict[StepPart, float] = {}
    end = float(allocated_ms)
    for part in StepPart:
        ends[part] = end
        end -= longest[part]
    least_ms = GAIN_LEAST * allocated_ms
    kept: list[tuple[StepClaim, tuple[()] | tuple[Interval]]] = []
    for claim in claims:
        if not claim.share:
            if allocated_ms - used_ms >= least_ms:
                kept.append((claim, ()))
            continue
        stop = max(used_ms, int(ends[claim.part]))
        begin = max(used_ms, int(ends[claim.part] - claim.share * steps_ms))
        if stop - begin >= least_ms and stop > begin:
            kept.append((claim, ((begin, stop),)))
    return kept
