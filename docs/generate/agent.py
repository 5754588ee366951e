# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings and metrics of the node agent, as :mod:`docs.generate.operator` has the operator's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, get_type_hints

from prometheus_client import CollectorRegistry, generate_latest

from docs.generate.facts import (
    MetricFact,
    Setting,
    Texts,
    attribute_texts,
    meaning_of,
    metric_facts,
)
from ullage.api.contract import (
    Backend,
    Health,
    MpsState,
    MpsStatus,
    ObservedDevice,
    Reason,
)
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.model.samples import DeviceSample, Metric
from ullage_node.mps.metrics import MpsCollector
from ullage_node.notices.metrics import NoticeCollector
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import PREFIX, NoticeSettings, Settings
from ullage_node.telemetry.metrics import (
    DeviceCollector,
    MemoryCollector,
    MemoryFigures,
    TelemetryCollector,
    TelemetryFigures,
)
from ullage_node.web import AgentCollector, Figures, Instruments

SOURCE: Final = "deviceplugin/ullage_node/settings.py"
DEVICE: Final = ObservedDevice(
    uuid="GPU-0",
    model="example",
    product_name="example",
    memory_mib=1,
    contexts=1,
    modes=(),
    health=Health.HEALTHY,
    backend=Backend.EXCLUSIVE,
)
WORDS: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Path: "path",
    str: "text",
}


def agent_metrics() -> list[MetricFact]:
    """Every metric of the agent and its guard."""
    registry = CollectorRegistry(auto_describe=False)
    Instruments(registry)
    GuardMetrics(registry)
    figures = Figures(
        slots=Counter(free=1),
        refusals=Counter({Reason.SLOT_UNKNOWN: 1}),
        registrations=1,
        devices=(DEVICE,),
        status_writes=1,
        status_failures=0,
        events_dropped=0,
        records_invalid=0,
        records_uncapped=0,
        task_failures={"observe": 0},
        unreadable={"Pod": 0},
    )
    registry.register(AgentCollector(lambda: figures))
    memory = MemoryFigures(devices=(DEVICE,), bindings=(), attachments={})
    registry.register(MemoryCollector(lambda: memory))
    shared = replace(DEVICE, mps=MpsStatus(protocol=2, state=MpsState.ACTIVE))
    registry.register(MpsCollector(lambda: (shared,), {DEVICE.uuid: 0}, {"done": 0}))
    sample = DeviceSample(
        uuid=DEVICE.uuid,
        at_s=0.0,
        ratios={Metric.SM: 0.5},
        busy=1.0,
        clock_ratio=1.0,
        power_milliwatts=1,
    )
    registry.register(DeviceCollector(lambda: (sample,)))
    counts = TelemetryFigures(
        pages=0, page_failures=0, unmeasured=0, stretches=0, observations=0, left_out={"same": 0}
    )
    registry.register(TelemetryCollector(lambda: counts))
    notices = NoticeWatch(NoticeSettings())
    notices.heard["EC2", "Terminate"] = 1
    registry.register(NoticeCollector(notices))
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
