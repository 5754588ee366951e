# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from builders import a_slice
from fakes import writer_rig as do
from fakes.virtual_time import run_virtual
from fakes.writer_rig import Rig, a_rig
from ullage.kube.errors import Fenced
from ullage.ports import Conflict, Invalid, Unavailable

EPOCH_REFUSED = Invalid(
    422,
    'GPUNode.ullage.dev "n1" is invalid: spec.epoch: Invalid value: spec.epoch must not decrease: '
    "this write comes from an operator that is no longer the leader",
    "Invalid",
)


def test_without_the_lease_nothing_leaves() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.held = False
            await rig.write(do.delete("p-0"), do.node(), do.status(), do.emit(), do.create())
            return rig

    rig = run_virtual(main())
    assert rig.cluster.calls == []
    assert rig.stats.fenced == 5
    assert all(isinstance(error, Fenced) for error in rig.errors)
    assert len(rig.errors) == 4, "an Event has no one to tell"


def test_the_lease_is_asked_before_every_request_not_once_a_write() -> None:
    """A retry, and the look at who holds a name, are requests of their own."""

    async def retried() -> Rig:
        async with a_rig() as rig:
            rig.cluster.latency_s = 0.1
            rig.cluster.fail(Unavailable(503, "away"))
            rig.writer.submit([do.delete()])
            await asyncio.sleep(0.15)
            rig.held = False
            await rig.settle()
            return rig

    async def looked() -> Rig:
        async with a_rig() as rig:
            rig.cluster.latency_s = 0.1
            rig.cluster.fail(Conflict(409, "exists", "AlreadyExists"), verb="create")
            rig.writer.submit([do.create()])
            await asyncio.sleep(0.05)
            rig.held = False
            await rig.settle()
            return rig

    for rig in (run_virtual(retried()), run_virtual(looked())):
        assert len(rig.cluster.calls) == 1
        assert rig.stats.fenced == 1


def test_a_refused_epoch_means_a_newer_leader() -> None:
    async def main() -> Rig:
        async with a_rig(in_flight=1) as rig:
            rig.cluster.fail(EPOCH_REFUSED, name="n1")
            await rig.write(do.node("n1"), do.node("n2"), do.create(), do.status())
            return rig

    rig = run_virtual(main())
    assert rig.lost == 1
    assert rig.cluster.verbs() == [("apply", "n1")], "nothing is written after it"
    assert rig.stats.fenced == 3


def test_a_slice_that_the_schema_refuses_is_no_newer_leader() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Invalid(422, "spec.slices[0].epoch: Invalid value: -1"), name="n1")
            await rig.write(do.node("n1", a_slice()))
            return rig

    assert run_virtual(main()).lost == 0


def test_stop_refuses_at_once_and_lets_what_is_under_way_end() -> None:
    async def main() -> Rig:
        rig = Rig()
        rig.cluster.latency_s = 0.5
        running = asyncio.create_task(rig.writer.run())
        rig.writer.submit([do.delete(f"p-{number}") for number in range(10)])
        await asyncio.sleep(0.1)
        stopping = asyncio.create_task(rig.writer.stop())
        await asyncio.sleep(0)
        rig.writer.submit([do.delete("late")])
        await stopping
        await running
        return rig

    rig = run_virtual(main())
    assert len(rig.cluster.calls) == 4
    assert rig.stats.fenced == 7
    assert rig.stats.queue_depth == 0


def test_stop_cancels_what_does_not_end() -> None:
    async def main() -> tuple[Rig, float]:
        rig = Rig()
        rig.cluster.latency_s = 3600
        running = asyncio.create_task(rig.writer.run())
        rig.writer.submit([do.delete()])
        await asyncio.sleep(0.1)
        before = asyncio.get_running_loop().time()
        await rig.writer.stop()
        await running
        return rig, asyncio.get_running_loop().time() - before

    rig, took = run_virtual(main())
    assert rig.cluster.calls == []
    assert took == pytest.approx(3.0, abs=0.01)


def test_stop_does_not_wait_for_a_retry_that_rests() -> None:
    async def main() -> tuple[Rig, float]:
        rig = Rig()
        rig.cluster.fail(Unavailable(503, "away"), times=99)
        running = asyncio.create_task(rig.writer.run())
        rig.writer.submit([do.delete()])
        await asyncio.sleep(0.01)
        before = asyncio.get_running_loop().time()
        await rig.writer.stop()
        await running
        return rig, asyncio.get_running_loop().time() - before

    rig, took = run_virtual(main())
    assert len(rig.cluster.calls) == 1
    assert took < 0.1


def test_a_writer_without_work_stops() -> None:
    async def main() -> None:
        rig = Rig()
        running = asyncio.create_task(rig.writer.run())
        await asyncio.sleep(1)
        await rig.writer.stop()
        await running

    run_virtual(main())
