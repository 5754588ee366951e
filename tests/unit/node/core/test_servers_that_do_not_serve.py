# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A device whose MPS server does not serve is given to no one, at once, and alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.kubelet_backend import FakeDevices, a_device
from ullage.api.devices import Backend, Health, MpsState, MpsStatus, ObservedDevice
from ullage.api.reasons import Reason
from ullage_node.device_watch import DeviceWatch
from ullage_node.health import HealthTracker
from ullage_node.kubelet.registrar import Registration
from ullage_node.settings import PeriodSettings
from ullage_node.status import NodeFacts, judge


def shared(number: int, state: MpsState = MpsState.ACTIVE, contexts: int = 2) -> ObservedDevice:
    mps = MpsStatus(protocol=2, state=state, contexts=contexts, context_limit=48)
    return replace(a_device(number, contexts=44), backend=Backend.MPS2, mps=mps)


class Watched:
    def __init__(self) -> None:
        self.devices = FakeDevices(devices=[shared(0), shared(1)])
        self.watch = DeviceWatch(self.devices, self.devices, HealthTracker(30.0), PeriodSettings())
        self.now = 0.0

    async def round(self) -> tuple[str, ...]:
        """One probe; answers the devices that turned."""
        self.now += 5
        return tuple(change.uuid for change in await self.watch.run_once(now=self.now, wall=0.0))

    def turn(self, state: MpsState) -> None:
        self.devices.devices[0] = shared(0, state)
        self.devices.unshared = {} if state is MpsState.ACTIVE else {"gpu-0": f"is {state.value}"}


@pytest.mark.parametrize("state", [MpsState.FAULT, MpsState.DOWN, MpsState.UNKNOWN])
async def test_it_is_refused_within_one_probe_and_trusted_within_one(state: MpsState) -> None:
    watched = Watched()
    assert await watched.round() == ()
    watched.turn(state)
    assert await watched.round() == ("gpu-0",)
    first, second = watched.watch.devices(8)
    assert first.refusal is not None
    assert first.refusal.reason is Reason.MPS_NOT_READY
    assert state.value in first.refusal.message
    assert second.refusal is None
    assert [one.health for one in watched.watch.observed] == [Health.UNHEALTHY, Health.HEALTHY]
    assert watched.watch.faults == {"gpu-0": 1}
    watched.turn(MpsState.ACTIVE)
    assert await watched.round() == ("gpu-0",)
    assert watched.watch.devices(8)[0].refusal is None


async def test_a_server_that_starts_refuses_no_reservation() -> None:
    watched = Watched()
    watched.turn(MpsState.STARTING)
    assert await watched.round() == ()


async def test_contexts_and_their_limit_reach_the_book() -> None:
    watched = Watched()
    await watched.round()
    device = watched.watch.devices(8)[0]
    assert (device.contexts, device.context_limit, device.contexts_used) == (8, 44, 2)


def test_what_is_not_shared_stands_in_a_condition_with_its_reason() -> None:
    registration = Registration(registered=True)
    facts = NodeFacts(registration=registration, unshared={"GPU-1": "no control program"})
    (found,) = [one for one in judge(facts) if one.type == "Sharing"]
    assert (found.status, found.message) == (False, "GPU-1: no control program")
    assert not [one for one in judge(NodeFacts(registration=registration)) if one.type == "Sharing"]
