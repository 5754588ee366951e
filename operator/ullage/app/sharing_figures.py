# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Collects the metrics of sharing and learning from their sources; keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.app.fit_schedule import FitState
from ullage.app.learner import Learner
from ullage.app.outcomes import Outcomes
from ullage.engines.admission.records import Rung
from ullage.metrics.sharing import ModelFigures, SharingFigures

_RUNGS: Final = tuple(Rung)


def sharing_figures(
    outcomes: Outcomes, learner: Learner, *, profiles: int, unusable: Mapping[str, int]
) -> SharingFigures:
    """The figures as of now."""
    stats = learner.stats
    wild = {"NotBelieved": sum(sum(rows.values()) for rows in learner.refused.values())}
    return SharingFigures(
        decisions=outcomes.decisions,
        admission_seconds=outcomes.admission_seconds,
        predicted=outcomes.predicted,
        observed=outcomes.observed,
        coverage=outcomes.coverage(),
        error=outcomes.error(),
        violations=outcomes.violations,
        probation_seconds=outcomes.probation_seconds,
        unusable={reason: count for reason, count in {**unusable, **wild}.items() if count},
        profiles=profiles,
        models={name: _model(course) for name, course in learner.courses.items()},
        lessons={
            "done": stats.lessons,
            "late": stats.late,
            "crashed": stats.crashes,
            "refused": stats.refused,
        },
        learning_seconds=stats.seconds,
    )


def _model(course: FitState) -> ModelFigures:
    model = course.model
    rungs = model.rungs.values() if model is not None else ()
    return ModelFigures(
        rung=max((_RUNGS.index(rung) for rung in rungs), default=0),
        rows=model.rows if model is not None else 0,
        version=model.version if model is not None else 0,
        failing=bool(course.error),
    )
