# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent dies at each step between kubelet's question and its answer; the next one converges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from fakes.kubelet import StartRefused
from fakes.kubelet_node import CONTAINER, NodeRig
from ullage_node.agent import Agent


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[NodeRig]:
    async with NodeRig() as made:
        await made.start_agent()
        yield made


class Stop:
    """Reached at the step where the agent is to die; never returns."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def forever(self, *_: object) -> None:
        self.reached.set()
        await asyncio.Event().wait()


def at_the_list(agent: Agent, stop: Stop, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(agent.surroundings.lister, "list_slots", stop.forever)


def at_the_backend(agent: Agent, stop: Stop, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(agent._backend.driver), "prepare", stop.forever)


def before_the_checkpoint(agent: Agent, stop: Stop, patch: pytest.MonkeyPatch) -> None:
    object.__setattr__(agent.surroundings, "save", stop.forever)


def after_the_checkpoint(agent: Agent, stop: Stop, patch: pytest.MonkeyPatch) -> None:
    save = agent._saver.save

    async def save_and_stop() -> None:
        await save()
        await stop.forever()

    object.__setattr__(agent.surroundings, "save", save_and_stop)


@pytest.mark.parametrize(
    "step", [at_the_list, at_the_backend, before_the_checkpoint, after_the_checkpoint]
)
async def test_the_next_agent_starts_the_container_once_and_right(
    rig: NodeRig,
    step: Callable[[Agent, Stop, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = await rig.placed_pod(percent=45)
    stop = Stop()
    assert rig.agent is not None
    with monkeypatch.context() as patch:
        step(rig.agent, stop, patch)
        first = asyncio.create_task(rig.kubelet.start_container(pod, CONTAINER))
        await stop.reached.wait()
        await rig.kill_agent()
    with pytest.raises(StartRefused):
        await first
    agent = await rig.start_agent()
    made = await rig.start(pod)
    assert (made.env["ULLAGE_SLICE"], made.env["FAKE_SHARES"]) == (f"{pod.uid}_{CONTAINER}", "45")
    await rig.phase(pod, "Attached")
    assert agent.table.violations() == []
    assert len(agent.table.slots) == 1
    rig.remove_pod(pod)
    rig.unplace(pod)
    await rig.until(lambda: rig.slice_of(pod) is None)
    assert not list(rig.runtime.cdi_dir.iterdir())
