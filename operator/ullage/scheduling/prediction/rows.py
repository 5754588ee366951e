# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measured rows and class profiles of one accelerator type, as input of the admission engine.

The operator rebuilds its predictors from these after every restart, so they follow from the
snapshot alone, in a fixed order. ``None`` means not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.schedulingpolicy import Knowledge
from ullage.cluster.records.profile import ProfileRecord, SoloEntry, StepRow
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import ClassProfile, Fingerprint, Row, ShareCurve
from ullage.scheduling.prediction.knowledge import (
    class_of,
    is_shared,
    measured_only,
    named,
    partner_of,
)

NOTHING_SHARED: Final = Knowledge()


def rows_of(snapshot: Snapshot, accelerator: str) -> tuple[Row, ...]:
    """Every measured row of an accelerator that has a slowdown, oldest first, then by id.

    A row without a slowdown is compared with the profile's time alone on the whole device. Classes
    and families are cluster-wide keys.
    """
    knowledge = snapshot.policy.knowledge
    rows: list[Row] = []
    for profile in _in_order(snapshot):
        taught = measured_only(profile, knowledge)
        alone_s = solo_step_s(taught, accelerator)
        for row in taught.rows:
            if row.accelerator != accelerator:
                continue
            slowdown = row.slowdown or (row.step_s / alone_s if alone_s else 0.0)
            if slowdown:
                rows.append(_row(profile, row, slowdown, knowledge))
    return tuple(sorted(rows, key=lambda row: (row.at_s, row.id)))


def _row(profile: ProfileRecord, row: StepRow, slowdown: float, knowledge: Knowledge) -> Row:
    """Convert a row."""
    namespace = profile.namespace
    return Row(
        id=row.id,
        workload_class=class_of(profile, knowledge),
        family=named(profile.status.family or profile.family, namespace, knowledge),
        accelerator=row.accelerator,
        percent=row.share,
        partners=tuple(
            replace(
                partner, workload_class=partner_of(partner.workload_class, namespace, knowledge)
            )
            for partner in row.partners
        ),
        step_s=row.step_s,
        slowdown=slowdown,
        at_s=row.at_s,
        max_slowdown=row.max_slowdown,
        requests_per_s=row.requests_per_s,
        counterfactual=row.counterfactual,
        probation=row.probation,
    )


def class_profiles(snapshot: Snapshot, accelerator: str) -> dict[str, ClassProfile]:
    """The profile of every class on an accelerator, by the cluster-wide key of the class.

    Of several profiles of a class, the one with the most rows on the accelerator is used.
    Declarations fill gaps in their own namespace only. A class whose behaviour recently changed
    (``novel``) has no rows.
    """
    knowledge = snapshot.policy.knowledge
    profiles: dict[str, ClassProfile] = {}
    for profile in _in_order(snapshot):
        shared = is_shared(profile, knowledge)
        readable = measured_only(profile, knowledge) if shared else profile
        candidate = class_profile(readable, accelerator, knowledge)
        best = profiles.get(candidate.workload_class)
        if best is None or (candidate.rows, candidate.curve is not None) > (
            best.rows,
            best.curve is not None,
        ):
            profiles[candidate.workload_class] = candidate
    return profiles


def class_profile(
    profile: ProfileRecord, accelerator: str, knowledge: Knowledge = NOTHING_SHARED
) -> ClassProfile:
    """The class profile by one profile on an accelerator; declared rows fill gaps."""
    taught = measured_only(profile, knowledge)
    measured, rows = solo_rows(taught, accelerator), solo_rows(profile, accelerator)
    print_ = _fingerprint(measured)
    gaps = print_ == Fingerprint() or share_curve(measured) is None
    if print_ == Fingerprint():
        print_ = _fingerprint(rows)
    status = profile.status
    beside = sum(1 for row in taught.rows if row.accelerator == accelerator and row.partners)
    return ClassProfile(
        workload_class=class_of(profile, knowledge),
        family=named(status.family or profile.family, profile.namespace, knowledge),
        fingerprint=print_,
        curve=share_curve(rows),
        rows=0 if status.novel else beside,
        declared=gaps and len(rows) > len(measured),
    )


def _fingerprint(rows: Sequence[SoloEntry]) -> Fingerprint:
    """The fingerprint at the largest share."""
    return rows[-1].fingerprint if rows else Fingerprint()


def solo_rows(profile: ProfileRecord, accelerator: str) -> tuple[SoloEntry, ...]:
    """Rows alone on an accelerator by rising share; measured rows replace declared ones."""
    rows = {row.share: row for row in profile.solo if row.device == accelerator}
    rows |= {row.share: row for row in profile.status.solo if row.device == accelerator}
    return tuple(rows[share] for share in sorted(rows))


def solo_step_s(profile: ProfileRecord, accelerator: str) -> float:
    """Seconds of a step alone on the whole device, by the fitted curve; 0 = not known."""
    curve = share_curve(solo_rows(profile, accelerator))
    return curve.seconds(1.0) if curve else 0.0


def share_curve(rows: Sequence[SoloEntry]) -> ShareCurve | None:
    """``T(p) = a + b / p`` with a, b >= 0 by least squares over the rows that have a time.

    With a single share a = 0: wholly compute-bound, the conservative assumption. Source: derived.
    """
    points = [(WHOLE_PERCENT / row.share, row.step_s) for row in rows if row.step_s > 0]
    if not points:
        return None
    if len(points) == 1:
        return ShareCurve(fixed_s=0.0, scaled_s=points[0][1] / points[0][0])
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    fixed = mean_y - slope * mean_x
    if slope < 0:
        return ShareCurve(fixed_s=mean_y, scaled_s=0.0)
    if fixed < 0:
        through = sum(x * y for x, y in points) / sum(x * x for x, _ in points)
        return ShareCurve(fixed_s=0.0, scaled_s=through)
    return ShareCurve(fixed_s=fixed, scaled_s=slope)


def _in_order(snapshot: Snapshot) -> Iterable[ProfileRecord]:
    return (snapshot.profiles[key] for key in sorted(snapshot.profiles))
