# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of sharing and learning: what was decided, predicted, seen, and how well it agrees.

As for the other metrics, families are made at scrape time from figures that are handed in. Labels
are types of devices, novelty groups, reasons: never a pod, a workload or a class of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ullage.metrics.histograms import admission_seconds, told


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """Model figures of one type of device; ``rung`` 0 = the utilisation sum, 3 = the richest."""

    rung: int
    rows: int
    version: int
    failing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFigures:
    """Everything about sharing and learning, gathered at scrape time."""

    decisions: Mapping[tuple[str, str, str], int]
    """By (decision, reason, group)."""
    admission_seconds: Histogram = field(default_factory=admission_seconds)
    predicted: Histogram
    observed: Histogram
    coverage: Mapping[str, float]
    """Part of the recent windows below the 90 % bound, by group."""
    error: float | None
    """Mean relative error of the recent windows."""
    violations: Mapping[str, int]
    """Windows above an objective, by cause."""
    probation_seconds: float
    unusable: Mapping[str, int]
    """Observations that stand in nodes' statuses and teach nothing, by reason."""
    profiles: int
    models: Mapping[str, ModelFigures]
    """By type of device."""
    lessons: Mapping[str, int]
    """By result."""
    learning_seconds: float


def sharing_metrics(figures: SharingFigures) -> Iterator[Metric]:
    """The families."""
    yield from _admission(figures)
    yield from _accuracy(figures)
    yield from _models(figures)


def _admission(figures: SharingFigures) -> Iterator[Metric]:
    decisions = CounterMetricFamily(
        "ullage_admission_decisions",
        "Workloads that were admitted, tried out or refused, each change once.",
        labels=["decision", "reason", "group"],
    )
    for labels, count in sorted(figures.decisions.items()):
        decisions.add_metric(list(labels), count)
    yield decisions
    yield from told(figures.admission_seconds)
    violations = CounterMetricFamily(
        "ullage_slo_violations",
        "Windows above the objective: by neighbours, by a trial, or by the tenant's own load.",
        labels=["cause"],
    )
    for cause, count in sorted(figures.violations.items()):
        violations.add_metric([cause], count)
    yield violations
    yield CounterMetricFamily(
        "ullage_probation_seconds",
        "Seconds that slices spent on trial.",
        value=figures.probation_seconds,
    )


def _accuracy(figures: SharingFigures) -> Iterator[Metric]:
    yield from told(figures.predicted)
    yield from told(figures.observed)
    coverage = GaugeMetricFamily(
        "ullage_prediction_coverage_ratio",
        "Part of the last 500 windows of a novelty group below the bound that 90 of 100 should be.",
        labels=["group"],
    )
    for group, ratio in sorted(figures.coverage.items()):
        coverage.add_metric([group], ratio)
    yield coverage
    error = GaugeMetricFamily(
        "ullage_profile_prediction_error_ratio",
        "Mean of |predicted - observed| / observed over the last 500 windows of each group.",
        labels=["field"],
    )
    if figures.error is not None:
        error.add_metric(["slowdown"], figures.error)
    yield error


def _models(figures: SharingFigures) -> Iterator[Metric]:
    for name, text, attribute in (
        (
            "ullage_model_rung",
            "Model in force: 0 utilisation sum, 1 prior, 2 prior and bias, 3 prior and process.",
            "rung",
        ),
        ("ullage_model_rows", "Observations that the model holds.", "rows"),
        ("ullage_model_version", "Version of the model.", "version"),
        ("ullage_model_failing", "Whether nothing new can be learned at the moment.", "failing"),
    ):
        family = GaugeMetricFamily(name, text, labels=["gpu_model"])
        for model, model_figures in sorted(figures.models.items()):
            family.add_metric([model], float(getattr(model_figures, attribute)))
        yield family
    lessons = CounterMetricFamily(
        "ullage_lessons", "Attempts to learn, in the background.", labels=["result"]
    )
    for result, count in sorted(figures.lessons.items()):
        lessons.add_metric([result], count)
    yield lessons
    yield CounterMetricFamily(
        "ullage_learning_seconds",
        "Work of the learner's own process.",
        value=figures.learning_seconds,
    )
    yield GaugeMetricFamily("ullage_profiles", "WorkloadProfiles.", value=figures.profiles)
    unusable = GaugeMetricFamily(
        "ullage_observations_unusable",
        "Observations in nodes' statuses that teach nothing.",
        labels=["reason"],
    )
    for reason, count in sorted(figures.unusable.items()):
        unusable.add_metric([reason], count)
    yield unusable
