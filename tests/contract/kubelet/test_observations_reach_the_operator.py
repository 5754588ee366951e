# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from dataclasses import replace

import pytest
from aiohttp import web

from fakes.kubelet_node import CONTAINER, NodeRig
from fakes.kubelet_state import KubeletPod
from ullage.api.observations import LatencyObjective, Observation
from ullage.api.slices import DesiredSlice
from ullage.ports import POD
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.telemetry import scrape, station, windows
from ullage_run.requests import RequestHistogram

ROW = Observation(
    id="row-1",
    workload_class="resnet",
    namespace="team",
    accelerator="emulated",
    percent=40,
    step_micros=10_000,
    at_s=1_700_000_000,
)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scraper asks more often whether a page is due."""
    for pause in ("SCRAPE_TICK_S", "SCRAPE_IDLE_S"):
        monkeypatch.setattr(scrape, pause, 0.02)


def rows_of(node: NodeRig) -> list[Observation]:
    return [Observation.from_wire(raw) for raw in node.status().get("observations") or []]


async def test_rows_are_in_the_status_and_outlive_the_agent() -> None:
    async with NodeRig() as node:
        agent = await node.start_agent()
        await node.until(node.status)
        agent.telemetry.book.take(ROW)
        await node.until(lambda: rows_of(node) == [ROW])
        await node.kill_agent()
        young = await node.start_agent()
        young.telemetry.book.take(replace(ROW, id="row-2", step_micros=99))
        await node.until(lambda: [row.id for row in rows_of(node)] == ["row-1", "row-2"])


async def test_a_steady_state_writes_nothing() -> None:
    async with NodeRig() as node:
        agent = await node.start_agent()
        pod = await node.placed_pod()
        await node.start(pod)
        await node.phase(pod, "Attached")
        key = ContainerKey(pod_uid=pod.uid, container=CONTAINER)
        await node.until(lambda: agent.publisher.writes)
        await agent.publisher.publish()
        writes = agent.publisher.writes
        for step in range(1, 40):
            node.devices.progress[key] = StepProgress(steps=step, step_micros=100 + step)
            await agent.containers.observe()
            agent.telemetry.look(time.monotonic(), time.time())
            await agent.publisher.publish()
        assert agent.publisher.writes == writes


async def a_server(histogram: RequestHistogram) -> web.AppRunner:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=histogram.metrics_text())

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner


def show_serving(node: NodeRig, pod: KubeletPod, port: int) -> None:
    node.show_pod(pod)
    raw = node.api.get(POD, pod.name, pod.namespace)
    assert raw is not None
    raw["spec"]["containers"] = [
        {"name": CONTAINER, "ports": [{"name": "http", "containerPort": port}]}
    ]
    raw["status"]["podIP"] = "127.0.0.1"
    node.api.put(POD, raw)


def with_objective(node: NodeRig, part: DesiredSlice) -> None:
    """Decide the same slice with a latency objective."""
    slo = LatencyObjective(latency_ms=50, percentile="90", window_seconds=1)
    node._slices[part.key] = replace(part, slo=slo, protected=True)
    node.write_spec()


@pytest.mark.slow
async def test_a_servers_latency_becomes_windows_of_its_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (windows, station):  # a window of one second
        monkeypatch.setattr(module, "LATENCY_WINDOW_LEAST_S", 0.5)
    histogram = RequestHistogram()
    server = await a_server(histogram)
    async with NodeRig() as node:
        agent = await node.start_agent()
        pod = await node.placed_pod()
        (part,) = node._slices.values()
        with_objective(node, part)
        await node.start(pod)
        show_serving(node, pod, server.addresses[0][1])
        await node.phase(pod, "Attached")
        key = ContainerKey(pod_uid=pod.uid, container=CONTAINER)
        node.devices.enforced[key] = Attachment(state=AttachState.ENFORCED)

        def counted() -> bool:
            histogram.observe(0.08)
            tally = agent.guard.tallies.get(key)
            return tally is not None and tally.windows >= 1 and tally.violations == tally.windows

        await node.until(counted)
        assert agent.telemetry.figures.pages >= 2
        latency = agent.guard.tallies[key].latency_micros
        assert 75_000 < latency <= 100_000
        await agent.publisher.publish(counters=True)
        seen = node.slice_of(pod)
        assert seen is not None
        assert seen.latency_micros == latency
    await server.cleanup()


async def test_a_server_without_a_page_is_told_why_its_objective_is_not_judged() -> None:
    async with NodeRig() as node:
        agent = await node.start_agent()
        pod = await node.placed_pod()
        (part,) = node._slices.values()
        with_objective(node, part)
        await node.start(pod)

        def told() -> object:
            agent.telemetry.scraper.hurry(ContainerKey(pod_uid=pod.uid, container=CONTAINER))
            return node.events("LatencyUnmeasured")

        await node.until(told)
        (event,) = node.events("LatencyUnmeasured")
        assert "name a container port metrics or http" in event["message"]
