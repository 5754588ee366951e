# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from builders import a_slice
from fakes import writer_rig as do
from fakes.cluster_port import Call
from fakes.virtual_time import START, run_virtual
from fakes.writer_rig import a_rig
from ullage.kube.events import event_name
from ullage.ports import TRAINING_JOB, ApiError, Conflict, Forbidden, Invalid, Throttled
from ullage.scheduling.model.plan import Action, SetStatus


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
        ("apply", "s"),  # the fourth write tells
        ("create", "a-0"),
        ("apply", "train-workers"),
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


def test_429_pauses_everyone_halves_the_rate_and_tries_again() -> None:
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


def _passing(phase: str) -> SetStatus:
    return replace(do.status(phase), passing=True)


def _phases(calls: list[Call]) -> list[object]:
    return [call.body["status"]["phase"] for call in calls]


def test_a_status_in_passing_is_overtaken_by_the_next_one() -> None:
    async def main() -> list[Call]:
        async with a_rig(passing_s=3.0) as rig:
            rig.writer.submit([_passing("Pending")])
            await asyncio.sleep(1.0)
            rig.writer.submit([_passing("Starting")])
            await asyncio.sleep(1.0)
            await rig.write(do.status("Running"))
            return rig.cluster.calls

    calls = run_virtual(main())
    assert _phases(calls) == ["Running"]
    assert calls[0].at - START == pytest.approx(2.0, abs=0.1)


def test_a_status_in_passing_is_told_in_time_however_often_it_is_overtaken_in_passing() -> None:
    async def main() -> list[Call]:
        async with a_rig(passing_s=3.0) as rig:
            for phase in ("Pending", "Reserving", "Starting"):
                rig.writer.submit([_passing(phase)])
                await asyncio.sleep(1.0)
            await rig.settle()
            return rig.cluster.calls

    calls = run_virtual(main())
    assert _phases(calls) == ["Starting"]
    assert calls[0].at - START == pytest.approx(3.0, abs=0.1)


def test_what_replaces_an_urgent_status_is_not_delayed() -> None:
    async def main() -> list[Call]:
        async with a_rig(passing_s=3.0) as rig:
            await rig.write(do.status("Restarting"), _passing("Pending"))
            return rig.cluster.calls

    calls = run_virtual(main())
    assert _phases(calls) == ["Pending"]
    assert calls[0].at - START < 0.1


def test_a_status_in_passing_gives_way_but_is_not_starved() -> None:
    async def main() -> list[str]:
        async with a_rig(passing_s=1.0, passing_most_s=2.0, in_flight=1) as rig:
            rig.cluster.latency_s = 0.1
            rig.writer.submit([_passing("Pending"), *(do.delete(f"p-{i}") for i in range(60))])
            await asyncio.sleep(10.0)
            return [verb for verb, _ in rig.cluster.verbs()]

    at = run_virtual(main()).index("apply")
    assert 28 <= at <= 36, "after three seconds, before all that is more urgent"


def test_fewer_are_under_way_while_the_server_answers_late() -> None:
    async def main() -> tuple[int, int]:
        async with a_rig(in_flight=50) as rig:
            rig.cluster.latency_s = 0.01
            await rig.write(*(do.delete(f"a-{i}") for i in range(200)))
            quick = rig.cluster.most_busy
            rig.cluster.latency_s = 0.5
            await rig.write(*(do.delete(f"b-{i}") for i in range(300)), seconds=60)
            rig.cluster.most_busy = 0
            await rig.write(*(do.delete(f"c-{i}") for i in range(50)), seconds=60)
            return quick, rig.cluster.most_busy

    assert run_virtual(main()) == (50, 8)


def test_those_who_are_served_are_told_while_the_burst_goes_on() -> None:
    async def main() -> list[str]:
        async with a_rig(in_flight=1) as rig:
            rig.cluster.latency_s = 0.1
            statuses = [do.status(name=f"s{i}") for i in range(2)]
            await rig.write(*(do.delete(f"p-{i}") for i in range(30)), *statuses)
            return [verb for verb, _ in rig.cluster.verbs()]

    verbs = run_virtual(main())
    assert [at for at, verb in enumerate(verbs) if verb == "apply"] == [3, 7]


def test_events_come_when_nothing_else_is_under_way() -> None:
    async def main() -> list[str]:
        async with a_rig(in_flight=4) as rig:
            rig.cluster.latency_s = 0.1
            rig.writer.submit([do.emit(name="told"), *(do.delete(f"p-{i}") for i in range(40))])
            await rig.settle()
            return [verb for verb, _ in rig.cluster.verbs()]

    assert run_virtual(main()) == ["delete"] * 40 + ["create"]


def test_an_event_gives_way_for_a_while_and_no_longer() -> None:
    async def main() -> int:
        async with a_rig(in_flight=4, event_s=3.0) as rig:
            rig.cluster.latency_s = 0.1
            rig.writer.submit([do.emit(name="told")])
            for second in range(100):
                rig.writer.submit([do.delete(f"p-{second}-{i}") for i in range(2)])
                await asyncio.sleep(0.09)
            return [verb for verb, _ in rig.cluster.verbs()].index("create")

    assert 55 <= run_virtual(main()) <= 75


def test_a_status_in_passing_waits_while_others_are_written() -> None:
    async def main() -> list[Call]:
        async with a_rig(in_flight=4, passing_s=1.0, passing_most_s=20.0) as rig:
            rig.cluster.latency_s = 0.1
            rig.writer.submit([_passing("Starting")])
            for number in range(60):
                rig.writer.submit([do.delete(f"p-{number}-{i}") for i in range(2)])
                await asyncio.sleep(0.09)
            await rig.settle()
            return [call for call in rig.cluster.calls if call.verb == "apply"]

    (told,) = run_virtual(main())
    assert told.at - START == pytest.approx(60 * 0.09, abs=0.2)


def test_a_pod_is_deleted_after_the_status_that_counts_its_failure() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig() as rig:
            rig.cluster.put(TRAINING_JOB, {"metadata": {"name": "train", "namespace": "default"}})
            rig.cluster.latency_s = 0.5
            rig.writer.submit([*(do.node(f"n{i}") for i in range(8)), do.status("Restarting")])
            await asyncio.sleep(0.1)
            rig.writer.submit([do.delete("train-0")])
            await rig.settle()
            return [verb for verb in rig.cluster.verbs() if verb[1].startswith("train")]

    assert run_virtual(main()) == [("apply", "train"), ("delete", "train-0")]


@pytest.mark.parametrize(
    "error", [Conflict(409, "changed", "Conflict"), Invalid(422, "status.row: Invalid value")]
)
def test_a_pod_stays_when_the_status_that_counts_its_failure_is_not_accepted(
    error: ApiError,
) -> None:
    async def main() -> tuple[list[tuple[str, str]], list[Action]]:
        async with a_rig() as rig:
            rig.cluster.latency_s = 0.5
            rig.cluster.fail(error, name="train")
            rig.writer.submit([do.status("Restarting")])
            await asyncio.sleep(0.1)
            rig.writer.submit([do.delete("train-0"), do.delete("train-1")])
            await rig.settle()
            failed = [action for action, problem in rig.results if problem is error]
            assert len(failed) == len(rig.results)
            rig.writer.submit([do.delete("train-0")])  # the next decision
            await rig.settle()
            return rig.cluster.verbs(), failed

    verbs, failed = run_virtual(main())
    assert verbs == [("apply", "train"), ("delete", "train-0")]
    assert failed == [do.status("Restarting"), do.delete("train-0"), do.delete("train-1")]


def test_a_status_in_passing_delays_no_deletion() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig() as rig:
            rig.cluster.put(TRAINING_JOB, {"metadata": {"name": "train", "namespace": "default"}})
            rig.cluster.latency_s = 0.5
            rig.writer.submit([do.status("Restarting")])
            await asyncio.sleep(0.1)
            rig.writer.submit([do.delete("train-0"), replace(do.status("Starting"), passing=True)])
            await rig.settle()
            return rig.cluster.verbs()

    assert run_virtual(main()) == [("apply", "train"), ("delete", "train-0"), ("apply", "train")]


def test_a_status_in_a_back_off_delays_no_deletion() -> None:
    async def main() -> list[tuple[str, str]]:
        async with a_rig() as rig:
            rig.cluster.fail(Forbidden(403, "cannot patch"), name="train")
            await rig.write(do.status("Restarting"), seconds=1)
            rig.writer.submit([do.status("Failed")])
            await rig.write(do.delete("train-0"), seconds=1)
            return [verb for verb in rig.cluster.verbs() if verb[0] != "create"]

    assert run_virtual(main()) == [("apply", "train"), ("delete", "train-0")]
