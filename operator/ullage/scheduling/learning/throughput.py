# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps per second of a workload on every type of device: the only place where T is read.

Measured, declared and estimated speeds form one table, each with its source and confidence. A
missing accelerator is unknown, which is not 0. The only estimate in this module is the typical
speed of a class that never ran; only its ratios are meaningful.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.api.numbers import MOST as LARGEST
from ullage.cluster.records.profile import (
    Method,
    ProfileRecord,
    SoloEntry,
    Source,
    StepRow,
    ThroughputEntry,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.allocation.estimator import renewed
from ullage.scheduling.prediction.knowledge import by_scope
from ullage.scheduling.prediction.rows import share_curve, solo_rows

Throughput = ThroughputEntry

DECLARED_CONFIDENCE: Final = 0.4
"""Below every measured one (not measured)."""
TYPICAL_CONFIDENCE: Final = 0.05


@dataclass(slots=True)
class Throughputs:
    """Speeds by class, computed once per snapshot."""

    snapshot: Snapshot
    _known: dict[tuple[object, ...], Mapping[str, Throughput]] = field(default_factory=dict)
    _by_class: dict[tuple[str, str], ProfileRecord] | None = None
    _scopes: dict[str, list[ProfileRecord]] | None = None
    _family_types: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Types on which a class of a family has a speed, by scope and family."""
    _typical: dict[tuple[str, str], Mapping[str, Throughput]] = field(default_factory=dict)
    """By scope of namespaces that learn from each other, and family."""

    def of(self, workload: WorkloadRecord) -> Mapping[str, Throughput]:
        """Steps per second by accelerator; equal workloads get the same mapping."""
        share = workload.gpu.share
        percent = share.min_percent if share is not None else WHOLE_PERCENT
        ref = workload.ref
        key = (
            ref.namespace,
            workload.profile_ref,
            workload.workload_class,
            workload.family,
            percent,
        )
        speeds = self._known.get(key)
        if speeds is None:
            speeds = self._known[key] = self._make(workload, percent)
        return speeds

    def _make(self, workload: WorkloadRecord, percent: int) -> Mapping[str, Throughput]:
        profiles = self.profiles_of(workload)
        whole: dict[str, Throughput] = {}
        for profile in reversed(profiles):
            whole |= speeds(profile)
        if not whole:
            whole |= self._typically(workload)
        if percent >= WHOLE_PERCENT:
            return whole
        return {name: _shared(profiles, entry, percent) for name, entry in whole.items()}

    def profiles_of(self, workload: WorkloadRecord) -> Sequence[ProfileRecord]:
        """Profiles of a workload: its class's own, then the named one."""
        if self._by_class is None:
            ranked = sorted(
                self.snapshot.profiles.values(),
                key=lambda profile: (len(profile.rows), profile.name),
            )
            self._by_class = {
                (profile.namespace, profile.workload_class): profile for profile in ranked
            }
        namespace = workload.ref.namespace
        own = self._by_class.get((namespace, workload.workload_class))
        named = (
            self.snapshot.profiles.get((namespace, workload.profile_ref))
            if workload.profile_ref
            else None
        )
        return [
            profile for profile in (own, named if named is not own else None) if profile is not None
        ]

    def family_ran(self, workload: WorkloadRecord, accelerator: str) -> bool:
        """True when a class of the workload's family, if it has one, has a speed on the type."""
        named = (family_of(profile) for profile in self.profiles_of(workload))
        family = workload.family or next((name for name in named if name), "")
        scope = self.snapshot.policy.knowledge.scope(workload.ref.namespace)
        if family and (scope, family) not in self._family_types:
            kin = (profile for profile in self._in_scope(scope) if family_of(profile) == family)
            self._family_types[scope, family] = frozenset(
                name for profile in kin for name in known(profile)
            )
        return not family or accelerator in self._family_types[scope, family]

    def _in_scope(self, scope: str) -> Sequence[ProfileRecord]:
        if self._scopes is None:
            self._scopes = by_scope(self.snapshot)
        return self._scopes.get(scope, [])

    def _typically(self, workload: WorkloadRecord) -> Mapping[str, Throughput]:
        """Typical speeds of the family, or of all classes where it is known on no two types."""
        family = workload.family
        scope = self.snapshot.policy.knowledge.scope(workload.ref.namespace)
        if (scope, family) not in self._typical:
            profiles = self._in_scope(scope)
            alike = [profile for profile in profiles if family and family_of(profile) == family]
            self._typical[scope, family] = typical(alike) or typical(profiles)
        return self._typical[scope, family]


def across_nodes(profiles: Iterable[ProfileRecord]) -> float | None:
    """Speed of a gang on several nodes against one node, 0 to 1; ``None`` = not declared."""
    parts = (profile.across_nodes for profile in profiles)
    return next((part for part in parts if part is not None), None)


def family_of(profile: ProfileRecord) -> str:
    """Model family of a profile's class, measured or declared."""
    return profile.status.family or profile.family


def speeds(profile: ProfileRecord) -> dict[str, Throughput]:
    """Speeds of a class by accelerator: the measured one, else the one of larger confidence."""
    by_type = known(profile)
    for entry in profile.status.throughput:
        current = by_type.get(entry.accelerator)
        if current is None or (
            entry.source is not Source.DECLARED and current.confidence < entry.confidence
        ):
            by_type[entry.accelerator] = entry
    return by_type


def bounded(steps_per_second: float) -> float:
    """A speed within the range of a profile: at most ``LARGEST``.

    Stored speeds are bounded already; a share curve or a ratio of types may exceed it.
    """
    return min(steps_per_second, LARGEST)


def known(profile: ProfileRecord) -> dict[str, Throughput]:
    """Measured speeds of a class, and declared ones where nothing was measured, by accelerator."""
    declared: dict[str, Throughput] = {}
    for name in sorted({row.device for row in profile.solo}):
        curve = share_curve([row for row in profile.solo if row.device == name])
        if curve is not None:
            declared[name] = Throughput(
                accelerator=name,
                steps_per_second=bounded(1 / curve.seconds(1.0)),
                source=Source.DECLARED,
                method=Method.DECLARED,
                confidence=DECLARED_CONFIDENCE,
            )
    measured = [entry for entry in profile.status.throughput if entry.source is Source.MEASURED]
    return declared | {
        measured_speed.accelerator: measured_speed
        for measured_speed in measured or measured_speeds((), profile.status.solo)
    }


def measured_speeds(rows: Iterable[StepRow], solo: Sequence[SoloEntry]) -> tuple[Throughput, ...]:
    """Speeds from windows alone, with weight one half for every new window; sorted by accelerator.

    A window at a part of the device counts as the whole device by the curve of its type. Types
    without windows keep the median, which only the table stores.

    Args:
        rows: Windows of the class, in any order.
        solo: Measured behaviour alone, by type and share.
    """
    by_device: dict[str, list[SoloEntry]] = {}
    for entry in solo:
        by_device.setdefault(entry.device, []).append(entry)
    windows: dict[str, list[StepRow]] = {}
    for row in rows:
        if not row.partners and not row.counterfactual and row.step_s > 0:
            windows.setdefault(row.accelerator, []).append(row)
    speeds: list[Throughput] = []
    for name, entries in sorted(by_device.items()):
        curve = share_curve(entries)
        if curve is None:
            continue
        value, alone = 0.0, sorted(windows.get(name, ()), key=lambda row: (row.at_s, row.id))
        for row in alone:
            rate = curve.seconds(row.share / WHOLE_PERCENT) / (row.step_s * curve.seconds(1.0))
            value = renewed(value, rate) if value else rate
        samples = len(alone) or sum(entry.samples for entry in entries)
        speeds.append(
            Throughput(
                accelerator=name,
                steps_per_second=bounded(value or 1 / curve.seconds(1.0)),
                source=Source.MEASURED,
                method=Method.WINDOWS,
                confidence=max(samples, 1) / (samples + 1),
                samples=samples,
            )
        )
    return tuple(speeds)


def remeasured(
    before: Sequence[Throughput], rows: Iterable[StepRow], solo: Sequence[SoloEntry]
) -> tuple[Throughput, ...]:
    """The measured speeds now, and the earlier ones of unmeasured types."""
    by_type = {entry.accelerator: entry for entry in before if entry.source is not Source.MEASURED}
    by_type |= {
        measured_speed.accelerator: measured_speed for measured_speed in measured_speeds(rows, solo)
    }
    return tuple(by_type[name] for name in sorted(by_type))


def typical(profiles: Sequence[ProfileRecord]) -> dict[str, Throughput]:
    """Typical speeds of a similar class: log speed = class + accelerator.

    Least squares, so that classes with few types do not bias the ratios of the others. Empty where
    no class is known on two types. Source: derived (two-way additive model).
    """
    rows = [known(profile) for profile in profiles]
    rows = [row for row in rows if len(row) > 1]
    names = sorted({name for row in rows for name in row})
    cells = [
        (at, names.index(name), math.log(entry.steps_per_second))
        for at, row in enumerate(rows)
        for name, entry in row.items()
        if entry.steps_per_second > 0
    ]
    if not cells:
        return {}
    design = np.zeros((len(cells), len(rows) + len(names)))
    for line, (at, column, _) in enumerate(cells):
        design[line, at] = design[line, len(rows) + column] = 1.0
    effects = np.linalg.lstsq(design, np.array([log for *_, log in cells]), rcond=None)[0]
    level = float(effects[: len(rows)].mean())
    return {
        name: Throughput(
            accelerator=name,
            steps_per_second=math.exp(level + float(effects[len(rows) + column])),
            source=Source.ESTIMATED,
            method=Method.TYPICAL,
            confidence=TYPICAL_CONFIDENCE,
            samples=sum(name in row for row in rows),
        )
        for column, name in enumerate(names)
    }


def _shared(profiles: Sequence[ProfileRecord], whole: Throughput, percent: int) -> Throughput:
    """The speed at a part of the device, by a curve measured there or elsewhere.

    Without any, speed is in proportion to the share: the conservative assumption.
    """
    part = percent / WHOLE_PERCENT
    for same in (True, False):
        for profile in profiles:
            devices = sorted({row.device for row in (*profile.solo, *profile.status.solo)})
            for device in devices:
                if same and device != whole.accelerator:
                    continue
                rows = solo_rows(profile, device)
                curve = share_curve(rows) if len(rows) > 1 else None
                if curve is not None:
                    return _times(whole, curve.seconds(1.0) / curve.seconds(part))
    return _times(whole, part)


def _times(throughput: Throughput, factor: float) -> Throughput:
    return replace(
        throughput,
        steps_per_second=throughput.steps_per_second * factor,
        low=None if throughput.low is None else throughput.low * factor,
        high=None if throughput.high is None else throughput.high * factor,
    )
