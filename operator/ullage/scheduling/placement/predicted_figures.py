# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Live figures of a workload: progress, and predicted and observed slowdown.

A figure is rewritten at most about once a minute, and only when it changed enough to matter; the
agents' metrics are exact to the second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.api.times import LATEST
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import LaneStatus, Progress, Sharing
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Tenant
from ullage.engines.admission.verdict import Verdict
from ullage.scheduling.feasibility.lanes import parties, waiting_factor
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.model.progress import GangProgress, gang_progress
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.verdicts import AdmissionRule

UPPER_Z: Final = 1.645
"""One-sided 95 % bound of a normal."""
_MICROS = 1e6
_TENTH = 0.1
_SAME_PREDICTION = 0.005
_SAME_ATTAINMENT = 0.005
_SAME_WAIT = 0.02
_SIX_PLACES: Final = Decimal("0.000001")
"""Precision of the schema."""


@dataclass(frozen=True, slots=True)
class Part:
    """One slice of a workload as planned, and as its node reports it."""

    pod_uid: str
    pod: str
    node: str
    slice: DesiredSlice
    seen: ObservedSlice | None


@dataclass(slots=True)
class Predictions:
    """Predicted slowdown of all occupants of devices, computed once per mixture of tenants."""

    occupancy: Occupancy
    rule: AdmissionRule
    admissions: Mapping[str, Verdict] = field(default_factory=dict)
    """By uid of the pods that are placed now."""
    _known: dict[tuple[object, ...], tuple[float, ...]] = field(default_factory=dict)
    _predicted: dict[int, dict[str, float]] = field(default_factory=dict)
    """By device, then by uid of the pod."""

    def of(self, node: str, gpu: str, pod_uid: str) -> float:
        """Predicted slowdown of a pod on a device; 0 = it is on another one."""
        site = self.occupancy.inventory.site_index.get((node, gpu))
        if site is None:
            return 0.0
        predicted = self._predicted.get(site)
        if predicted is None:
            predicted = self._predicted[site] = self._of_all(site)
        return predicted.get(pod_uid, 0.0)

    def _of_all(self, site: int) -> dict[str, float]:
        """Predicted slowdown of all occupants of a device, by uid of the pod."""
        occupants = self.occupancy.occupants[site]
        if not occupants:
            return {}
        model = self.occupancy.inventory.sites[site].device.model
        by_pod: dict[str, float] = {}
        slowdowns = iter(self._slowdowns(model, parties(occupants)))
        in_lanes: dict[int, float] = {}
        for occupant in occupants:
            value = in_lanes.get(occupant.lane)
            if value is None:
                value = next(slowdowns)
                if occupant.lane:
                    in_lanes[occupant.lane] = value
            by_pod.setdefault(occupant.pod_uid, value * waiting_factor(occupants, occupant))
        return by_pod

    def _slowdowns(self, model: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        # equal profiles are one object (Classes), alive as long as their tenants
        key = (
            model,
            *[(tenant.percent, tenant.utilisation, id(tenant.profile)) for tenant in tenants],
        )
        slowdowns = self._known.get(key)
        if slowdowns is None:
            slowdowns = self._known[key] = self.rule.slowdowns(model, tenants)
        return slowdowns


def sharing(
    workload: WorkloadRecord, parts: Sequence[Part], predictions: Predictions
) -> Sharing | None:
    """Share and slowdown of the slowest member; the previous record if nothing changed."""
    if not parts:
        return None
    predicted, slowest, member = 0.0, parts[0].slice, parts[0].pod_uid
    for part in parts:
        value = predictions.of(part.node, part.slice.gpu, part.pod_uid)
        if value > predicted:
            predicted, slowest, member = value, part.slice, part.pod_uid
    before = workload.status.sharing
    foreseen = _kept_prediction(before, predicted)
    slowdown, micros, windows, broken = _figures(parts)
    observed = _kept_observation(before, slowdown, workload.max_slowdown)
    latency_ms = _kept_latency(before, workload, micros)
    attainment = _kept_attainment(before, windows, broken)
    share = (slowest.percent, slowest.memory_mib)
    verdict = predictions.admissions.get(member)
    if before is not None and verdict is None:
        # most records need no change, and comparing costs less than a copy
        written = before.percent, before.memory_mib, before.predicted, before.observed
        figures = *written, before.latency_ms, before.attainment
        if figures == (*share, foreseen, observed, latency_ms, attainment):
            return before
    # the admission's prediction is valid as long as its share is
    base = before if before is not None and (before.percent, before.memory_mib) == share else None
    base = _with_admission(base or Sharing(percent=share[0], memory_mib=share[1]), verdict)
    after = replace(
        base,
        predicted=foreseen,
        observed=observed,
        latency_ms=latency_ms,
        attainment=attainment,
    )
    return before if after == before else after


def _with_admission(base: Sharing, verdict: Verdict | None) -> Sharing:
    """The record with the admission's prediction; unchanged where nothing was decided now."""
    if verdict is None or not verdict.tenants:
        return base
    newcomer = verdict.tenants[-1]
    bound = math.isfinite(verdict.z)
    lax = math.isinf(verdict.required) and verdict.required < 0
    asked = "Refuse" if math.isinf(verdict.required) else f"{max(0.0, verdict.required):.2f}"
    return replace(
        base,
        predicted_upper=f"{math.exp(newcomer.mean + UPPER_Z * newcomer.sd):.2f}",
        group=str(verdict.group or ""),
        source=str(verdict.rung or ""),
        z=f"{max(0.0, verdict.z):.2f}" if bound else "",
        threshold=asked if bound and not lax else "",
        risk_used=f"{verdict.risk:.4f}" if bound else "",
    )


def lane_status(before: LaneStatus | None, parts: Sequence[Part]) -> LaneStatus | None:
    """The lane of the member with the longest waits; the previous record if little changed."""
    in_lanes = [part for part in parts if part.slice.lane]
    if not in_lanes:
        return None
    part = max(in_lanes, key=lambda part: (_waits(part), -part.slice.lane))
    seen, waits = part.seen, _waits(part)
    kept = seen.persistent_peak_mib if seen is not None else 0
    after = LaneStatus(
        lane=part.slice.lane,
        node=part.node,
        persistent_mib=kept or part.slice.persistent_mib,
        ephemeral_peak_mib=seen.ephemeral_peak_mib if seen is not None else 0,
        wait_fraction=f"{waits:.2f}" if seen is not None and seen.phase.started else "",
        suspended=seen is not None and seen.suspended,
    )
    if before is None or replace(after, wait_fraction=before.wait_fraction) != before:
        return after
    moved = abs(_number(before.wait_fraction) - waits)
    same_form = bool(before.wait_fraction) is bool(after.wait_fraction)
    return before if same_form and moved < _SAME_WAIT else after


def contract_exceeded(parts: Sequence[Part]) -> tuple[Reason, str] | None:
    """Test for a member that uses more of its lane than declared; reason and text."""
    for part in parts:
        wanted, seen = part.slice, part.seen
        if not wanted.lane or seen is None:
            continue
        for name, declared, took in (
            ("persistent", wanted.persistent_mib, seen.persistent_peak_mib),
            ("ephemeral", wanted.ephemeral_mib, seen.ephemeral_peak_mib),
        ):
            if took > declared:
                text = (
                    f"{part.pod} took {took} MiB, spec.gpu.lane.{name} says {declared} MiB: set it "
                    f"to {took}Mi or more before the next start"
                )
                return Reason.MEMORY_CONTRACT_EXCEEDED, text
    return None


def _waits(part: Part) -> float:
    return part.seen.lane_wait_percent / 100 if part.seen is not None else 0.0


def slo_reason(parts: Sequence[Part], met: bool) -> Reason:
    """The reason of an objective's condition; guards report a breach by the tenant's own load."""
    if met:
        return Reason.WITHIN_OBJECTIVE
    by_itself = any(
        part.seen is not None and part.seen.reason == Reason.SELF_VIOLATING for part in parts
    )
    return Reason.SELF_VIOLATING if by_itself else Reason.ABOVE_OBJECTIVE


def observed_slowdown(parts: Sequence[Part]) -> float:
    """Largest observed slowdown among the members, 0 = unknown.

    Recent step time divided by the step time alone on the whole device, both from the step record.
    """
    return _figures(parts)[0]


def _figures(parts: Sequence[Part]) -> tuple[float, int, int, int]:
    """Figures of the nodes: largest slowdown, largest latency in µs, windows, broken windows."""
    slowdown, micros, windows, broken = 0.0, 0, 0, 0
    for part in parts:
        seen = part.seen
        if seen is None:
            continue
        slowdown = max(slowdown, seen.slowdown)
        if seen.latency_micros > micros:
            micros = seen.latency_micros
        windows += seen.windows
        broken += seen.violations
    return slowdown, micros, windows, broken


def objective_met(workload: WorkloadRecord, parts: Sequence[Part]) -> tuple[bool, str] | None:
    """True when the objective is met, and the text; ``None`` = unknown.

    The guard's windows decide (broken = above in two of three, phase Violating); until the first
    window the observed slowdown does.
    """
    allowed = workload.max_slowdown
    if allowed is None and workload.slo is None and workload.min_throughput is None:
        return None
    seen = [part.seen for part in parts if part.seen is not None]
    windows = sum(part.windows for part in seen)
    if windows:
        kept = windows - sum(part.violations for part in seen)
        met = all(part.phase is not SlicePhase.VIOLATING for part in seen)
        return met, f"kept in {kept} of {windows} windows since the start"
    observed = observed_slowdown(parts)
    if allowed is None or not observed:
        return None
    return (
        observed <= allowed,
        f"observed {observed:.2f} times slower than alone, allowed {allowed:g}",
    )


def progress(view: View, workload: WorkloadRecord, parts: Sequence[Part]) -> Progress | None:
    """Progress of the slowest member; the previous record if it changed too little."""
    before = workload.status.progress
    now = gang_progress(((part.pod_uid, part.seen) for part in parts), before)
    if now is None:
        return before
    after = _progress(view, workload, now)
    if before is not None and not _worth_writing(view, before, after, now.slowest):
        return before
    return after


def finished(workload: WorkloadRecord) -> Progress | None:
    """Progress of a job whose members all succeeded: its declared work is done."""
    total = workload.work_steps
    if not total:
        return workload.status.progress
    before = workload.status.progress
    resumed_at = before.resumed_at if before is not None else 0
    return Progress(steps=total, total=total, percent=100, resumed_at=resumed_at)


def _progress(view: View, workload: WorkloadRecord, now: GangProgress) -> Progress:
    total, micros = workload.work_steps, now.slowest.step_micros
    rate = _MICROS / micros if micros else 0.0
    due = view.now + max(0, total - now.steps) / rate if rate and total else 0.0
    return Progress(
        steps=now.steps,
        resumed_at=now.resumed_at,
        total=total,
        percent=min(100, 100 * now.steps // total) if total else 0,
        expected_percent=_expected_percent(workload, view.now),
        # three significant digits without an exponent: the API requires plain decimals
        steps_per_second=(
            format(Decimal(f"{rate:.3g}").quantize(_SIX_PLACES).normalize(), "f") if rate else ""
        ),
        # a time later than LATEST cannot be written
        eta=whole_second(due) if due <= LATEST else 0.0,
    )


def _expected_percent(workload: WorkloadRecord, now: float) -> int:
    """Percent of the time from creation to deadline that has passed; 0 = no deadline."""
    due_s = workload.cost.deadline_s if workload.cost is not None else None
    if not due_s:
        return 0
    return max(0, min(100, int(100 * (now - workload.created) / due_s)))


def _worth_writing(view: View, before: Progress, after: Progress, seen: ObservedSlice) -> bool:
    """True when progress changed enough, and enough time passed at the job's pace, to write it."""
    if after.steps < before.steps or after.total != before.total:
        return True
    if after.resumed_at != before.resumed_at:
        return True  # it restarted, and has progressed since
    passed_s = (after.steps - before.steps) * seen.step_micros / _MICROS
    if seen.step_micros and passed_s < view.settings.progress_period_s:
        return False
    if after.total:
        return after.percent > before.percent
    return after.steps >= before.steps * (1 + _TENTH)


def _kept_prediction(before: Sharing | None, value: float) -> str:
    if not value:
        return ""
    old = _number(before.predicted if before is not None else "")
    if before is not None and old and abs(old - value) <= _SAME_PREDICTION:
        return before.predicted
    return f"{value:.2f}"


def _kept_observation(before: Sharing | None, value: float, allowed: float | None) -> str:
    if before is None or not before.observed:
        return f"{value:.2f}" if value else ""
    old = _number(before.observed)
    crossed = allowed is not None and (old > allowed) != (value > allowed)
    if value and (crossed or abs(value - old) >= _TENTH * old):
        return f"{value:.2f}"
    return before.observed


def _kept_latency(before: Sharing | None, workload: WorkloadRecord, micros: int) -> int:
    """Latency of the slowest member at the objective's percentile, ms; unchanged while close."""
    value = -(-micros // 1000)
    old = before.latency_ms if before is not None else 0
    allowed = workload.slo.latency_ms if workload.slo is not None else 0
    crossed = bool(allowed) and (old > allowed) != (value > allowed)
    return value if value and (crossed or abs(value - old) >= _TENTH * old) else old


def _kept_attainment(before: Sharing | None, windows: int, broken: int) -> str:
    """Fraction of the windows that met the objective; unchanged while close."""
    old = before.attainment if before is not None else ""
    if not windows:
        return old
    value = max(0.0, 1 - broken / windows)
    return old if old and abs(_number(old) - value) < _SAME_ATTAINMENT else f"{value:.3f}"


def _number(text: str) -> float:
    try:
        return float(text) if text else 0.0
    except ValueError:
        return 0.0
