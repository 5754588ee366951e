# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings and metrics of the node agent, as :mod:`docs.generate.operator` has the operator's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, get_type_hints

from prometheus_client import CollectorRegistry, generate_latest

from docs.generate.facts import (
    MetricFact,
    Setting,
    Texts,
    attribute_texts,
    example_of,
    meaning_of,
    metric_facts,
)
from ullage.metric_families import FiguresCollector
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.mps.metrics import MpsFigures
from ullage_node.notices.watch import NoticeFigures
from ullage_node.settings import PREFIX, Settings
from ullage_node.telemetry.metrics import MemoryFigures, SampleFigures, TelemetryFigures
from ullage_node.web import Figures, Instruments

SOURCE: Final = "deviceplugin/ullage_node/settings.py"
WORDS: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Path: "path",
    str: "text",
}

FIGURES: Final[tuple[type[object], ...]] = (
    Figures,
    MpsFigures,
    MemoryFigures,
    SampleFigures,
    TelemetryFigures,
    NoticeFigures,
)


def agent_metrics() -> list[MetricFact]:
    """Every metric of the agent and its guard."""
    registry = CollectorRegistry(auto_describe=False)
    Instruments(registry)
    GuardMetrics(registry)
    for figures in FIGURES:
        registry.register(FiguresCollector(partial(example_of, figures)))
    return metric_facts(generate_latest(registry).decode())


def agent_settings(root: Path) -> list[Setting]:
    """Every setting of the agent, in the order of its code.

    Raises:
        FactsMissing: a field has no docstring.
    """
    return list(_settings(Settings, PREFIX, attribute_texts(root / SOURCE)))


def _settings(owner: type, prefix: str, texts: Texts) -> Iterator[Setting]:
    assert is_dataclass(owner)
    hints = get_type_hints(owner)
    for item in fields(owner):
        hint = hints[item.name]
        name = prefix + item.name.upper()
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _settings(hint, f"{name}_", texts)
            continue
        yield Setting(
            variable=name,
            kind=WORDS.get(hint, "one of"),
            choices=[member.value for member in hint] if issubclass(hint, StrEnum) else [],
            default=_default(item),
            meaning=meaning_of(texts, owner.__name__, item.name),
        )


def _default(item: Field[object]) -> str | None:
    """The default as it would stand in the environment; None = the variable is required."""
    if item.default is MISSING:
        return None
    return str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
