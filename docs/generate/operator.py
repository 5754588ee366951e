# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings and metrics of the operator.

Metrics are read from the real collectors over one example of everything, in the words a Prometheus
sees.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from docs.generate.facts import MetricFact, Setting, example_of, metric_facts, settings_of
from ullage.app.settings import PREFIX, Settings
from ullage.metrics.collector import OperatorCollector, OperatorFigures, SectionGuard
from ullage.process.build_metrics import register_build

SOURCE: Final = "operator/ullage/app/settings.py"


def operator_settings(root: Path) -> list[Setting]:
    """Every setting of the operator."""
    return settings_of(Settings, PREFIX, root / SOURCE)


def operator_metrics() -> list[MetricFact]:
    """Every metric of the operator."""
    registry = CollectorRegistry(auto_describe=False)
    guard = SectionGuard()
    guard.failures["cost"] = 1
    registry.register(OperatorCollector(_example, guard))
    register_build(registry, "operator")
    return metric_facts(generate_latest(registry).decode())


def _example() -> OperatorFigures:
    """One of everything, so that every family shows its labels."""
    figures = example_of(OperatorFigures)
    for slowdowns in (figures.sharing.predicted, figures.sharing.observed):
        slowdowns.labels("emulated")
    figures.sharing.wait_seconds.labels("team-a", "NoCapacity")
    return figures
