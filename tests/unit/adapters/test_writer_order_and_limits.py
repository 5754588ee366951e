# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from builders import a_slice
from fakes import writer_rig as do
from fakes.virtual_time import START, run_virtual
from fakes.writer_rig import a_rig
from ullage.adapters.events import event_name
from ullage.ports import Throttled


def test_urgency_orders_what_waits() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig(in_flight=1) as rig:
            await rig.write(
                do.emit(),
                do.status(name="s"),
                do.create("a-0"),
                do.node("n1"),
                do.kube_service(),
                do.evict("b-0"),
                do.delete("c-0"),
            )
            return [verb for verb in rig.cluster.verbs() if verb[0] != "get"]

    assert run_virtual(main()) == [
        ("evict", "b-0"),
        ("delete", "c-0"),
        ("apply", "n1"),
        ("create", "a-0"),
        ("apply", "train-workers"),
        ("apply", "s"),
        ("create", event_name(do.job(), "Placed")),
    ]


def test_something_urgent_overtakes_what_waits_already() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig(in_flight=1) as rig:
            rig.cluster.latency_s = 0.1
            rig.writer.submit([do.status(name=f"s{i}") for i in range(5)])
            await asyncio.sleep(0.15)
            rig.writer.submit([do.evict("late")])
            await rig.settle()
            return rig.cluster.verbs()

    verbs = run_virtual(main())
    assert verbs.index(("evict", "late")) == 2, "after the one under way"


def test_no_more_than_the_limit_are_under_way() -> None:
    async def main() -> tuple[int, int]:
        async with a_rig(in_flight=4) as rig:
            rig.cluster.latency_s = 0.1
            await rig.write(*(do.delete(f"p-{i}") for i in range(20)))
            return rig.cluster.most_busy, len(rig.cluster.calls)

    assert run_virtual(main()) == (4, 20)


def test_the_rate_is_limited_after_a_burst() -> None:
    async def main() -> list[float]:
        async with a_rig(per_second=10.0, in_flight=50) as rig:
            await rig.write(*(do.delete(f"p-{i}") for i in range(30)), seconds=10)
            return [call.at - START for call in rig.cluster.calls]

    times = run_virtual(main())
    assert len(times) == 30
    assert sum(at < 0.05 for at in times) == 10
    assert times[-1] == pytest.approx(2.0, abs=0.2)


def test_of_several_waiting_writes_on_one_object_the_newest_wins() -> None:
    async def main() -> tuple[list[str], list[object]]:
        async with a_rig() as rig:
            rig.writer.submit([do.status("Pending"), do.node("n1", a_slice("uid-a"))])
            rig.writer.submit([do.status("Running"), do.node("n1", a_slice("uid-b"))])
            await rig.settle()
            bodies = [call.body for call in rig.cluster.calls]
            assert len(rig.results) == 2
            return (
                [body["status"]["phase"] for body in bodies if "status" in body],
                [body["spec"]["slices"][0]["podUID"] for body in bodies if "spec" in body],
            )

    assert run_virtual(main()) == (["Running"], ["uid-b"])


def test_two_writes_on_one_object_are_never_under_way_together() -> None:
    async def main() -> tuple[list[str], int]:
        async with a_rig() as rig:
            rig.cluster.latency_s = 0.5
            rig.writer.submit([do.node("n1", a_slice("uid-a"))])
            await asyncio.sleep(0.1)
            rig.writer.submit([do.node("n1", a_slice("uid-b"))])
            await rig.settle()
            order = [call.body["spec"]["slices"][0]["podUID"] for call in rig.cluster.calls]
            return order, rig.cluster.most_busy

    assert run_virtual(main()) == (["uid-a", "uid-b"], 1)


def test_a_deletion_replaces_an_ungating_that_still_waits() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig() as rig:
            await rig.write(do.ungate("p-0"), do.delete("p-0"))
            return rig.cluster.verbs()

    assert run_virtual(main()) == [("delete", "p-0")]


def test_events_are_bounded_and_the_oldest_go() -> None:
    async def main() -> tuple[int, int, int]:
        async with a_rig(events_most=3) as rig:
            await rig.write(*(do.emit(name=f"job-{i}") for i in range(10)))
            names = {call.body["involvedObject"]["name"] for call in rig.cluster.calls}
            assert names == {"job-7", "job-8", "job-9"}
            return rig.stats.events_dropped, len(rig.cluster.calls), rig.stats.queue_depth

    assert run_virtual(main()) == (7, 3, 0)


def test_429_pauses_everybody_halves_the_rate_and_tries_again() -> None:
    async def main() -> tuple[float, list[float], list[object]]:
        async with a_rig(per_second=100.0) as rig:
            rig.cluster.fail(Throttled(429, "slow down", retry_after_s=2.0), name="p-0")
            rig.writer.submit([do.delete("p-0")])
            await asyncio.sleep(0.5)
            rig.writer.submit([do.delete("p-1")])
            await rig.settle()
            times = [round(call.at - START, 3) for call in rig.cluster.calls]
            return rig.stats.per_second, times, [type(error) for error in rig.errors]

    rate, times, errors = run_virtual(main())
    assert rate == 50.0
    assert times == [0.0, 2.0, 2.0]
    assert len(errors) == 2, "both pods are unknown to the fake: told, not swallowed"


def test_the_rate_comes_back_when_the_server_is_content() -> None:
    async def main() -> list[float]:
        async with a_rig(per_second=100.0, recover_s=30.0) as rig:
            rig.cluster.fail(Throttled(429, "slow down"), times=2)
            await rig.write(do.delete("p-0"))
            rates = [rig.stats.per_second]
            for number in range(3):
                await rig.settle(31)
                await rig.write(do.delete(f"q-{number}"))
                rates.append(rig.stats.per_second)
            return rates

    assert run_virtual(main()) == [25.0, 50.0, 100.0, 100.0]
