# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The leader asks the routers of services that may sleep; the first request wakes a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from builders_raw import raw_foreign_pod, raw_meta, raw_service
from fakes.virtual_time import LoopClock, run_virtual
from ullage.app.effects import effect_of
from ullage.app.router_service import OF_A_NAMESPACE, OF_A_SERVICE, RouterService
from ullage.app.times import ROUTER_ASK_S, ROUTER_FRESH_S, ROUTER_SILENT_S
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.router import RouterLoad, RouterReport
from ullage.cluster.values import streams
from ullage.kube.router_reader import RouterSilent
from ullage.kube.times import ROUTER_WAIT_S

NOW = 0.0


class Routers:
    """Routers as they answer: a question waits until another request arrives."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self.waiting: dict[str, int] = {}
        self.last: dict[str, float] = {}
        self.news: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0

    def add(self, address: str) -> None:
        self.arrived[address], self.waiting[address] = 0, 0
        self.news[address] = asyncio.Event()
        self.last[address] = asyncio.get_running_loop().time()

    def request(self, address: str, waits: int = 1) -> None:
        self.arrived[address] += 1
        self.news[address].set()
        self.waiting[address] = waits
        self.last[address] = asyncio.get_running_loop().time()

    async def read(self, address: str, after: int | None) -> RouterReport:
        self.asked.append(address)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if address in self.arrived and self.arrived[address] == after:
                self.news[address].clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(ROUTER_WAIT_S):
                        await self.news[address].wait()
            if address not in self.arrived:
                raise RouterSilent("no one")
        finally:
            self.at_once -= 1
        return RouterReport(
            arrived=self.arrived[address],
            waiting=self.waiting[address],
            requests_milli=250,
            idle_seconds=int(asyncio.get_running_loop().time() - self.last[address]),
            wake_millis=12_000,
        )


class Leader:
    """One operator and what its decisions see."""

    def __init__(self, least: int = 0) -> None:
        self.is_leader = True
        self.routers = Routers()
        self.pokes: list[float] = []
        self.state = ClusterState(effect_of)
        self.least = least
        self.service = RouterService(
            self.routers,
            self.state,
            clock=LoopClock(),
            is_leader=lambda: self.is_leader,
            poke=lambda _: self.pokes.append(asyncio.get_running_loop().time()),
        )

    def serve(self, name: str = "serve", namespace: str = "default") -> None:
        spec = {
            "slo": {"latencyMs": 100},
            "batching": {},
            "scaling": {"minReplicas": self.least, "maxReplicas": 4, "policy": "SLO"},
        }
        raw = raw_service(name, namespace=namespace, **spec)
        self.state.upsert(streams.INFERENCE_DEPLOYMENTS, raw, NOW)

    def pod(self, address: str, service: str = "serve", namespace: str = "default") -> None:
        self.state.upsert(streams.FOREIGN_PODS, a_router(address, service, namespace), NOW)

    def load(self, uid: str = "uid-serve") -> RouterLoad | None:
        return self.state.freeze(NOW).routers.get(uid)


def a_router(
    address: str, service: str = "serve", namespace: str = "default", **metadata: object
) -> dict[str, Any]:
    raw = raw_foreign_pod()
    labels = {"ullage.dev/router": service}
    raw["metadata"] = raw_meta(f"router-{address}", namespace) | {"labels": labels, **metadata}
    raw["status"] |= {"podIP": address}
    return raw


def lived(leader: Leader, story: Callable[[], Awaitable[None]]) -> None:
    """The service runs while the story is told, in virtual time."""

    async def both() -> None:
        running = asyncio.create_task(leader.service.run())
        try:
            await story()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(both())


def test_the_first_request_wakes_a_decision_at_once() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        leader.routers.add("10.0.0.1")
        leader.pod("10.0.0.1")
        await asyncio.sleep(120)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.missing, load.waiting, load.silent) == (1, 0, 0, False)
        assert (load.asked_s, load.wake_s, load.requests_per_s) == (None, 12.0, 0.25)
        assert 105 <= load.idle_s <= 120
        assert not leader.pokes
        asked = len(leader.routers.asked)
        assert asked <= 2 + 120 / ROUTER_WAIT_S, "a question waits in the router"
        began = asyncio.get_running_loop().time()
        leader.routers.request("10.0.0.1")
        await asyncio.sleep(0.1)
        assert leader.pokes
        assert leader.pokes[-1] - began < 0.05
        load = leader.load()
        assert load is not None
        assert (load.waiting, load.asked_s) == (1, 0.0)

    lived(leader, story)


def test_a_router_with_requests_is_asked_now_and_then_and_wakes_no_one() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        leader.routers.add("10.0.0.1")
        leader.pod("10.0.0.1")
        for _ in range(600):
            leader.routers.request("10.0.0.1", waits=0)
            await asyncio.sleep(0.1)
        assert len(leader.routers.asked) <= 60 / ROUTER_ASK_S + 2
        assert len(leader.pokes) <= 1

    lived(leader, story)


def test_a_request_that_left_before_it_was_seen_is_news_after_a_while() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        leader.routers.add("10.0.0.1")
        leader.pod("10.0.0.1")
        await asyncio.sleep(12)
        for number in range(1, 4):
            leader.routers.request("10.0.0.1", waits=0)
            await asyncio.sleep(0.1)
            assert len(leader.pokes) == number
            await asyncio.sleep(12)

    lived(leader, story)


def test_what_a_service_knows_is_what_all_its_routers_say() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        for address in ("10.0.0.1", "10.0.0.2"):
            leader.routers.add(address)
            leader.pod(address)
        await asyncio.sleep(30)
        leader.routers.request("10.0.0.2", waits=3)
        await asyncio.sleep(15)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.waiting, load.requests_per_s) == (2, 3, 0.5)
        assert 3 <= load.idle_s <= 15
        leader.pod("10.0.0.3")  # it starts, and has not said anything
        await asyncio.sleep(5)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.missing) == (2, 1)

    lived(leader, story)


def test_a_router_that_falls_silent_is_missing_then_may_hold_requests_unseen() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        leader.routers.add("10.0.0.1")
        leader.pod("10.0.0.1")
        await asyncio.sleep(10)
        del leader.routers.arrived["10.0.0.1"]
        await asyncio.sleep(ROUTER_FRESH_S)
        load = leader.load()
        assert load is None or (load.heard, load.missing) == (0, 1)
        assert not leader.pokes
        await asyncio.sleep(ROUTER_SILENT_S)
        assert leader.load() == RouterLoad(heard=0, heard_at=0, missing=1, silent=True)
        assert len(leader.pokes) == 1
        asked = len(leader.routers.asked)
        await asyncio.sleep(300)
        assert len(leader.routers.asked) - asked <= 11
        leader.routers.add("10.0.0.1")
        await asyncio.sleep(40)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.silent) == (1, False)

    lived(leader, story)


def test_one_that_leaves_is_heard_while_it_answers_and_not_missed_after() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        for address in ("10.0.0.1", "10.0.0.2"):
            leader.routers.add(address)
            leader.pod(address)
        await asyncio.sleep(5)
        raw = a_router("10.0.0.1", deletionTimestamp="2026-01-02T03:04:05Z")
        leader.state.upsert(streams.FOREIGN_PODS, raw, NOW)
        leader.routers.request("10.0.0.1")
        await asyncio.sleep(5)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.waiting) == (2, 1)
        del leader.routers.arrived["10.0.0.1"]
        await asyncio.sleep(ROUTER_SILENT_S + ROUTER_FRESH_S)
        load = leader.load()
        assert load is not None
        assert (load.heard, load.missing, load.silent, load.waiting) == (1, 0, False, 0)

    lived(leader, story)


@pytest.mark.parametrize("why", ["standby", "keeps one", "no such service", "other namespace"])
def test_no_one_else_is_asked(why: str) -> None:
    leader = Leader(least=1 if why == "keeps one" else 0)
    leader.is_leader = why != "standby"
    leader.serve()

    async def story() -> None:
        leader.routers.add("10.0.0.1")
        service = "another" if why == "no such service" else "serve"
        leader.pod("10.0.0.1", service, "evil" if why == "other namespace" else "default")
        await asyncio.sleep(20)
        assert not leader.routers.asked
        assert leader.load() is None

    lived(leader, story)


def test_a_namespace_full_of_false_routers_keeps_to_its_turns() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        for at in range(3 * OF_A_SERVICE):
            address = f"10.0.1.{at}"
            leader.routers.add(address)
            leader.pod(address)
        await asyncio.sleep(20)
        assert len(set(leader.routers.asked)) == OF_A_SERVICE <= OF_A_NAMESPACE
        load = leader.load()
        assert load is not None
        assert load.missing == 2 * OF_A_SERVICE, "so the service does not sleep on their word"

    lived(leader, story)


def test_an_answer_that_breaks_our_code_is_silence() -> None:
    leader = Leader()
    leader.serve()

    async def story() -> None:
        async def odd(address: str, after: int | None) -> RouterReport:
            raise KeyError(address)

        leader.routers.read = odd  # type: ignore[method-assign]
        leader.pod("10.0.0.1")
        await asyncio.sleep(ROUTER_SILENT_S + 5)
        load = leader.load()
        assert load is not None
        assert load.silent

    lived(leader, story)
