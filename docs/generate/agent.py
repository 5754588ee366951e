# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings and metrics of the node agent, as :mod:`docs.generate.operator` has the operator's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import generate_latest

from docs.generate.facts import MetricFact, Setting, example_of, metric_facts, settings_of
from ullage.process.build_metrics import register_build
from ullage.process.metric_families import FiguresCollector
from ullage_node.dataio.watch import IoFigures
from ullage_node.faults import FaultFigures
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.lanes.metrics import LaneFigures, LaneTurns
from ullage_node.model.device_labels import DeviceRegistry
from ullage_node.mps.metrics import MpsFigures
from ullage_node.notices.watch import NoticeFigures
from ullage_node.settings import PREFIX, AgentSettings
from ullage_node.telemetry.metrics import HeldFigures, SampleFigures, TelemetryFigures
from ullage_node.web import Figures, Instruments

SOURCE: Final = "deviceplugin/ullage_node/settings.py"

FIGURES: Final[tuple[type[object], ...]] = (
    Figures,
    MpsFigures,
    LaneFigures,
    FaultFigures,
    HeldFigures,
    SampleFigures,
    TelemetryFigures,
    NoticeFigures,
    IoFigures,
)


def agent_metrics() -> list[MetricFact]:
    """Every metric of the agent and its guard."""
    registry = DeviceRegistry("node-a", tuple)
    register_build(registry, "node")
    Instruments(registry)
    GuardMetrics(registry)
    LaneTurns(registry)
    for figures in FIGURES:
        registry.register(FiguresCollector(partial(example_of, figures)))
    return metric_facts(generate_latest(registry).decode())


def agent_settings(root: Path) -> list[Setting]:
    """Every setting of the agent."""
    return settings_of(AgentSettings, PREFIX, root / SOURCE)
