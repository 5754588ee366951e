# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from bench import local
from bench.mixed_load import offer, until_ready
from bench.mixed_look import Watch
from bench.mixed_plan import CLASSES, SERVICE, calm
from bench.mixed_plan import mixed as mixed_plan
from bench.mixed_record import Recording, Request
from bench.mixed_rules import Rule, job, policy
from ullage.api.environment import STEPS_FILE
from ullage.api.steps import STEP_LAYOUT, STEP_MAGIC, STEP_VERSION
from ullage.ports import (
    INFERENCE_DEPLOYMENT,
    POD,
    TRAINING_JOB,
    ClusterPort,
    JsonObject,
    Kind,
    Page,
    Selector,
)


def _record(folder: Path, uid: str, *, steps: int, busy_ns: int) -> None:
    directory = folder / f"{uid}_main"
    directory.mkdir(parents=True)
    body = STEP_LAYOUT.pack(STEP_MAGIC, STEP_VERSION, steps, 1, 1, steps, 0, 0, 0, busy_ns)
    (directory / STEPS_FILE).write_bytes(body)


def _pod(owner: str, uid: str, *, phase: str = "Running", node: str = "node-1") -> JsonObject:
    labels = {"ullage.dev/owner": owner} if owner else {}
    return {
        "metadata": {"name": f"{owner}-0", "uid": uid, "labels": labels},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def _job(name: str, phase: str, sharing: JsonObject | None = None) -> JsonObject:
    decision = {"reason": "NeedProfile", "message": "no rows"}
    return {
        "metadata": {"name": name},
        "status": {"phase": phase, "decision": decision, "sharing": sharing or {}},
    }


class _Lists:
    """A cluster that only answers lists, of one namespace."""

    def __init__(self, found: dict[Kind, list[JsonObject]]) -> None:
        self._found = found

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        assert selector.namespace == "ns"
        for item in self._found[kind]:
            yield Page(items=[item], resource_version="1")


async def _look(folder: Path, found: dict[Kind, list[JsonObject]]) -> Recording:
    recording = Recording(rule="ours", plan=mixed_plan(1, 10.0))
    watch = Watch(
        cluster=cast(ClusterPort, _Lists({TRAINING_JOB: [], INFERENCE_DEPLOYMENT: [], **found})),
        namespace="ns",
        folders={"node-1": folder},
        into=recording,
    )
    await watch.look(5.0)
    return recording


async def test_running_containers_are_read_with_what_their_status_says(tmp_path: Path) -> None:
    _record(tmp_path, "u1", steps=40, busy_ns=160)
    sharing = {"percent": 40, "predicted": "1.50", "predictedUpper": "1.70"}
    found = await _look(
        tmp_path, {POD: [_pod("a", "u1")], TRAINING_JOB: [_job("a", "Running", sharing)]}
    )
    (one,) = found.readings
    assert (one.name, one.pod, one.steps, one.busy_ns) == ("a", "u1", 40, 160)
    assert (one.percent, one.predicted, one.upper) == (40, 1.5, 1.7)
    assert found.looks_s == [5.0]
    assert len(found.load) == 1


async def test_who_does_not_run_or_is_not_ours_is_left_out(tmp_path: Path) -> None:
    for uid in ("u1", "u2", "u3"):
        _record(tmp_path, uid, steps=40, busy_ns=160)
    pods = [
        _pod("a", "u1", phase="Succeeded"),
        _pod("", "u2"),
        _pod("c", "u3", node="elsewhere"),
        _pod("d", "never-began"),
    ]
    assert (await _look(tmp_path, {POD: pods})).readings == []


async def test_ends_and_reasons_of_waiting_are_noted(tmp_path: Path) -> None:
    jobs = [_job("a", "Succeeded"), _job("b", "Failed"), _job("c", "Pending")]
    found = await _look(tmp_path, {POD: [], TRAINING_JOB: jobs})
    assert found.finished_s == {"a": 5.0}
    assert found.failed == ["b"]
    assert found.reasons["c"] == "NeedProfile: no rows"


class _Server:
    """A server that answers after a while, or badly."""

    def __init__(self) -> None:
        self.asked = 0
        self.delay_s = 0.0
        self.status = 200

    async def predict(self, request: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        return web.json_response({"digit": 1}, status=self.status)

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()


@pytest.fixture
async def server() -> AsyncIterator[tuple[_Server, str]]:
    found, app = _Server(), web.Application()
    app.router.add_post("/predict", found.predict)
    app.router.add_get("/healthz", found.health)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield found, f"http://{host}:{port}"
    await runner.cleanup()


async def test_requests_are_sent_when_due_however_slow_the_answers_are(
    server: tuple[_Server, str],
) -> None:
    found, url = server
    found.delay_s = 0.3
    await until_ready(url)
    started, got = asyncio.get_running_loop().time(), list[Request]()
    await offer(url, [0.05, 0.06, 0.07], started, got)
    assert sorted(one.due_s for one in got) == [0.05, 0.06, 0.07]
    # one after the other, the last would have been 0.9 s late
    assert all(one.latency_s is not None and one.latency_s >= 0.3 for one in got)
    assert found.asked == 3


async def test_latency_counts_from_when_a_request_was_due(server: tuple[_Server, str]) -> None:
    _, url = server
    loop, got = asyncio.get_running_loop(), list[Request]()
    sending = asyncio.create_task(offer(url, [0.05], loop.time(), got))
    await asyncio.sleep(0)
    time.sleep(0.25)  # noqa: ASYNC251  the client itself is held up
    await sending
    assert got[0].latency_s is not None
    assert got[0].latency_s >= 0.19


async def test_a_bad_answer_is_lost_and_not_asked_again(server: tuple[_Server, str]) -> None:
    found, url = server
    found.status = 503
    got: list[Request] = []
    await offer(url, [0.01, 0.02], asyncio.get_running_loop().time(), got)
    assert [one.latency_s for one in got] == [None, None]
    assert found.asked == 2


async def test_what_was_due_before_the_server_was_there_is_not_asked(
    server: tuple[_Server, str],
) -> None:
    found, url = server
    got: list[Request] = []
    await offer(url, [1.0, 2.0, 10.05], asyncio.get_running_loop().time() - 10.0, got)
    assert [one.due_s for one in got] == [10.05]
    assert found.asked == 1


def test_the_history_is_another_sequence_with_every_class() -> None:
    before = calm(2, 240.0)
    assert {one.workload_class for one in before.jobs} == set(CLASSES)
    assert all(one.max_slowdown is None for one in before.jobs)
    assert [one.at_s for one in before.jobs] == sorted(one.at_s for one in before.jobs)
    assert before.requests_s != mixed_plan(1, 240.0).requests_s
    with pytest.raises(ValueError, match="more than 0"):
        calm(2, 0.0)


def test_the_history_shares_by_utilisation_and_leaves_room_for_neighbours() -> None:
    spec = policy(Rule.HISTORY)["spec"]
    assert spec == {"risk": {"predictor": "UtilisationSum"}, "packing": {"maxPercentSum": 100}}
    for arrival in calm(2, 240.0).jobs:
        body = job(arrival, Rule.HISTORY)["spec"]
        assert isinstance(body, dict)
        assert body["gpu"]["share"]["maxPercent"] <= 50
        assert body["gpu"]["share"]["minPercent"] == CLASSES[arrival.workload_class].share[0]


def test_the_name_of_the_service_is_no_jobs(tmp_path: Path) -> None:
    assert SERVICE not in {one.name for one in mixed_plan(1, 600.0).jobs}


def test_how_busy_the_machine_is_lies_between_nothing_and_all() -> None:
    assert 0.0 <= local.machine_busy(0.2) <= 1.0
