# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ullage_node.kubelet.slot_board import DeviceRoom, SlotBoard, offered_slots


def room(sharers: int = 4, used: int = 0, *, healthy: bool = True) -> DeviceRoom:
    return DeviceRoom(sharers=sharers, used=used, healthy=healthy)


def free(offered: Mapping[str, bool], in_use: set[str]) -> int:
    return sum(healthy for slot, healthy in offered.items() if slot not in in_use)


def test_one_slot_per_sharer() -> None:
    offered = offered_slots([room(), room(2)], ())
    assert list(offered) == [f"slot-{number:02d}" for number in range(6)]
    assert all(offered.values())


def test_a_bad_device_takes_away_only_free_slots() -> None:
    in_use = {"slot-05", "slot-06"}
    offered = offered_slots([room(used=2, healthy=False), room()], in_use)
    assert offered["slot-05"]
    assert offered["slot-06"]
    assert free(offered, in_use) == 4


def test_a_slot_that_kubelet_gave_away_counts_before_it_is_bound() -> None:
    in_use = {"slot-00", "slot-01"}
    assert free(offered_slots([room(healthy=False), room()], in_use), in_use) == 2


def test_a_slot_in_use_stays_when_its_device_is_gone() -> None:
    assert offered_slots([], {"slot-09"}) == {"slot-09": True}


rooms = st.lists(
    st.tuples(st.integers(1, 8), st.integers(0, 8), st.booleans()).map(
        lambda made: room(made[0], min(made[1], made[0]), healthy=made[2])
    ),
    max_size=6,
)


@given(rooms=rooms, pending=st.integers(0, 3))
def test_free_slots_never_exceed_the_room_of_healthy_devices(
    rooms: list[DeviceRoom], pending: int
) -> None:
    bound = sum(part.used for part in rooms)
    total = sum(part.sharers for part in rooms)
    in_use = {f"slot-{number:02d}" for number in range(min(bound + pending, total))}
    offered = offered_slots(rooms, in_use)
    left = sum(part.sharers - part.used for part in rooms if part.healthy)
    assert all(offered[slot] for slot in in_use)
    assert free(offered, in_use) <= max(0, left - (len(in_use) - bound))
    assert set(offered) >= in_use


async def test_every_listener_hears_the_list_now_and_after_each_change() -> None:
    board = SlotBoard()
    board.publish({"slot-00": True})
    heard: list[list[Mapping[str, bool]]] = [[], []]

    async def listen(into: list[Mapping[str, bool]]) -> None:
        into.extend([frame async for frame in board.frames()])

    async with asyncio.TaskGroup() as group:
        for into in heard:
            group.create_task(listen(into))
        await asyncio.sleep(0)
        assert not board.publish({"slot-00": True})
        assert board.publish({"slot-00": False})
        await asyncio.sleep(0)
        board.close()
    assert heard == [[{"slot-00": True}, {"slot-00": False}]] * 2


async def test_a_closed_board_ends_new_streams_until_it_opens() -> None:
    board = SlotBoard()
    board.close()
    assert [frame async for frame in board.frames()] == []
    board.open()
    assert await anext(board.frames()) == {}
