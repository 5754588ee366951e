# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs get the type and number that are recommended to them on real nodes, or are told why not.

In a queue and in turns, while the type is there, after it went, and when a better one comes free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from demo.cluster import EmulatedDevice
from demo.images import image_name
from e2e.conftest import DEVICES
from e2e.served import LIGHT_PER_S, NAME, SLOW_NODE, offered, scaled_service, until, url_of
from e2e.stack import Json, Stack, eventually, share, training_job, whole_device

DEAR, CHEAP, PLAIN = "choice-dear", "choice-cheap", "choice-plain"
BOTH = [DEAR, CHEAP]
TYPES = {
    "node-1": [
        *(EmulatedDevice(core=0, percent=20, model=PLAIN) for _ in range(2)),
        *(EmulatedDevice(core=0, percent=20, model=DEAR) for _ in range(3)),
    ],
    "node-2": [
        *(EmulatedDevice(core=1, percent=20, model=PLAIN) for _ in range(2)),
        *(EmulatedDevice(core=1, percent=20, model=CHEAP) for _ in range(3)),
    ],
}
PRICES = {DEAR: "4", CHEAP: "0.6", PLAIN: "9"}
RATES = {DEAR: 3.0, CHEAP: 1.0, PLAIN: 1.0}
STEPS = 36_000
"""Ten hours and 6.00 on the cheap type, a third of the time and 13.33 on the dear one."""
ROUND_S = 15
CHOSEN = "ShareChosen"
AS_WANTED = ("True", "Recommended")

PACED = """
import os, signal, sys, time
import ullage_run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pause_s = 1 / 3 if os.environ["NODE"] == "node-1" else 1.0
while True:
    ullage_run.step()
    time.sleep(pause_s)
"""
"""Takes as long for a step as is declared of the types, so that measuring it changes nothing."""


@pytest.fixture(scope="module")
def types(stack: Stack) -> Iterator[None]:
    """Two types on a node each, and one on both, with prices; as before afterwards."""
    stack.offer(TYPES)
    try:
        stack.apply(*(_priced(kind) for kind in PRICES))
        yield
    finally:
        stack.offer(DEVICES)
        stack.cluster.kubectl("delete", "deviceprofiles.ullage.dev", *PRICES, "--ignore-not-found")


@pytest.fixture
def choice(stack: Stack, types: None, namespace: str) -> Iterator[str]:
    """A namespace with a class whose speeds are known; no policy is left behind."""
    try:
        stack.apply(_profile("chooses", namespace))
        yield namespace
    finally:
        stack.cluster.kubectl("delete", "trainingjobs.ullage.dev", "--all", "-n", namespace)
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )


def _priced(kind: str) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "DeviceProfile",
        "metadata": {"name": kind},
        "spec": {"memory": "8Gi", "pricePerHour": PRICES[kind]},
    }


def _policy(**spec: Any) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def _profile(workload_class: str, namespace: str, **spec: Any) -> Json:
    solo = [
        {"device": kind, "share": 100, "stepsPerSecond": rate, "peakMemoryBytes": 2**30}
        for kind, rate in RATES.items()
    ]
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": workload_class, "namespace": namespace},
        "spec": {"class": workload_class, "solo": solo, **spec},
    }


def _template(workload_class: str, **pod: Any) -> Json:
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "main",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", PACED],
        "env": [node],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
    }
    return {
        "metadata": {"labels": {"ullage.dev/class": workload_class}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **pod},
    }


def _job(
    name: str,
    namespace: str,
    cost: Json | None = None,
    workload_class: str = "chooses",
    *,
    node: str = "",
    **spec: Any,
) -> Json:
    """A job of whole devices that can save its work; ``node`` is where it has to run."""
    template = _template(
        workload_class, **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {})
    )
    shape = {"gpu": whole_device(), "checkpoint": {"signal": "SIGTERM", "graceSeconds": 2}}
    aim = {"work": {"steps": STEPS}, "cost": cost} if cost else {}
    return training_job(name, namespace, template, **(shape | aim | spec))


def _verdict(stack: Stack, name: str, namespace: str) -> tuple[str, str, str]:
    """Status, reason and message of ``AsRecommended``; empty while it is not there."""
    conditions = stack.job(name, namespace).get("conditions", [])
    found = next((one for one in conditions if one["type"] == "AsRecommended"), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def _has(
    stack: Stack, name: str, namespace: str, said: str, verdict: tuple[str, str] = AS_WANTED
) -> None:
    """Wait until a job has these devices, with this verdict on them."""
    try:
        eventually(
            lambda: (found := _verdict(stack, name, namespace))[:2] == verdict and said in found[2],
            within_s=90,
            what=f"{name} {said}: {verdict}",
        )
    except AssertionError as error:
        raise AssertionError(f"{error}; now {_verdict(stack, name, namespace)}") from None


def _pods(stack: Stack, name: str, namespace: str) -> dict[str, str]:
    """Nodes of a job's pods that run and stay, by uid."""
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in stack.pods(namespace, name)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def test_what_is_recommended_is_what_jobs_get(stack: Stack, choice: str) -> None:
    stack.apply(
        _job("listed", choice, {"objective": "CostPerWork"}, accelerators=BOTH),
        _job("capped", choice, {"maxCost": "8"}),
        _job("too-dear", choice, {"maxCost": "5"}),
        _job("elastic", choice, {"objective": "CostPerWork"},
             elasticity={"minReplicas": 1, "maxReplicas": 3}),
        _job("wide", choice, {"objective": "Makespan"}, replicas=5),
        _job("unknown", choice, {"maxCost": "8"}, "never-ran", accelerators=[PLAIN]),
    )  # fmt: skip
    for name in ("listed", "capped", "elastic"):
        _has(stack, name, choice, f"has 1 x {CHEAP}")
    stack.job_waits_for("too-dear", choice, "OverCost")
    stack.job_waits_for("wide", choice, "GangTooLarge")
    _has(stack, "unknown", choice, f"has 1 x {PLAIN}", ("False", "NoEstimate"))
    # last: it may take all of a type that is left
    stack.apply(
        _job("mixed", choice, {"objective": "Makespan"}, replicas=5,
             accelerators=[DEAR, PLAIN], mixedAccelerators=True)
    )  # fmt: skip
    _has(stack, "mixed", choice, f"has 5 x {DEAR} and {PLAIN}", ("False", "NotAvailable"))
    stack.books_balance()


def test_in_turns_a_type_goes_and_comes_back_and_no_work_is_lost(stack: Stack, choice: str) -> None:
    stack.apply(_policy(objective="MaxMinFairness", roundSeconds=ROUND_S))
    frugal = {"objective": "CostPerWork"}
    stack.apply(
        _job("frugal", choice, frugal),
        _job("elastic", choice, frugal, elasticity={"minReplicas": 1, "maxReplicas": 3}),
        _job("capped", choice, {"maxCost": "8"}),
        _job("too-dear", choice, {"maxCost": "5"}),
        _job("hasty", choice, {"objective": "Makespan"}),
        _job("wide", choice, {"objective": "Makespan"}, replicas=5),
    )
    for name in ("frugal", "elastic", "capped"):
        _has(stack, name, choice, f"has 1 x {CHEAP}")
    _has(stack, "hasty", choice, f"has 1 x {DEAR}")
    stack.job_waits_for("too-dear", choice, "OverCost")
    stack.job_waits_for("wide", choice, "GangTooLarge")
    untouched = eventually(
        lambda: _pods(stack, "hasty", choice), within_s=60, what="the hasty one has its pod"
    )

    kept = [one for one in TYPES["node-2"] if one.model != CHEAP]
    stack.cluster.write_devices("node-2", kept)
    try:
        _has(stack, "frugal", choice, f"has 1 x {DEAR}")
        _has(stack, "elastic", choice, f"has 1 x {DEAR}")
        stack.job_waits_for("capped", choice, "OverCost")
        eventually(
            lambda: not _pods(stack, "capped", choice),
            within_s=60,
            what="no turn on what breaks its cap",
        )
    finally:
        stack.cluster.write_devices("node-2", TYPES["node-2"])
    for name in ("capped", "frugal", "elastic"):
        _has(stack, name, choice, f"has 1 x {CHEAP}")
    assert _pods(stack, "hasty", choice) == untouched
    stack.books_balance()


def test_a_job_moves_when_the_better_type_comes_free(stack: Stack, choice: str) -> None:
    stack.apply(_policy(reconsider={"holdSeconds": 10}))
    stack.apply(_job("holds", choice, gpu=whole_device(3), accelerators=[CHEAP]))
    stack.job_reaches("holds", choice, "Running")
    stays = _job("stays", choice, {"objective": "CostPerWork"})
    del stays["spec"]["checkpoint"]
    stack.apply(_job("moves", choice, {"objective": "CostPerWork"}), stays)
    told = ("False", "BetterChoice")
    _has(stack, "moves", choice, f"{CHEAP} would save", told)
    _has(stack, "stays", choice, "because without spec.checkpoint", told)
    before = eventually(lambda: _pods(stack, "stays", choice), within_s=60, what="its pod runs")

    _a_gang_waits_for_one_node(stack, choice)  # a minute has to pass before anyone moves

    stack.delete("trainingjobs.ullage.dev", "holds", choice)
    _has(stack, "moves", choice, f"has 1 x {CHEAP}")
    eventually(
        lambda: set(_pods(stack, "moves", choice).values()) == {"node-2"},
        within_s=90,
        what="its pod runs there",
    )
    assert stack.job("moves", choice).get("restarts", 0) == 0
    stack.tells(choice, "moves", "BetterChoice")
    assert _pods(stack, "stays", choice) == before
    stack.books_balance()


def _a_gang_waits_for_one_node(stack: Stack, namespace: str) -> None:
    """A gang that is slower over two nodes waits though both have room, and takes one of them."""
    stack.apply(_profile("slower-apart", namespace, acrossNodes=0.5))
    on_plain = {"accelerators": [PLAIN]}
    stack.apply(*(_job(f"on-{node}", namespace, node=node, **on_plain) for node in TYPES))
    for node in TYPES:
        stack.job_reaches(f"on-{node}", namespace, "Running")
    stack.apply(_job("gang", namespace, None, "slower-apart", replicas=2, **on_plain))
    said = stack.job_waits_for("gang", namespace, "WaitsForFewerNodes")
    assert "2 nodes, where it keeps 50 % of its speed" in said["message"]
    stack.delete("trainingjobs.ullage.dev", "on-node-2", namespace)
    stack.job_reaches("gang", namespace, "Running")
    assert list(_pods(stack, "gang", namespace).values()) == ["node-2", "node-2"]


def _served(namespace: str, *accelerators: str) -> Json:
    """A service whose requests take .3 s on the cheap type, .1 s on the dear one."""
    body = scaled_service(namespace, "SLO", share(50, memory={"limit": "256Mi"}))
    spec = body["spec"]
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    env = [node, {"name": SLOW_NODE, "value": "node-2"}]
    spec["template"]["spec"]["containers"][0]["env"] = env
    spec["template"]["metadata"] = {"labels": {"ullage.dev/class": "answers"}}
    spec["slo"]["latencyMs"] = 250
    return body | {
        "spec": spec
        | {
            "accelerators": list(accelerators),
            "profileRef": "answers",
            "sharing": {"resizable": "Restart"},
        }
    }


def test_a_service_moves_to_the_accelerator_that_keeps_its_objective(
    stack: Stack, types: None, namespace: str
) -> None:
    stack.apply(_profile("answers", namespace), _served(namespace, CHEAP))

    def scaling(reason: str) -> Json:
        return until(
            stack,
            namespace,
            f"the service scales: {reason}",
            180,
            lambda it: it.get("status", {}).get("scaling", {}).get("reason") == reason,
        )

    until(
        stack,
        namespace,
        "a ready replica",
        120,
        lambda it: it.get("status", {}).get("readyReplicas") == 1,
    )
    with offered(url_of(stack, namespace), LIGHT_PER_S) as load:
        scaling("OutOfReach")
        stack.apply(_served(namespace, CHEAP, DEAR))
        found = scaling("Steady")
        assert found["status"]["scaling"]["share"] == {
            "percent": 50,
            "accelerator": DEAR,
            "time": found["status"]["scaling"]["share"]["time"],
        }
        eventually(
            lambda: (
                {one["spec"].get("nodeName") for one in stack.pods(namespace, NAME)} == {"node-1"}
            ),
            within_s=120,
            what="replicas on the dear type alone",
        )
    assert all(one.latency_s is not None for one in load.made[:-10])
    (chosen, *_) = stack.tells(namespace, NAME, CHOSEN)
    assert f"50 % of one {DEAR}" in chosen["message"]
    stack.books_balance()
