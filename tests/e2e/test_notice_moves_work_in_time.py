# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A machine is about to be taken away: its job saves, goes on elsewhere, and loses no step.

The metadata endpoint is a fake on this machine, one for all nodes, which tells them apart by the
addresses of their agents.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from demo.install import CHARTS, NAMESPACE, RELEASE, agents_rolled, chart_values
from e2e.served import NAME, scaled_service
from e2e.stack import Stack, busy_template, eventually, share, training_job
from fakes.metadata import FakeEC2

NOTICE_S = 600
"""Long enough for a busy machine; how soon work moves is stated in virtual time."""
STEPS = 20
"""That a job does before its machine is taken, or there is nothing to lose."""
TAINT = "ullage.dev/interruption"

SAVES = """
import json, os, signal, sys, time
import ullage_run
folder, STEPS = sys.argv[1], int(sys.argv[2])
saved = os.path.join(folder, "checkpoint")
step = json.load(open(saved)) if os.path.exists(saved) else 0
def note(**said):
    with open(os.path.join(folder, "notes"), "a") as notes:
        notes.write(json.dumps(said | {"pod": os.uname().nodename, "at": time.time()}) + "\\n")
def save(*_):
    note(told=step)
    with open(saved + ".new", "w") as new:
        json.dump(step, new)
        new.flush()
        os.fsync(new.fileno())
    os.replace(saved + ".new", saved)
    note(saved=step)
    os._exit(143)
note(begins=step)
signal.signal(signal.SIGTERM, save)
while True:
    sum(i * i for i in range(20000))
    step += 1
    if step == STEPS:
        note(stepped=step)
    ullage_run.step()
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Provider:
    """The endpoint, served from a thread, and the address by which pods reach this machine."""

    server: FakeEC2
    agents: dict[str, str]
    """Address of each node's agent."""

    def interrupt(self, node: str) -> float:
        """Give a node notice; returns the moment."""
        self.server.machines = frozenset({self.agents[node]})
        end = datetime.fromtimestamp(time.time() + NOTICE_S, UTC)
        self.server.interrupt(end.strftime("%Y-%m-%dT%H:%M:%SZ"))
        return time.time()


def _serve(server: FakeEC2, started: threading.Event, stop: threading.Event) -> None:
    async def serve() -> None:
        async with server:
            started.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)

    asyncio.run(serve())


def _upgrade(stack: Stack, *words: str) -> None:
    stack.cluster.helm(
        "upgrade", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE, "--wait",
        "--timeout", "15m", *chart_values(), *words,
    )  # fmt: skip
    agents_rolled(stack.cluster)


def _agents(stack: Stack) -> dict[str, str]:
    """Addresses of the agents by node; empty while one has none yet."""
    pods = stack.list("pods", NAMESPACE, "app.kubernetes.io/component=node")
    found = {
        pod["spec"]["nodeName"]: pod["status"].get("podIP", "")
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }
    return found if all(found.values()) else {}


def _address_of_this_machine(stack: Stack) -> str:
    """The API server runs here, and pods reach it by this address."""
    slices = stack.list("endpointslices", "default", "kubernetes.io/service-name=kubernetes")
    address: str = slices[0]["endpoints"][0]["addresses"][0]
    return address


@pytest.fixture(scope="module")
def listened(stack: Stack) -> Iterator[Provider]:
    """Agents that listen to the fake endpoint; afterwards they listen to no one again."""
    server, started, stop = FakeEC2("0.0.0.0"), threading.Event(), threading.Event()
    server.machines = frozenset()
    thread = threading.Thread(target=_serve, args=(server, started, stop))
    thread.start()
    try:
        assert started.wait(60)
        url = f"http://{_address_of_this_machine(stack)}:{server.port}"
        _upgrade(stack, "--set", "node.notices.provider=EC2", "--set", f"node.notices.url={url}")
        found = eventually(
            lambda: (
                agents
                if (agents := _agents(stack)) and set(agents.values()) <= server.listeners
                else None
            ),
            within_s=60,
            what="every agent asks for notices, from an address of its own",
        )
        yield Provider(server=server, agents=found)
    finally:
        stop.set()
        thread.join()
        _upgrade(stack)


@pytest.fixture
def provider(stack: Stack, listened: Provider) -> Iterator[Provider]:
    """The endpoint, without any notice before and after."""
    yield listened
    listened.server.withdraw()
    eventually(lambda: not _noticed(stack), within_s=60, what="every notice is withdrawn")
    eventually(lambda: not _tainted(stack), within_s=60, what="the taint is lifted")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all nodes share and containers may write to; pods see it under /saves.

    Not below /var/tmp: of that every node has one of its own.
    """
    with tempfile.TemporaryDirectory(prefix="ullage-notice-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def _tainted(stack: Stack) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in stack.list("nodes")
        if any(taint["key"] == TAINT for taint in node["spec"].get("taints", []))
    ]


def _noticed(stack: Stack) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in stack.list("gpunodes.ullage.dev")
        if "interruption" in node.get("status", {})
    ]


def _notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _saving_job(namespace: str, folder: Path) -> dict[str, Any]:
    container = {
        "command": ["python3", "-c", SAVES, "/saves", str(STEPS)],
        "volumeMounts": [{"name": "saves", "mountPath": "/saves"}],
    }
    volume = {"name": "saves", "hostPath": {"path": str(folder), "type": "Directory"}}
    template = busy_template(container=container, volumes=[volume])
    return training_job(
        "saves", namespace, template, gpu=share(30), checkpoint={"graceSeconds": 20}
    )


def _where(stack: Stack, namespace: str) -> str:
    (pod,) = stack.pods(namespace, "saves")
    node: str = pod["spec"]["nodeName"]
    return node


def test_a_notice_moves_a_job_and_no_step_is_lost(
    stack: Stack, provider: Provider, namespace: str, folder: Path
) -> None:
    stack.apply(_saving_job(namespace, folder))
    stack.job_reaches("saves", namespace, "Running")
    where = _where(stack, namespace)
    eventually(
        lambda: any("stepped" in note for note in _notes(folder)),
        within_s=60,
        what=f"the job has done {STEPS} steps",
    )

    given_at = provider.interrupt(where)
    told = eventually(
        lambda: next((note for note in _notes(folder) if "told" in note), None),
        within_s=60,
        every_s=0.1,
        what="the job is asked to save",
    )
    print(f"reaction to a notice: {told['at'] - given_at:.2f} s")

    again = eventually(
        lambda: next((note for note in _notes(folder)[1:] if "begins" in note), None),
        within_s=120,
        what="the job goes on",
    )
    (saved,) = (note for note in _notes(folder) if "saved" in note)
    print(f"steps: {saved['saved']} saved, goes on at {again['begins']}, "
          f"{again['at'] - given_at:.1f} s after the notice")  # fmt: skip
    assert told["at"] <= saved["at"] <= again["at"] < given_at + NOTICE_S
    assert saved["saved"] > 0
    assert again["begins"] == saved["saved"] == told["told"], "steps were lost"

    status = stack.job_reaches("saves", namespace, "Running")
    assert _where(stack, namespace) != where
    assert status.get("restarts", 0) == 0
    assert _tainted(stack) == [where]
    stack.tells(namespace, "saves", "EvictionNotice", "SpotInterrupted")
    said = (stack.get("gpunodes.ullage.dev", where) or {})["status"]["interruption"]
    assert (said["kind"], said["source"]) == ("Terminate", "EC2")
    stack.books_balance()


def test_a_recommendation_keeps_new_work_away_and_moves_no_one(
    stack: Stack, provider: Provider, namespace: str, folder: Path
) -> None:
    stack.apply(_saving_job(namespace, folder))
    stack.job_reaches("saves", namespace, "Running")
    where = _where(stack, namespace)
    (pod,) = stack.pods(namespace, "saves")
    provider.server.machines = frozenset({provider.agents[where]})
    provider.server.recommend("2026-01-02T03:04:05Z")

    def said() -> bool:
        node = stack.get("gpunodes.ullage.dev", where) or {}
        return node["status"].get("interruption", {}).get("kind") == "Rebalance"

    eventually(said, within_s=30, what="the recommendation is reported")
    # a decision that comes after it: the operator has read it, too
    stack.apply(training_job("looks", namespace, accelerators=["no-such-device"]))
    stack.job_waits_for("looks", namespace, "UnknownAccelerator")
    stack.apply(training_job("new", namespace, gpu=share(20)))
    stack.job_reaches("new", namespace, "Running")
    (new,) = stack.pods(namespace, "new")
    assert new["spec"]["nodeName"] != where
    (same,) = stack.pods(namespace, "saves")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert _tainted(stack) == []


def _serving(stack: Stack, namespace: str) -> dict[str, str]:
    """Nodes of the replicas that are ready and stay, by name of the pod."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in stack.pods(namespace, NAME)
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in pod.get("status", {}).get("conditions", [])
        )
    }


def _phases(stack: Stack, namespace: str) -> dict[str, str]:
    jobs = stack.list("trainingjobs.ullage.dev", namespace)
    return {one["metadata"]["name"]: one.get("status", {}).get("phase", "") for one in jobs}


def test_a_replica_is_replaced_before_the_loss_where_training_makes_way(
    stack: Stack, provider: Provider, namespace: str
) -> None:
    most = share(60)  # only one has so much of a device
    stack.apply(scaled_service(namespace, "SLO", gpu=most))
    (where,) = eventually(
        lambda: _serving(stack, namespace), within_s=120, what="a replica serves"
    ).values()
    devices = sum(
        len(node["status"].get("devices", [])) for node in stack.list("gpunodes.ullage.dev")
    )
    for number in range(devices - 1):
        stack.apply(
            training_job(f"fills-{number}", namespace, gpu=most, checkpoint={"graceSeconds": 5})
        )
    eventually(
        lambda: set(_phases(stack, namespace).values()) == {"Running"},
        within_s=180,
        what="training has every other device",
    )

    given_at, fewest = provider.interrupt(where), 1

    def replaced() -> bool:
        nonlocal fewest
        serving = _serving(stack, namespace)
        fewest = min(fewest, len(serving))
        return bool(serving) and where not in serving.values()

    eventually(replaced, within_s=NOTICE_S, every_s=0.5, what="a replica serves elsewhere alone")
    print(f"replaced {time.time() - given_at:.1f} s after the notice of {NOTICE_S} s")
    assert fewest == 1, "for a while no replica was ready"

    def made_way() -> bool:
        return any(
            "whose load needs the devices back" in event["message"]
            for name in _phases(stack, namespace)
            for event in stack.events(namespace, name)
            if event["reason"] == "Preempted"
        )

    eventually(made_way, within_s=60, what="an Event on the training that made way")
