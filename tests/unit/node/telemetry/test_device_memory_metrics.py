# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fakes.device_rigs import a_binding
from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.process.build_metrics import register_build
from ullage.process.metric_families import FiguresCollector
from ullage_node.model.device_labels import DeviceRegistry
from ullage_node.model.devices import Attachment, AttachState
from ullage_node.telemetry.metrics import held_figures

MIB = 1 << 20


def a_device(uuid: str) -> ObservedDevice:
    return ObservedDevice(
        uuid=uuid,
        model="emulated",
        product_name="emulated",
        memory_mib=8192,
        contexts=8,
        modes=(GPUMode.EXCLUSIVE,),
        health=Health.HEALTHY,
        backend=Backend.EMULATED,
    )


class Agent:
    """The state that the collector reads."""

    def __init__(self) -> None:
        one, two = a_binding("a", percent=40), a_binding("a", "b", percent=50)
        self.devices = (a_device("a"), a_device("b"), a_device("c"))
        self.bindings = (one, two, a_binding("b", percent=25))
        self.attachments = {
            one.key: Attachment(state=AttachState.ENFORCED, memory_used_mib=100),
            two.key: Attachment(state=AttachState.ENFORCED, memory_used_mib=60),
        }
        self.registry = CollectorRegistry()
        self.registry.register(
            FiguresCollector(lambda: held_figures(self.devices, self.bindings, self.attachments))
        )

    def scrape(self) -> dict[tuple[str, ...], float]:
        text = generate_latest(self.registry).decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def test_memory_by_device_and_kind() -> None:
    seen = Agent().scrape()
    name = "ullage_device_memory_bytes"
    assert seen[name, "a", "total"] == 8192 * MIB
    assert seen[name, "a", "reserved"] == 1024 * MIB
    assert seen[name, "b", "reserved"] == 1024 * MIB
    assert seen[name, "a", "used"] == 130 * MIB
    assert seen[name, "b", "used"] == 30 * MIB
    assert seen[name, "c", "used"] == seen[name, "c", "reserved"] == 0


def test_what_is_granted_of_each_device() -> None:
    seen = Agent().scrape()
    granted = {key[1]: seen[key] for key in seen if key[0] == "ullage_device_granted_ratio"}
    assert granted == {"a": 0.9, "b": 0.75, "c": 0.0}


def test_headroom_is_what_can_still_be_granted() -> None:
    agent = Agent()
    agent.devices = (*agent.devices[:2], replace(agent.devices[2], health=Health.UNHEALTHY))
    seen = agent.scrape()
    headroom = {key[1]: seen[key] for key in seen if key[0] == "ullage_device_headroom_ratio"}
    assert headroom == {"a": pytest.approx(0.1), "b": 0.25, "c": 0.0}


def test_devices_say_where_they_are_and_other_metrics_do_not() -> None:
    agent = Agent()
    devices = (replace(agent.devices[0], index=3), agent.devices[1])
    registry = DeviceRegistry("node-a", lambda: devices)
    registry.register(
        FiguresCollector(lambda: held_figures(devices, agent.bindings, agent.attachments))
    )
    register_build(registry, "node")
    samples = [
        sample
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    ]
    places = {
        sample.labels["UUID"]: (sample.labels["gpu"], sample.labels["node"])
        for sample in samples
        if "UUID" in sample.labels
    }
    assert places == {"a": ("3", "node-a"), "b": ("", "node-a")}
    others = [sample.labels for sample in samples if "UUID" not in sample.labels]
    assert others
    assert not any({"gpu", "node"} & labels.keys() for labels in others)


def test_a_scrape_shows_the_state_of_that_moment_and_no_label_outlives_its_device() -> None:
    agent = Agent()
    agent.scrape()
    agent.devices, agent.bindings, agent.attachments = (a_device("a"),), (), {}
    seen = agent.scrape()
    assert seen["ullage_device_memory_bytes", "a", "used"] == 0
    assert not [key for key in seen if "b" in key or "c" in key]


def test_no_label_names_a_pod() -> None:
    agent = Agent()
    text = generate_latest(agent.registry).decode()
    assert not any(b.key.pod_uid in text or b.pod_name in text for b in agent.bindings)
