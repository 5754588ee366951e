# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the next agent would not know of is not granted: a full disk, and a restart."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest

from fakes.lanes_rig import LaneRig, eventually, hello
from ullage.api.lanes import Acquire, Done, Grant, InLane, Refused, Release
from ullage_node.lanes import saved
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.reports import StepFault
from ullage_node.lanes.saved import SavedLanes
from ullage_node.times import LANE_TIMES_AGE_S

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LaneRig]:
    made = LaneRig(root=tmp_path, memory_mib=500)
    yield made
    await made.close()


def full() -> AbstractContextManager[object]:
    """No file can be made; those that are there take what fits into them."""
    return patch.object(saved, "write_whole", side_effect=FULL)


async def test_a_lane_is_not_granted_twice_after_a_full_disk_and_a_restart(rig: LaneRig) -> None:
    first, second = await rig.hold("a", 100, 300), await rig.hold("b", 100, 300)
    with full():
        one = await rig.wire(first)
        await one.say(hello("a"), Acquire())
        assert await one.silent(), "it would hold a lane that the next agent gives away"
        await rig.restart()
        two = await rig.wire(second)
        await two.say(hello("b"), Acquire())
        assert await two.silent()
    rig.server.tick()
    assert isinstance(await two.hear(), InLane)
    grant = await two.hear()
    assert isinstance(grant, Grant)
    again = await rig.wire(first)
    await again.say(hello("a"), Acquire())
    assert isinstance(await again.hear(), InLane)
    assert await again.silent(), "the lane is in use"
    await two.say(Release(lease=grant.lease))
    assert isinstance(await again.hear(), Grant)


async def test_who_waits_for_the_disk_is_told_why_and_refusals_go_on(rig: LaneRig) -> None:
    path = await rig.hold("a", 100, 300)
    with full():
        wire = await rig.wire(path)
        await wire.say(Acquire())
        assert isinstance(await wire.hear(), Refused)
        await wire.say(hello("a"))
        await eventually(lambda: bool(rig.reports))
        for _ in range(5):
            rig.server.tick()
        (report,) = rig.reports
        assert (report.job, report.fault) == ("a", StepFault.UNKEPT)
        assert FULL.strerror in report.message
        assert FULL.strerror in rig.server.unkept("gpu")
    rig.server.tick()
    assert isinstance(await wire.hear(), InLane)
    assert rig.server.unkept("gpu") == ""


async def test_a_grant_that_waited_and_was_let_go_is_not_told(rig: LaneRig) -> None:
    first, second = await rig.hold("a", 100, 300), await rig.hold("b", 100, 300)
    one, two = await rig.wire(first), await rig.wire(second)
    await one.say(hello("a"))
    await two.say(hello("b"))
    assert isinstance(await one.hear(), InLane)
    assert isinstance(await two.hear(), InLane)
    with full(), patch.object(saved, "_write_page", side_effect=FULL):
        await one.say(Acquire())
        await eventually(lambda: rig.server.unkept("gpu") != "")
        await one.say(hello("a"))  # of the same process: it holds nothing
        await two.say(Acquire())
        await eventually(lambda: rig.holder_of("b") == "b")
    rig.server.tick()
    assert isinstance(await one.hear(), InLane)
    assert await one.silent()
    assert isinstance(await two.hear(), Grant)


async def test_steps_go_on_where_only_their_times_cannot_be_written(rig: LaneRig) -> None:
    path = await rig.hold("a", 100, 300)
    wire = await rig.wire(path)
    await wire.say(hello("a"))
    assert isinstance(await wire.hear(), InLane)
    with full(), patch.object(saved, "LANE_TIMES_AGE_S", -1.0):
        for _ in range(3):
            await wire.say(Acquire())
            grant = await wire.hear()
            assert isinstance(grant, Grant)
            await wire.say(Release(lease=grant.lease))
            assert isinstance(await wire.hear(), Done)


def test_a_part_of_a_page_is_no_page(tmp_path: Path) -> None:
    files, lanes = SavedLanes(tmp_path), DeviceLanes(capacity_mib=500, send=lambda *_: None)
    lanes.hold(LaneMember(job="a", memory_mib=400), 0.0)
    files.keep("gpu", lanes, 0.0)
    with patch.object(os, "pwrite", return_value=17), pytest.raises(OSError, match="a part"):
        files.keep("gpu", lanes, LANE_TIMES_AGE_S / 2)


@pytest.mark.parametrize("name", ["gpu.json", "gpu.leases"])
def test_a_file_that_cannot_be_read_now_is_not_taken_for_none(tmp_path: Path, name: str) -> None:
    """Else the device would begin without the steps that run."""
    files, lanes = SavedLanes(tmp_path), DeviceLanes(capacity_mib=500, send=lambda *_: None)
    lanes.hold(LaneMember(job="a", memory_mib=400), 0.0)
    files.keep("gpu", lanes, 0.0)
    read = saved.read_bounded

    def without_descriptors(path: Path, most: int) -> bytes:
        if path.name == name:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(path, most)

    short = patch.object(saved, "read_bounded", without_descriptors)
    with short, pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        files.read("gpu")
    assert files.read("gpu") is not None
