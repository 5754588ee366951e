# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of sharing and learning: decisions, predictions, observations, and their agreement.

Labels are types of devices, novelty groups, reasons: never a pod, a workload or a class of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import Histogram

from ullage.metrics.histograms import (
    admission_seconds,
    observed_slowdown,
    predicted_slowdown,
    wait_seconds,
)
from ullage.process.metric_families import counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """Figures of the models, by type of device."""

    rung: Mapping[str, int] = gauge(
        "ullage_model_rung",
        "Model in force: 0 utilisation sum, 1 prior, 2 prior and bias, 3 prior and process.",
        "accelerator",
    )
    rows: Mapping[str, int] = gauge(
        "ullage_model_rows", "Observations that the model holds.", "accelerator"
    )
    version: Mapping[str, int] = gauge(
        "ullage_model_version", "Version of the model.", "accelerator"
    )
    failing: Mapping[str, bool] = gauge(
        "ullage_model_failing",
        "Whether nothing new can be learned at the moment.",
        "accelerator",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFigures:
    """All figures of sharing and learning, gathered at scrape time."""

    decisions: Mapping[tuple[str, str, str], int] = counter(
        "ullage_admission_decisions",
        "Workloads that were admitted, tried out or refused, each change once.",
        "decision",
        "reason",
        "group",
    )
    admission_seconds: Histogram = field(default_factory=admission_seconds)
    violations: Mapping[str, int] = counter(
        "ullage_slo_violations",
        "Windows above the objective: by neighbours, by a trial, or by the tenant's own load.",
        "cause",
    )
    windows: Mapping[tuple[str, str], int] = counter(
        "ullage_slo_windows",
        "Windows that were judged against an objective, by namespace of the workload; result is"
        " kept or broken.",
        "workload_namespace",
        "result",
    )
    wait_seconds: Histogram = field(default_factory=wait_seconds)
    probation_seconds: float = counter(
        "ullage_probation_seconds", "Seconds that slices spent on trial."
    )
    predicted: Histogram = field(default_factory=predicted_slowdown)
    observed: Histogram = field(default_factory=observed_slowdown)
    coverage: Mapping[str, float] = gauge(
        "ullage_prediction_coverage_ratio",
        "Part of the last 500 windows of a novelty group below the bound that 90 of 100 should be.",
        "group",
    )
    error: Mapping[str, float] = gauge(
        "ullage_profile_prediction_error_ratio",
        "Mean of |predicted - observed| / observed over the last 500 windows of each group.",
        "field",
    )
    models: ModelFigures = field(default_factory=ModelFigures)
    lessons: Mapping[str, int] = counter(
        "ullage_lessons", "Attempts to learn, in the background.", "result"
    )
    learning_seconds: float = counter(
        "ullage_learning_seconds", "Work of the learner's own process."
    )
    profiles: int = gauge("ullage_profiles", "WorkloadProfiles.")
    isolated: int = gauge(
        "ullage_isolated_classes",
        "Classes that share devices with themselves alone, because their programs faulted one.",
    )
    class_faults: int = counter(
        "ullage_class_faults", "Faults of devices that were charged to a class of work."
    )
    unusable: Mapping[str, int] = gauge(
        "ullage_observations_unusable",
        "Observations in nodes' statuses that teach nothing.",
        "reason",
    )
