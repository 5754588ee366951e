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

from docs.generate.facts import (
    MetricFact,
    Setting,
    attribute_texts,
    example_of,
    meaning_of,
    metric_facts,
)
from ullage.app.settings import SECTIONS, Settings, variables
from ullage.metrics.collector import OperatorCollector, OperatorFigures, SectionGuard

SOURCE: Final = "operator/ullage/app/settings.py"
WORDS: Final = {str: "text", int: "whole number", float: "number"}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def operator_settings(root: Path) -> list[Setting]:
    """Every setting of the operator, in the order of its code.

    Raises:
        FactsMissing: a field has no docstring.
    """
    texts = attribute_texts(root / SOURCE)
    rows: list[Setting] = []
    for variable, (section, field, kind) in variables().items():
        owner = SECTIONS[section] if section else Settings
        levels = LOG_LEVELS if field == "log_level" else ()
        rows.append(
            Setting(
                variable=variable,
                kind="one of" if levels else WORDS[kind],
                choices=levels,
                default=str(getattr(owner(), field)),
                meaning=meaning_of(texts, owner.__name__, field),
            )
        )
    return rows


def operator_metrics() -> list[MetricFact]:
    """Every metric of the operator."""
    registry = CollectorRegistry(auto_describe=False)
    guard = SectionGuard()
    guard.failures["cost"] = 1
    registry.register(OperatorCollector(_example, guard))
    return metric_facts(generate_latest(registry).decode())


def _example() -> OperatorFigures:
    """One of everything, so that every family shows its labels."""
    figures = example_of(OperatorFigures)
    for slowdowns in (figures.sharing.predicted, figures.sharing.observed):
        slowdowns.labels("emulated")
    return figures
