# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A snapshot names the work of everyone: it is for loopback; probes and metrics are for all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from builders import NOW, a_gpu_node, a_job, a_node, a_snapshot
from ullage.app.health import HealthView
from ullage.app.http import Endpoints
from ullage.app.replay import Inputs, from_json, parts
from ullage.scheduling.model.plan import DecideSettings

INPUTS: Inputs = (
    a_snapshot(a_node(), a_gpu_node(), *(a_job(f"train-{n}") for n in range(500))),
    NOW,
    DecideSettings(epoch=7),
)


def healthy() -> HealthView:
    return HealthView(
        loop_lag_s=0.0,
        is_leader=True,
        decision_age_s=0.0,
        cycle_age_s=0.0,
        max_age_s=90.0,
    )


async def served(inputs: Inputs | None = INPUTS) -> Endpoints:
    endpoints = Endpoints(healthy, CollectorRegistry(), lambda: inputs)
    await endpoints.start(host="127.0.0.1", port=0, debug_port=0)
    return endpoints


async def test_the_port_of_the_probes_gives_no_snapshot() -> None:
    endpoints = await served()
    try:
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{endpoints.port}"
            async with session.get(f"{address}/debug/snapshot") as answer:
                assert answer.status == 404
            async with session.get(f"{address}/readyz") as answer:
                assert answer.status == 200
    finally:
        await endpoints.stop()


async def test_the_debug_port_listens_on_loopback_and_gives_what_replays() -> None:
    endpoints = await served()
    try:
        assert endpoints.debug_host == "127.0.0.1"
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{endpoints.debug_port}/debug/snapshot"
            async with session.get(address) as answer:
                assert answer.headers["Content-Type"] == "application/json"
                assert from_json(await answer.read()) == INPUTS
    finally:
        await endpoints.stop()


async def test_metrics_that_are_asked_for_at_once_are_made_once() -> None:
    class Counting(Collector):
        made = 0

        def collect(self) -> Iterator[Metric]:
            self.made += 1
            yield GaugeMetricFamily("ullage_test", "A test.", value=self.made)

    metrics, counting = CollectorRegistry(auto_describe=False), Counting()
    metrics.register(counting)
    endpoints = Endpoints(healthy, metrics, lambda: None)
    await endpoints.start(host="127.0.0.1", port=0, debug_port=None)
    try:
        async with aiohttp.ClientSession() as session:

            async def scrape() -> str:
                async with session.get(f"http://127.0.0.1:{endpoints.port}/metrics") as answer:
                    return await answer.text()

            pages = set(await asyncio.gather(*(scrape() for _ in range(5))))
            assert counting.made == len(pages) == 1
    finally:
        await endpoints.stop()


async def test_before_the_first_decision_there_is_none() -> None:
    endpoints = await served(None)
    try:
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{endpoints.debug_port}/debug/snapshot"
            async with session.get(address) as answer:
                assert answer.status == 404
    finally:
        await endpoints.stop()


async def test_a_second_reader_is_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = await served()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> None:
        asked.set()
        await go_on.wait()

    monkeypatch.setattr("ullage.app.http.in_thread", slow)
    try:
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{endpoints.debug_port}/debug/snapshot"
            first = asyncio.create_task(session.get(address))
            await asked.wait()
            async with session.get(address) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
            go_on.set()
            (await first).close()
    finally:
        await endpoints.stop()


def test_a_snapshot_is_made_in_small_parts() -> None:
    sizes = [len(one) for one in parts(INPUTS)]
    assert max(sizes) < sum(sizes) / 10
