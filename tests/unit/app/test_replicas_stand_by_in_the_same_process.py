# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to the API server or the Lease, no replica ends, and one decides again soon."""

from __future__ import annotations

import asyncio

import pytest

from fakes.replicas import World, now, play
from ullage import ports

BACK_S = 15.0
"""A decision is completed this long after the API server is back, at most."""


@pytest.mark.slow
def test_an_api_server_that_is_away_at_the_start_is_waited_for() -> None:
    async def story(world: World) -> None:
        world.api.leave()
        one = world.start("a")
        for _ in range(100):
            await asyncio.sleep(3.0)
            assert one.unhealthy() == [], "a restart would mend nothing"
            assert one.unready() == ["self-test: Unavailable: 0: connection refused"]
        world.api.come_back()
        assert await world.decides(BACK_S) < BACK_S
        assert one.unready() == []
        assert not one.task.done()

    play(story)


@pytest.mark.slow
def test_a_missing_right_is_told_and_asked_for_again() -> None:
    async def story(world: World) -> None:
        world.api.denied = True
        one = world.start("a")
        await asyncio.sleep(200.0)
        (told,) = one.unready()
        assert "may not list pods" in told
        assert "install the roles of chart ullage" in told
        assert one.unhealthy() == []
        assert not one.operator.lease.held
        world.api.denied = False
        assert await world.decides(BACK_S) < BACK_S

    play(story)


def test_a_lost_lease_ends_the_term_and_the_same_process_leads_again() -> None:
    async def story(world: World) -> None:
        one = world.start("a")
        await world.decides(BACK_S)
        first, identity = one.operator.term, one.operator.lease.identity
        world.api.leave()
        await world.until(lambda: not one.operator.lease.held, 12.0)
        lost_at = now()
        await asyncio.sleep(60.0)
        assert not one.is_leader
        assert one.operator.term is not first
        assert one.unhealthy() == []
        world.api.come_back()
        came_back = now()
        await world.decides(BACK_S)
        assert one.epoch == 2
        assert one.operator.lease.identity != identity
        assert one.writes_between(lost_at, came_back) == []
        assert not one.task.done()

    play(story)


def test_nothing_that_was_assumed_outlives_its_term() -> None:
    async def story(world: World) -> None:
        one = world.start("a")
        await world.decides(BACK_S)

        # the server dies as the first write of the job leaves: nothing of it arrives
        checked = one.client.on_write
        one.client.on_write = lambda kind: (checked(kind), world.api.leave())[0]
        world.add_job("job")
        await world.until(lambda: world.api.away, 5.0)
        one.client.on_write = checked
        assert one.assumed > 0
        await world.until(lambda: not one.operator.lease.held, 12.0)
        await asyncio.sleep(4.0)
        assert one.assumed == 0
        assert world.api.server.objects(ports.POD) == []
        world.api.come_back()
        await world.until(lambda: world.phase("job") == "Running", 2 * BACK_S)
        assert len(world.api.server.objects(ports.POD)) == 1
        assert one.epoch == 2

    play(story)


def test_answers_that_were_lost_double_nothing() -> None:
    async def story(world: World) -> None:
        one = world.start("a")
        await world.decides(BACK_S)
        one.client.lose_answers = True
        world.add_job("job")
        await asyncio.sleep(2.0)
        world.api.leave()
        await world.until(lambda: not one.operator.lease.held, 12.0)
        one.client.lose_answers = False
        world.api.come_back()
        await world.until(lambda: world.phase("job") == "Running", 2 * BACK_S)
        assert len(world.api.server.objects(ports.POD)) == 1

    play(story)


@pytest.mark.slow
@pytest.mark.parametrize("down_s", [2.0, 7.0, 12.0, 18.0])
def test_ten_restarts_in_five_minutes_leave_one_leader_each_time(down_s: float) -> None:
    async def story(world: World) -> None:
        replicas = [world.start("a"), world.start("b")]
        await world.decides(2 * BACK_S)
        for number in range(10):
            world.add_job(f"job-{number}")
            world.api.leave()
            await asyncio.sleep(down_s)
            world.api.come_back()
            took_s = await world.decides(BACK_S)
            assert all(one.unhealthy() == [] for one in replicas)
            await asyncio.sleep(max(0.0, 30.0 - down_s - took_s))
        await world.until(lambda: all(world.phase(f"job-{n}") == "Running" for n in range(4)), 60.0)
        assert not any(one.task.done() for one in replicas)
        assert world.epochs == sorted(set(world.epochs))

    play(story)


def test_a_leader_that_alone_is_cut_off_is_succeeded_and_stands_by() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await world.decides(BACK_S)
        b = world.start("b")
        await asyncio.sleep(5.0)
        world.add_job("before")
        await world.until(lambda: world.phase("before") == "Running", 30.0)
        a.client.cut_off = True
        world.api.core.watches.end_all()
        await world.until(lambda: b.is_leader, BACK_S)
        world.add_job("meanwhile")
        await world.until(lambda: world.phase("meanwhile") == "Running", 30.0)
        await asyncio.sleep(60.0)
        assert "no look at the Lease" in "".join(a.unready())
        assert a.unhealthy() == []
        a.client.cut_off = False
        await asyncio.sleep(10.0)
        assert a.unready() == []
        assert (a.is_leader, b.is_leader) == (False, True)
        b.operator.stop()
        await world.until(lambda: b.task.done(), 12.0)
        await world.until(lambda: a.is_leader, 5.0)
        await asyncio.sleep(30.0)
        assert len(world.api.server.objects(ports.POD)) == 2, "what b decided stands"
        assert world.epochs == [1, 2, 3]

    play(story)


def test_a_newer_epoch_in_the_api_ends_the_term_and_the_next_is_above_it() -> None:
    async def story(world: World) -> None:
        one = world.start("a")
        await world.decides(BACK_S)
        one.client.cut_off = True  # it does not see that another has led
        world.api.core.watches.end_all()
        for node in world.api.server.objects(ports.GPU_NODE):
            name = node["metadata"]["name"]
            world.api.server.edit(ports.GPU_NODE, name, {"spec": {"epoch": 41}})
        one.client.cut_off = False
        first = one.operator.term
        first.fenced.set()
        await world.until(lambda: one.operator.term is not first, 5.0)
        world.add_job("job")
        await world.until(lambda: world.phase("job") == "Running", 4 * BACK_S)
        assert world.epochs[-1] == 42
        assert not one.task.done()

    play(story)


def test_a_fault_of_our_own_ends_the_term_alone_and_another_replica_leads() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await world.decides(BACK_S)
        b = world.start("b")
        await asyncio.sleep(5.0)
        a.operator.term.writer._queue = None  # type: ignore[assignment]
        a.operator.term.writer._wake.set()
        await world.until(lambda: b.is_leader or (a.is_leader and a.epoch > 1), BACK_S)
        world.add_job("job")
        await world.until(lambda: world.phase("job") == "Running", BACK_S)
        assert a.operator.replica.supervisor.failures["leadership"] == 1
        assert not a.task.done()
        assert a.unhealthy() == []

    play(story)


def test_a_replica_that_is_told_to_stop_hands_over_at_once() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await world.decides(BACK_S)
        b = world.start("b")
        await asyncio.sleep(5.0)
        a.operator.stop()
        await world.until(lambda: a.task.done(), 10.0)
        a.task.result()
        assert await world.decides(5.0) < 5.0
        assert b.is_leader

    play(story)
