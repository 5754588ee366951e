# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang in place on two nodes: a member is lost and comes back, and the other never notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.stack import Json, Stack, busy_template, eventually, share, training_job
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_ROOM_LASTS_IN_PLACE_S

JOINS_S = GANG_HOLD_IN_PLACE_S + GANG_ROOM_LASTS_IN_PLACE_S + 60
"""Time for the hold, for room to last, and for a pod to start."""
PLACES = ("PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "ULLAGE_MEMBER")
NUMBERS = ("RANK", "WORLD_SIZE", "PET_NODE_RANK", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def _in_place(name: str, namespace: str, template: Json | None = None, **spec: object) -> Json:
    """One or two members, no two of them on one device."""
    bounds = {"minReplicas": 1, "maxReplicas": 2, "membership": "InPlace"}
    return training_job(
        name,
        namespace,
        template,
        elasticity=bounds,
        checkpoint={"graceSeconds": 5},
        gpu=share(70),
        **spec,
    )


def _running(stack: Stack, name: str, namespace: str) -> dict[str, Json]:
    """Pods that run and stay, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in stack.pods(namespace, name)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def _has(stack: Stack, name: str, namespace: str, members: int, within_s: float) -> Json:
    """Wait until so many members run and the status says so; returns the status."""

    def look() -> Json | None:
        status = stack.job(name, namespace)
        there = len(_running(stack, name, namespace)) == members == status.get("replicas")
        return status if there and status.get("phase") == "Running" else None

    return eventually(look, within_s=within_s, what=f"{name} has {members} members")


def _identity(pod: Json) -> tuple[str, int, str]:
    """What changes when a pod or its container starts again."""
    (container,) = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], container["restartCount"], container["containerID"]


def _on(pods: dict[str, Json], node: str) -> str:
    return next(name for name, pod in pods.items() if pod["spec"]["nodeName"] == node)


@pytest.fixture
def second_node(stack: Stack) -> Iterator[str]:
    """node-2, which takes work again whatever happens."""
    yield "node-2"
    stack.cluster.kubectl("uncordon", "node-2")


@pytest.mark.timeout(1800, func_only=True)
def test_a_member_is_lost_and_comes_back_and_the_other_runs_on(
    stack: Stack, namespace: str, second_node: str
) -> None:
    name = "stays"
    stack.apply(_in_place(name, namespace))
    _has(stack, name, namespace, 2, within_s=90 + JOINS_S)
    before = _running(stack, name, namespace)
    lost, left = _on(before, second_node), _on(before, "node-1")
    stack.cluster.kubectl("cordon", second_node)
    stack.delete("pod", lost, namespace, "--grace-period=0", "--force", "--wait=false")

    alone = _has(stack, name, namespace, 1, within_s=60)
    assert alone["size"]["reason"] == "Shrunk"
    assert alone["size"]["message"].endswith("goes on in place with 1 of 2 members")
    assert lost in alone["size"]["message"]
    assert _identity(_running(stack, name, namespace)[left]) == _identity(before[left])

    stack.cluster.kubectl("uncordon", second_node)
    grown = _has(stack, name, namespace, 2, within_s=JOINS_S)
    assert grown["size"]["reason"] == "Grown"
    assert grown.get("restarts", 0) == 0
    after = _running(stack, name, namespace)
    assert set(after) == {lost, left}
    assert _identity(after[left]) == _identity(before[left])
    assert after[lost]["metadata"]["uid"] != before[lost]["metadata"]["uid"]
    assert after[lost]["spec"]["nodeName"] == second_node
    stack.tells(namespace, name, "Shrunk", "Grown")
    assert "MemberLost" not in {event["reason"] for event in stack.events(namespace, name)}
    stack.books_balance()


def test_its_pods_are_told_bounds_and_no_number_that_would_be_wrong(
    stack: Stack, namespace: str
) -> None:
    stack.apply(_in_place("told", namespace))
    _has(stack, "told", namespace, 2, within_s=90 + JOINS_S)
    for name, pod in _running(stack, "told", namespace).items():
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert [env[key] for key in PLACES] == ["1:2", "c10d", "told-0.told-workers:29500", name]
        assert not env.keys() & set(NUMBERS)
    stack.books_balance()


@pytest.mark.timeout(1800, func_only=True)
def test_a_member_that_fails_is_replaced_alone_until_the_policy_is_used_up(
    stack: Stack, namespace: str
) -> None:
    policy = {"maxRestarts": 1}
    stack.apply(_in_place("fails", namespace, busy_template(exit_code=3), failurePolicy=policy))
    _has(stack, "fails", namespace, 2, within_s=90 + JOINS_S)
    first = _identity(_running(stack, "fails", namespace)["fails-0"])
    stack.finish("fails-1", namespace)
    counted = eventually(
        lambda: found if (found := stack.job("fails", namespace)).get("restarts", 0) == 1 else None,
        within_s=60,
        what="the failure of one member is counted",
    )
    assert counted["phase"] == "Running"
    assert "fails-1 failed with exit code 3" in counted["size"]["message"]
    _has(stack, "fails", namespace, 2, within_s=JOINS_S)
    assert _identity(_running(stack, "fails", namespace)["fails-0"]) == first
    stack.finish("fails-1", namespace)
    stack.job_reaches("fails", namespace, "Failed", within_s=60)
    eventually(
        lambda: not _running(stack, "fails", namespace), within_s=60, what="no one is left running"
    )
    stack.books_balance()
