# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A container's page decides what an Event of its objective says, and not how many there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ullage_node.events import AgentEvent, Events
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import Windows
from ullage_node.slices.binder import BinderDependencies
from ullage_node.telemetry import station
from ullage_node.telemetry.station import MOST_TEXTS, Sources, Telemetry
from ullage_node.times import EVENT_QUIET_S


class Told:
    """Events as they are said."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def say(self, event: AgentEvent) -> bool:
        self.messages.append((event.subject.name, event.message))
        return True


def test_a_page_that_says_something_else_each_time_makes_few_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, told = [1000.0], Told()
    monkeypatch.setattr(station, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def binding(key: ContainerKey) -> SimpleNamespace:
        return SimpleNamespace(pod_namespace="team", pod_name=f"pod-of-{key.pod_uid}")

    around = SimpleNamespace(node="node-1", table=SimpleNamespace(binding=binding))
    sources = SimpleNamespace(around=cast(BinderDependencies, around), events=cast(Events, told))
    telemetry = Telemetry(cast(Sources, sources), cast(Windows, SimpleNamespace()))
    wild = ContainerKey(pod_uid="wild", container="main")
    plain = ContainerKey(pod_uid="plain", container="main")
    for n in range(100):
        telemetry._tell(wild, f"the page has no histogram (there are: name_{n})")
        now[0] += 1.0
    assert len(told.messages) == MOST_TEXTS
    telemetry._tell(plain, "no answer")
    assert told.messages[-1] == ("pod-of-plain", "latency objective not judged: no answer")
    telemetry._tell(wild, "")
    assert len(told.messages) == MOST_TEXTS + 1, "nothing is said when all is well"
    now[0] += EVENT_QUIET_S
    telemetry._tell(wild, "something new")
    assert told.messages[-1][0] == "pod-of-wild"
