# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.lanes_rig import LaneRig, eventually, hello, program
from ullage.api.lanes import Acquire, Done, Empty, Grant, InLane, LaneRefusal, Refused, Release
from ullage_node.lanes.reports import StepFault


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LaneRig]:
    """A device of 500 MiB: two jobs of 100 + 300 MiB share one lane on it."""
    made = LaneRig(root=tmp_path, memory_mib=500)
    yield made
    await made.close()


async def both(rig: LaneRig) -> tuple[Path, Path]:
    """Two containers that may each have 400 MiB of the 500 MiB."""
    first = await rig.hold("a", 100, 300)
    return first, await rig.hold("b", 100, 300)


@pytest.mark.slow
async def test_steps_of_a_lane_never_overlap(rig: LaneRig) -> None:
    first, second = await both(rig)
    async with program(first, steps=40) as one, program(second, steps=40) as two:
        spans = [*await one.spans(), *await two.spans()]
    assert len(spans) == 80
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


async def test_a_killed_holder_frees_its_lane_and_its_memory(rig: LaneRig) -> None:
    first, second = await both(rig)
    async with program(first, seconds=60) as holder:
        await holder.until("begin")
        assert rig.holder_of("a") == "a"
        async with program(second, steps=5) as other:
            await other.until("ready")
            holder.process.send_signal(signal.SIGKILL)
            assert len(await other.spans()) == 5


async def test_a_stopped_holder_keeps_its_lane_and_is_reported(rig: LaneRig) -> None:
    first, second = await both(rig)
    async with program(first, seconds=60) as holder:
        await holder.until("begin")
        lanes = rig.server.devices["gpu"]
        os.kill(holder.process.pid, signal.SIGSTOP)
        wire = await rig.wire(second)
        await wire.say(hello("b"))
        await eventually(lambda: lanes.jobs["b"].session == "b")
        lanes.tick(lanes.table._now_s + 10_000)
        rig.server.tick()
        assert rig.holder_of("a") == "a"
        assert [(one.job, one.fault) for one in rig.reports] == [("a", StepFault.STALLED)]


async def test_a_process_that_closes_its_socket_still_owns_its_memory(rig: LaneRig) -> None:
    first, second = await both(rig)
    one = await rig.wire(first)
    await one.say(hello("a"), Acquire())
    assert isinstance(await one.hear(), InLane)
    assert isinstance(await one.hear(), Grant)
    await one.close()
    lanes = rig.server.devices["gpu"]
    await eventually(lambda: not lanes.jobs["a"].connected)
    two = await rig.wire(second)
    await two.say(hello("b"))
    other = await rig.wire(first)
    await other.say(hello("c"))
    refused = await other.hear()
    assert isinstance(refused, Refused)
    assert refused.reason is LaneRefusal.BUSY
    assert rig.holder_of("a") == "a"


@pytest.mark.slow
async def test_an_agent_restarted_in_a_step_grants_nothing_twice(rig: LaneRig) -> None:
    first, second = await both(rig)
    async with program(first, steps=30) as one, program(second, steps=30) as two:
        await one.until("begin")
        for _ in range(5):
            await asyncio.sleep(0.05)
            await rig.restart()
        await one.until("end")
        spans = [*await one.spans(), *await two.spans()]
    assert len(spans) == 59
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


async def test_a_lease_is_announced_again_after_a_restart(rig: LaneRig) -> None:
    first, second = await both(rig)
    one, two = await rig.wire(first), await rig.wire(second)
    await one.say(hello("a"), Acquire())
    await one.hear()
    grant = await one.hear()
    assert isinstance(grant, Grant)
    await two.say(hello("b"), Acquire())
    await eventually(lambda: rig.server.devices["gpu"].jobs["b"].session == "b")
    await rig.restart()
    again = await rig.wire(second)
    await again.say(hello("b"), Acquire())
    assert not isinstance(await again.hear(), Grant)
    assert await again.silent()
    back = await rig.wire(first)
    await back.say(hello("a", lease=grant.lease))
    placed = await back.hear()
    assert isinstance(placed, InLane)
    assert placed.lease == grant.lease
    await back.say(Release(lease=grant.lease))
    assert isinstance(await back.hear(), Done)


async def test_memory_that_is_kept_is_asked_back_before_another_may_launch(rig: LaneRig) -> None:
    first, second = await both(rig)
    one, two = await rig.wire(first), await rig.wire(second)
    await one.say(hello("a", caches=True))
    await one.hear()
    await two.say(hello("b"))
    await two.hear()
    await one.say(Acquire())
    grant = await one.hear()
    while not isinstance(grant, Grant):
        grant = await one.hear()
    await one.say(Release(lease=grant.lease))
    done = await one.hear()
    assert isinstance(done, Done)
    assert done.kept
    await two.say(Acquire())
    assert await one.hear() == Empty(lease=grant.lease)
    assert await two.silent()
    await one.say(Release(lease=grant.lease, emptied=True))
    assert isinstance(await one.hear(), Done)
    granted = await two.hear()
    assert isinstance(granted, Grant)
