# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The web page: what it shows, that nothing of a user's becomes markup, and that it is bounded."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from builders import NOW, a_gpu_node, a_job, a_node, a_slice, a_snapshot, gpu
from fakes.trace_world import a_request
from ullage.api.devices import Health
from ullage.api.rank_traces import TimeBreakdown
from ullage.api.reasons import Reason
from ullage.app.web_page import FILES, WebPage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, DecisionRecord, Sharing, SpendRecord
from ullage.cluster.records.trace import ProfileRequestStatus, StepWindow
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.tracing.job_trace import (
    ClockAlignment,
    DelayCause,
    JobTrace,
    Straggler,
    TracedRank,
)
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S
from ullage.web.state import LONGEST_TEXT, MOST_RANKS, MOST_ROWS, page_state

SCRIPT = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
RTL = "\u202egnitiaw\u0645\u0631\u062d\u0628\u0627"


def job(name: str, **fields: Any) -> WorkloadRecord:
    made = a_job(name).build()
    status = {
        one: fields.pop(one) for one in ("phase", "decision", "sharing", "spend") if one in fields
    }
    return replace(made, status=replace(made.status, **status), **fields)


def waiting(name: str, message: str = "no room", **fields: Any) -> WorkloadRecord:
    decision = DecisionRecord(
        time=NOW,
        epoch=1,
        inputs_hash="",
        chosen="",
        runner_up="",
        reason=Reason.NO_CAPACITY,
        message=message,
    )
    return job(name, phase="Pending", decision=decision, **fields)


def a_cluster(*more: WorkloadRecord) -> Snapshot:
    jobs = (
        waiting("older", created=NOW - 500),
        waiting("urgent", created=NOW - 5, priority=100),
        job(
            "shares",
            phase="Running",
            max_slowdown=1.3,
            sharing=Sharing(
                percent=40,
                memory_mib=1024,
                predicted="1.12",
                predicted_upper="1.25",
                observed="1.42",
            ),
            spend=SpendRecord(account=Account(since=NOW, as_of=NOW, total="12.5")),
            tenant="research",
        ),
        *more,
    )
    seen = a_snapshot(a_node(), a_gpu_node())
    return replace(seen, workloads={one.ref.uid: one for one in jobs})


def shown(snapshot: Snapshot) -> Any:
    return json.loads(json.dumps(page_state(snapshot, "EUR")))


def test_the_queue_is_told_by_need_with_reason_and_what_helps() -> None:
    queue = shown(a_cluster())["queue"]
    assert [one["name"] for one in queue["items"]] == ["urgent", "older"]
    first = queue["items"][0]
    assert (first["reason"], first["message"], first["ageSeconds"]) == ("NoCapacity", "no room", 5)
    assert first["whatHelps"]


def test_devices_that_are_not_well_come_first_then_by_node() -> None:
    nodes = [a_gpu_node(name, devices=2) for name in ("node-1", "node-2")]
    second = nodes[1]
    sick = replace(second.devices[1], health=Health.UNHEALTHY)
    nodes[1] = replace(second, devices=(second.devices[0], sick))
    snapshot = a_snapshot(a_node("node-1"), a_node("node-2"), *nodes)
    devices = shown(snapshot)["devices"]["items"]
    assert [(one["node"], one["health"]) for one in devices] == [
        ("node-2", "Unhealthy"),
        ("node-1", "Healthy"),
        ("node-1", "Healthy"),
        ("node-2", "Healthy"),
    ]
    assert [one["headroomPercent"] for one in devices] == [0, 100, 100, 100]
    silent = [replace(nodes[0], heartbeat=NOW - HEARTBEAT_MAX_AGE_S - 1)]
    late = shown(a_snapshot(a_node("node-1"), *silent))["devices"]["items"]
    assert {one["health"] for one in late} == {"Silent"}
    on_time = [replace(nodes[0], heartbeat=NOW - HEARTBEAT_MAX_AGE_S)]
    heard = shown(a_snapshot(a_node("node-1"), *on_time))["devices"]["items"]
    assert {one["health"] for one in heard} == {"Healthy"}


def test_a_lane_counts_once_however_many_take_turns_in_it() -> None:
    job = a_job("small").fractional(60, 99).gang(3)
    slices = [
        replace(
            a_slice(pod, device=gpu("node-1"), percent=60, memory_mib=3000),
            lane=2,
            persistent_mib=1000,
            ephemeral_mib=2000,
        )
        for pod in job.pods()
    ]
    node = a_gpu_node("node-1", devices=1, desired=slices)
    (device,) = shown(a_snapshot(node, job))["devices"]["items"]
    assert [one["lane"] for one in device["slices"]] == [2, 2, 2]
    assert (device["grantedPercent"], device["headroomPercent"]) == (60, 40)
    assert device["grantedMemoryMiB"] == 3 * 1000 + 2000


def test_objectives_stand_beside_what_was_observed_and_cost_beside_its_currency() -> None:
    state = shown(a_cluster())
    (one,) = state["objectives"]["items"]
    assert (one["maxSlowdown"], one["predicted"], one["observed"]) == ("1.3", "1.12", "1.42")
    (bill,) = state["cost"]["items"]
    assert (bill["tenant"], bill["spent"], state["currency"]) == ("research", "12.50", "EUR")


@pytest.mark.slow
def test_ten_thousand_jobs_are_a_page_of_the_first_and_a_number() -> None:
    many = (waiting(f"job-{n}", "because " * 1300, created=NOW - n) for n in range(10_000))
    state = page_state(a_cluster(*many), "USD")
    assert len(json.dumps(state)) < 400_000
    queue = shown(a_cluster(*(waiting(f"job-{n}") for n in range(10_000))))["queue"]
    assert (queue["total"], len(queue["items"])) == (10_002, MOST_ROWS)


def test_a_message_is_cut_and_holds_no_control_characters() -> None:
    queue = shown(a_cluster(waiting("wild", RTL + "\x00\x1b[31m" + "x" * 10_000, priority=200)))[
        "queue"
    ]
    message = queue["items"][0]["message"]
    assert len(message) == LONGEST_TEXT
    assert message.isprintable()


@asynccontextmanager
async def served(snapshot: Snapshot) -> AsyncIterator[str]:
    page = WebPage(lambda: snapshot, "EUR")
    await page.start(0, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{page.port}"
    finally:
        await page.stop()


async def got(url: str, **headers: str) -> tuple[int, Mapping[str, str], str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


async def test_every_file_is_ours_relative_and_under_a_strict_policy() -> None:
    async with served(a_cluster()) as address:
        for path in (*FILES, "/state.json"):
            status, headers, text = await got(address + path)
            assert status == 200
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            if path != "/state.json":
                assert not re.search(
                    r"https?://|//[a-z]+\.|innerHTML|eval\(|\sstyle=|\son\w+=", text
                )
                assert not re.search(r"(?:href|src)=\"/|fetch\(\"/", text), "URLs are relative"


async def test_a_site_that_names_itself_as_loopback_gets_nothing() -> None:
    async with served(a_cluster()) as address:
        assert (await got(f"{address}/state.json", Host="evil.example:80"))[0] == 403
        port = address.rpartition(":")[2]
        assert (await got(f"{address}/state.json", Host=f"localhost:{port}"))[0] == 200


async def test_nothing_can_be_written() -> None:
    async with served(a_cluster()) as address, aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{address}/state.json", data=b"x") as answer:
                assert answer.status == 405
        async with session.get(f"{address}/%2e%2e/state.py") as answer:
            assert answer.status == 404


CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium")
async def test_a_browser_shows_hostile_names_as_text(tmp_path: Path) -> None:
    import asyncio

    wild = waiting("wild", SCRIPT, priority=200, tenant=RTL)
    wild = replace(wild, ref=replace(wild.ref, name=SCRIPT))
    async with served(a_cluster(wild)) as address:
        words = (
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--virtual-time-budget=3000", f"--user-data-dir={tmp_path}", f"{address}/",
        )  # fmt: skip
        done = await asyncio.to_thread(
            subprocess.run, words, capture_output=True, text=True, timeout=100, check=False
        )
    page = done.stdout
    assert re.search(r"as of \d{4}-", page), done.stderr[-2000:]
    assert "&lt;script&gt;document.title" in page
    assert "<title>Ullage</title>" in page
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "1.42x (above)" in page
    assert re.search(r'class="bar"', page)


def test_a_trace_has_a_bar_for_each_rank_and_no_text_of_its_own() -> None:
    hostile = "<script>alert(1)</script>"
    result = JobTrace(
        steps=5,
        alignment=ClockAlignment.ONE_CLOCK,
        straggler=Straggler(rank=2, cause=DelayCause.INPUT, arrives_last=5, collectives=5),
        ranks=tuple(
            TracedRank(
                rank=rank,
                step=TimeBreakdown(
                    span_micros=1000,
                    compute_micros=410,
                    communication_micros=220,
                    data_wait_micros=90,
                    idle_micros=280,
                ),
            )
            for rank in range(MOST_RANKS + 3)
        ),
        message=hostile,
    )
    status = ProfileRequestStatus(
        phase="Done",
        completion_time=NOW - 60,
        window=StepWindow(first_step=1200, last_step=1204),
        result=result,
        message=hostile,
    )
    requests = [a_request(status=status), a_request("open")]
    traces = json.loads(json.dumps(page_state(a_cluster(), "EUR", requests)))["traces"]
    assert traces["total"] == 1
    (trace,) = traces["items"]
    assert (trace["name"], trace["steps"], trace["last"]) == ("digits", "1200-1204", 2)
    assert (len(trace["ranks"]), trace["ranksLeftOut"]) == (MOST_RANKS, 3)
    assert trace["ranks"][2] == {
        "rank": 2,
        "computePercent": 41,
        "communicationPercent": 22,
        "dataWaitPercent": 9,
    }
    assert hostile not in json.dumps(traces)
