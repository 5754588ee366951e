# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that explain unused device time, each with the minimum evidence that it needs.

A rule reads the last two windows, as nodes measured them, of a quarter of an hour by default. It
speaks only of windows in which the workload could run, and explains only unused time. Steps and the
time within them are what the workload itself reports: they choose between explanations and never
make time wasted. Thresholds and confidences: derived.

Claims of ranks and traces (``step_rules``) divide the same unused time further. Not among either,
because no report has what they need: precision of matrix products, debug switches, optimizers
without fused kernels, stalls by checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from ullage.api.times import HOUR_MS
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule
from ullage.engines.efficiency.gains import Interval, length
from ullage.engines.efficiency.step_rules import StepClaim, explained_by

WITHHELD_MOST: Final = 0.5
"""Part of the time that may have been withheld from the workload; else it is not judged. Withheld
time is in no figure of a window, so what is left of two windows must be as long as one."""
IDLE_BELOW: Final = 0.01
"""Use of the held time below which a workload is idle."""
IDLE_NEED_MOST: Final = 2
"""Percent of a device that an idle workload needs at most; a short burst needs more."""
LOW_USE: Final = 0.5
"""Use of the held time below which it is low."""
STEPS_ALL_THE_TIME: Final = 90
"""Percent of the time from which steps run one after another."""
KERNELS_IDLE: Final = 20
"""Percent of the time in which steps run without a kernel: the device waits for the host."""
MEMORY_USED_MOST: Final = 0.5
"""Part of the memory below which the rest was never needed."""
MEMORY_LEAST_MIB: Final = 1024
"""Unused memory that is worth a finding."""
SHARE_KEPT_MOST: Final = 0.7
"""Part of its share at most that a workload with an oversized share needs."""
HEADROOM: Final = 1.25
"""Ratio of a recommendation to what is needed."""
SHARE_STEP: Final = 5
"""Recommended shares are multiples of it, percent."""
MEMORY_STEP_MIB: Final = 256
"""Recommended memory is a multiple of it."""
CONFIDENCE: Final = 0.9
"""Confidence in a finding that rests on counters of the device alone."""
CONFIDENCE_LOST: Final = 0.8
"""Factor of a confidence that rests on an estimate, or on what the workload reports."""
_CONFIDENCES: Final = tuple(round(CONFIDENCE * CONFIDENCE_LOST**lost, 3) for lost in range(4))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWorkload:
    """A workload as the rules see it.

    Attributes:
        percent: Share of a device of each member; 100 = whole devices.
        memory_mib: Device memory of each member.
        is_job: It runs steps one after another, unlike a service that waits for requests.
        fixed_share: A smaller share may not replace its own: a lane or an objective needs it.
        whole_device: It holds whole devices, so no memory of them is left to others.
        members: Counters of each member; none = it is not judged.
        claims: What its ranks and its last trace say of its steps, one of each rule.
    """

    percent: int
    memory_mib: int
    is_job: bool
    fixed_share: bool
    whole_device: bool
    members: tuple[ObservedUsage, ...]
    claims: tuple[StepClaim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One explanation of unused time.

    Attributes:
        rule: The explanation.
        gain_permille: Part of the allocated time that it explains.
        explained: The time itself, as in ``gains``.
        allocated_ms: Device time of the windows that it rests on.
        confidence: From 0 to 1.
        percent: Share that would be enough; 0 = not said.
        memory_mib: Memory that would be enough; 0 = not said.
        evidence: Its figures as a sentence.
    """

    rule: EfficiencyRule
    gain_permille: int
    explained: tuple[Interval, ...]
    allocated_ms: int
    confidence: float
    percent: int = 0
    memory_mib: int = 0
    evidence: str


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The last two windows of all members as one; used time first on the axis of gains."""

    subject: JudgedWorkload
    recent: RecentUsage
    estimated: bool

    @property
    def use(self) -> float:
        """Part of the allocated time that was used."""
        return self.recent.used_ms / self.recent.allocated_ms

    def unused(self, fraction: float = 1.0) -> tuple[()] | tuple[Interval]:
        """Unused time, the last ``fraction`` of the allocated time at most."""
        used, end = self.recent.used_ms, self.recent.allocated_ms
        begin = max(used, end - int(end * fraction))
        return ((begin, end),) if begin < end else ()

    def finding(
        self,
        rule: EfficiencyRule,
        evidence: str,
        explained: tuple[()] | tuple[Interval] = (),
        *,
        reported: bool = False,
        percent: int = 0,
        memory_mib: int = 0,
    ) -> Finding:
        """A finding; ``reported`` = it rests on reported steps, too."""
        return Finding(
            rule=rule,
            gain_permille=_span_ms(explained) * 1000 // self.recent.allocated_ms,
            explained=explained,
            allocated_ms=self.recent.allocated_ms,
            confidence=_CONFIDENCES[int(self.estimated) + int(reported)],
            percent=percent,
            memory_mib=memory_mib,
            evidence=f"{evidence} in the last two windows",
        )


_Rule: TypeAlias = Callable[[_Evidence], Finding | None]


def findings_of(subject: JudgedWorkload) -> tuple[Finding, ...]:
    """Explanations of a workload's unused time, the largest gain first.

    An idle workload gets no other explanation: nothing else can be seen of it.
    """
    recent = _together(subject.members)
    if recent is None:
        return ()
    evidence = _Evidence(subject, recent, any(member.estimated for member in subject.members))
    idle = _idle(evidence)
    if idle is not None:
        return (idle,)
    findings = [finding for rule in _RULES if (finding := rule(evidence)) is not None]
    findings += _of_steps(evidence, {finding.rule for finding in findings})
    return tuple(sorted(findings, key=lambda finding: (-finding.gain_permille, finding.rule)))


def gain_permille(findings: Sequence[Finding]) -> int:
    """Part of the allocated time that findings of one workload explain together.

    Each moment counts once, so it is at most the sum of their own gains, and at most the unused
    part.
    """
    if len(findings) == 1:
        return findings[0].gain_permille
    allocated = max((finding.allocated_ms for finding in findings), default=0)
    spans = [span for finding in findings for span in finding.explained]
    return length(spans) * 1000 // allocated if allocated else 0


def _together(members: Sequence[ObservedUsage]) -> RecentUsage | None:
    """The windows of all members; ``None`` = some are missing, or were withheld too much.

    What one member does not report is not known of all.
    """
    windows = [member.recent for member in members if member.recent is not None]
    if not windows or len(windows) < len(members):
        return None
    if len(windows) == 1 and windows[0].used_ms <= windows[0].allocated_ms:
        return windows[0] if _is_enough(windows[0].allocated_ms, windows[0].withheld_ms) else None
    allocated = sum(window.allocated_ms for window in windows)
    withheld = sum(window.withheld_ms for window in windows)
    if not _is_enough(allocated, withheld):
        return None
    return RecentUsage(
        allocated_ms=allocated,
        used_ms=min(allocated, sum(window.used_ms for window in windows)),
        withheld_ms=withheld,
        needed_percent=max(window.needed_percent for window in windows),
        duty_percent=min(window.duty_percent for window in windows),
        kernel_idle_percent=min(window.kernel_idle_percent for window in windows),
        memory_mib=max(window.memory_mib for window in windows),
    )


def _is_enough(allocated_ms: int, withheld_ms: int) -> bool:
    return allocated_ms > 0 and withheld_ms <= WITHHELD_MOST * (allocated_ms + withheld_ms)


def _span_ms(explained: tuple[()] | tuple[Interval]) -> int:
    return explained[0][1] - explained[0][0] if explained else 0


def _idle(evidence: _Evidence) -> Finding | None:
    if evidence.use >= IDLE_BELOW or evidence.recent.needed_percent > IDLE_NEED_MOST:
        return None
    hours = evidence.recent.allocated_ms / HOUR_MS
    return evidence.finding(
        EfficiencyRule.IDLE, f"{hours:.2f} device hours held, none used", evidence.unused()
    )


def _oversized_share(evidence: _Evidence) -> Finding | None:
    subject, needed = evidence.subject, evidence.recent.needed_percent
    enough = -int(-needed * HEADROOM // SHARE_STEP) * SHARE_STEP
    if subject.fixed_share or not needed or enough > SHARE_KEPT_MOST * subject.percent:
        return None
    memory_mib = _enough_memory(evidence)
    return evidence.finding(
        EfficiencyRule.OVERSIZED_SHARE,
        f"on {needed} % of a device the work would have taken 2 % longer at most,"
        f" of {subject.percent} % held,",
        evidence.unused(1 - enough / subject.percent),
        percent=enough,
        memory_mib=memory_mib,
    )


def _host_bound(evidence: _Evidence) -> Finding | None:
    # what lies between steps is no work of the host between kernels
    idle = evidence.recent.kernel_idle_percent - (100 - evidence.recent.duty_percent)
    if not _steps_all_the_time(evidence) or idle < KERNELS_IDLE or evidence.use >= LOW_USE:
        return None
    return evidence.finding(
        EfficiencyRule.HOST_BOUND,
        f"steps ran one after another, and {idle} % of the time they had no kernel",
        evidence.unused(idle / 100),
        reported=True,
    )


def _small_batch(evidence: _Evidence) -> Finding | None:
    subject = evidence.subject
    if (
        not _steps_all_the_time(evidence)
        or evidence.use >= LOW_USE
        or not evidence.recent.memory_mib
    ):
        return None
    if evidence.recent.memory_mib > MEMORY_USED_MOST * subject.memory_mib:
        return None
    return evidence.finding(
        EfficiencyRule.SMALL_BATCH,
        f"steps ran one after another, used {evidence.use:.0%} of the time held and"
        f" {evidence.recent.memory_mib} of {subject.memory_mib} MiB",
        evidence.unused(),
        reported=True,
    )


def _between_steps(evidence: _Evidence) -> Finding | None:
    duty = evidence.recent.duty_percent
    if not _has_steps(evidence) or duty >= STEPS_ALL_THE_TIME:
        return None
    unused = evidence.unused(1 - duty / 100)
    if not unused:
        return None
    return evidence.finding(
        EfficiencyRule.BETWEEN_STEPS,
        f"no step was under way for {100 - duty} % of the time",
        unused,
        reported=True,
    )


def _memory_unused(evidence: _Evidence) -> Finding | None:
    subject, used = evidence.subject, evidence.recent.memory_mib
    enough = _enough_memory(evidence)
    if subject.fixed_share or subject.whole_device or not used:
        return None
    if used > MEMORY_USED_MOST * subject.memory_mib:
        return None
    if subject.memory_mib - enough < MEMORY_LEAST_MIB:
        return None
    return evidence.finding(
        EfficiencyRule.MEMORY_UNUSED,
        f"at most {used} of {subject.memory_mib} MiB of device memory were used",
        memory_mib=enough,
    )


def _enough_memory(evidence: _Evidence) -> int:
    """Memory that would be enough, MiB; 0 = its use is not known."""
    used, held = evidence.recent.memory_mib, evidence.subject.memory_mib
    if not used:
        return 0
    steps = -int(-used * HEADROOM // MEMORY_STEP_MIB)
    return min(held, steps * MEMORY_STEP_MIB)


def _of_steps(evidence: _Evidence, known: Set[EfficiencyRule]) -> Iterator[Finding]:
    """Findings of ranks and traces; what counters of the device already say is not repeated.

    Steps must have been under way in both windows: what a rank reports now, or a trace did, is no
    evidence for windows without steps.
    """
    claims, recent = evidence.subject.claims, evidence.recent
    if not claims or not _has_steps(evidence):
        return
    kept = explained_by(
        [claim for claim in claims if claim.rule not in known],
        allocated_ms=recent.allocated_ms,
        used_ms=recent.used_ms,
        duty_percent=recent.duty_percent,
    )
    for claim, explained in kept:
        yield Finding(
            rule=claim.rule,
            gain_permille=_span_ms(explained) * 1000 // recent.allocated_ms,
            explained=explained,
            allocated_ms=recent.allocated_ms,
            confidence=_CONFIDENCES[1 + int(evidence.estimated) + int(claim.of_kernels)],
            evidence=claim.evidence,
        )


def _has_steps(evidence: _Evidence) -> bool:
    return evidence.subject.is_job and evidence.recent.duty_percent > 0


def _steps_all_the_time(evidence: _Evidence) -> bool:
    return _has_steps(evidence) and evidence.recent.duty_percent >= STEPS_ALL_THE_TIME


_RULES: Final[tuple[_Rule, ...]] = (
    _oversized_share,
    _host_bound,
    _small_batch,
    _between_steps,
    _memory_unused,
)
