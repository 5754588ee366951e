# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hook comes first on PYTHONPATH where the slice asks for it, and never replaces a value."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fakes.kubelet_backend import FakeDevices, a_device
from fakes.kubelet_node import NodeRig
from fakes.kubelet_runtime import Created

HOOK = "/run/ullage/python/ullage_run/autostep"
NAME = "PYTHONPATH"


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig(FakeDevices(devices=[a_device(0)])) as made:
        await made.start_agent()
        yield made


async def started(rig: NodeRig, *, inject: bool = True, **shown: Any) -> Created:
    pod = rig.a_pod()
    rig.place(pod, inject=inject)
    await rig.phase(pod, "Reserved")
    rig.show_pod(pod, **shown)
    await rig.kubelet.admit(pod)
    return await rig.start(pod)


async def test_the_hook_is_there_only_where_it_is_asked_for(rig: NodeRig) -> None:
    assert (await started(rig)).env[NAME] == HOOK
    assert NAME not in (await started(rig, inject=False)).env
    never = {"ullage.dev/inject": "Never"}
    assert NAME not in (await started(rig, labels=never)).env


@pytest.mark.parametrize(
    ("own", "whole"),
    [("/app:/lib", f"{HOOK}:/app:/lib"), ("", HOOK), (f"{HOOK}:/app", None)],
)
async def test_the_containers_own_path_follows(rig: NodeRig, own: str, whole: str | None) -> None:
    env = [{"name": NAME, "value": own}, {"name": "OTHER", "valueFrom": {"fieldRef": {}}}]
    assert (await started(rig, container={"env": env})).env.get(NAME) == whole
    assert rig.events("HookNotInjected") == []


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": NAME, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]},
        {"env": [{"name": NAME, "value": "$(HOME)/lib"}]},
        {"envFrom": [{"configMapRef": {"name": "a"}}]},
    ],
    ids=["reference", "expansion", "whole map"],
)
async def test_a_path_that_the_node_cannot_know_is_left_alone_and_told(
    rig: NodeRig, container: dict[str, object]
) -> None:
    assert NAME not in (await started(rig, container=container)).env
    await rig.until(lambda: rig.events("HookNotInjected"))
    (event,) = rig.events("HookNotInjected")
    assert "write PYTHONPATH with its value into the container's env" in event["message"]
