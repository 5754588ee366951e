# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The check of devices, slices and pods finds each kind of harm, and only what lasts counts."""

from __future__ import annotations

from typing import Any

import pytest

from bench.books import PATIENCE_S, Books, Kind, Problem, ProblemLog, problems, wanted_slices

Json = dict[str, Any]


def _slice(uid: str, percent: int = 40, gpu: str = "gpu-0") -> Json:
    return {
        "podUID": uid,
        "container": "main",
        "index": 0,
        "podNamespace": "ns",
        "podName": f"pod-{uid}",
        "gpu": gpu,
        "percent": percent,
        "memoryMiB": 64,
    }


def _node(*slices: Json, name: str = "node-1", told: tuple[Json, ...] = ()) -> Json:
    devices = [{"uuid": "gpu-0", "memoryMiB": 1000}]
    return {
        "metadata": {"name": name},
        "spec": {"slices": list(slices)},
        "status": {"devices": devices, "slices": list(told)},
    }


def _pod(uid: str, job: str = "job", rank: int = 0, phase: str = "Running", **more: Any) -> Json:
    labels = {
        "ullage.dev/managed": "true",
        "ullage.dev/owner": job,
        "ullage.dev/rank": str(rank),
    } | more.get("labels", {})
    owner = {"kind": "TrainingJob", "name": job, "uid": f"uid-{job}", "controller": True}
    return {
        "metadata": {
            "uid": uid,
            "name": f"pod-{uid}",
            "namespace": "ns",
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": more.get("node", "node-1")},
        "status": {"phase": phase},
    }


def _job(name: str = "job", replicas: int = 1) -> Json:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"replicas": replicas},
    }


def test_a_running_job_on_its_slice_is_right() -> None:
    assert problems(Books(nodes=[_node(_slice("a"))], pods=[_pod("a")], jobs=[_job()])) == set()


def _reserved(uid: str) -> Json:
    """A slice that was reserved for a pod before the API server chose this uid."""
    return _slice(uid) | {"podUID": f"reservation-{uid}"}


def _taking(uid: str) -> Json:
    pod = _pod(uid)
    pod["metadata"]["annotations"] = {"ullage.dev/reservation": f"reservation-{uid}"}
    return pod


@pytest.mark.parametrize("reported", [_reserved("a"), _slice("a")])
def test_the_pod_that_took_a_reservation_has_its_slice(reported: Json) -> None:
    node = _node(_reserved("a"), told=(reported,))
    assert wanted_slices(node, [_taking("a")]) == [_slice("a")]
    assert problems(Books(nodes=[node], pods=[_taking("a")], jobs=[_job()])) == set()


def test_a_pod_of_another_name_takes_no_reservation() -> None:
    node, forged = _node(_reserved("a")), _taking("a")
    forged["metadata"]["name"] = "other"
    assert wanted_slices(node, [forged]) == [_reserved("a")]
    kinds = {one.kind for one in problems(Books(nodes=[node], pods=[forged], jobs=[_job()]))}
    assert kinds == {Kind.LEAKED, Kind.UNBOOKED}


def test_a_slice_under_reservation_and_uid_is_doubled() -> None:
    node = _node(_reserved("a"), _slice("a"))
    (problem,) = problems(Books(nodes=[node], pods=[_taking("a")], jobs=[_job()]))
    assert problem.kind is Kind.DOUBLED


@pytest.mark.parametrize(
    ("kind", "books"),
    [
        (Kind.LEAKED, Books(nodes=[_node(_slice("gone"))], pods=[])),
        (Kind.LEAKED, Books(nodes=[_node(told=(_slice("gone"),))], pods=[])),
        (Kind.LEAKED, Books(nodes=[], pods=[_pod("a", phase="Pending")], jobs=[])),
        (Kind.LEAKED, Books(nodes=[], pods=[], files={"node-1": ["gone"]})),
        (
            Kind.DOUBLED,
            Books(
                nodes=[_node(_slice("a")), _node(_slice("a"), name="node-2")],
                pods=[_pod("a")],
                jobs=[_job()],
            ),
        ),
        (
            Kind.DOUBLED,
            Books(
                nodes=[_node(_slice("a", 60), _slice("b", 60))],
                pods=[_pod("a"), _pod("b", rank=1)],
                jobs=[_job(replicas=2)],
            ),
        ),
        (
            Kind.DOUBLED,
            Books(
                nodes=[_node(_slice("a"), _slice("b"))],
                pods=[_pod("a"), _pod("b")],
                jobs=[_job()],
            ),
        ),
        (Kind.UNBOOKED, Books(nodes=[_node()], pods=[_pod("a")], jobs=[_job()])),
        (
            Kind.UNBOOKED,
            Books(nodes=[_node(_slice("a"))], pods=[_pod("a", node="node-2")], jobs=[_job()]),
        ),
        (
            Kind.HALF_STARTED,
            Books(
                nodes=[_node(_slice("a"))],
                pods=[_pod("a"), _pod("b", rank=1, phase="Pending")],
                jobs=[_job(replicas=2)],
            ),
        ),
    ],
)
def test_each_kind_of_harm_is_found(kind: Kind, books: Books) -> None:
    assert kind in {one.kind for one in problems(books)}


def test_a_gang_of_which_one_has_succeeded_is_no_half_start() -> None:
    pods = [_pod("a"), _pod("b", rank=1, phase="Succeeded")]
    nodes = [_node(_slice("a"))]
    assert problems(Books(nodes=nodes, pods=pods, jobs=[_job(replicas=2)])) == set()


def test_a_problem_counts_when_it_outlasts_the_patience_for_its_kind() -> None:
    problem_log, leak = ProblemLog(), Problem(kind=Kind.LEAKED, text="x")
    assert problem_log.look({leak}, 0.0) == []
    assert problem_log.look({leak}, PATIENCE_S[Kind.LEAKED]) == []
    assert problem_log.look({leak}, PATIENCE_S[Kind.LEAKED] + 1) == [leak]
    assert problem_log.look({leak}, PATIENCE_S[Kind.LEAKED] + 2) == []
    assert problem_log.count(Kind.LEAKED) == 1


def test_a_problem_that_went_meanwhile_begins_to_count_again() -> None:
    problem_log, leak = ProblemLog(), Problem(kind=Kind.LEAKED, text="x")
    problem_log.look({leak}, 0.0)
    problem_log.look(set(), 60.0)
    problem_log.look({leak}, 70.0)
    assert problem_log.look({leak}, 130.0) == []


def test_time_in_which_nothing_could_be_seen_does_not_count() -> None:
    problem_log, leak = ProblemLog(), Problem(kind=Kind.LEAKED, text="x")
    problem_log.look({leak}, 0.0)
    problem_log.blind(100.0)
    assert problem_log.look({leak}, 150.0) == []
    assert problem_log.look({leak}, 230.0) == [leak]


def test_those_of_one_lane_use_its_share_and_its_memory_in_turn() -> None:
    def lane(step_mib: int) -> Books:
        parts = {"lane": 1, "persistentMiB": 100, "ephemeralMiB": step_mib}
        names = ("a", "b", "c")
        slices = [
            {**_slice(name, percent=90), "memoryMiB": 100 + step_mib, **parts} for name in names
        ]
        pods = [_pod(name, job=name) for name in names]
        return Books(nodes=[_node(*slices)], pods=pods, jobs=[_job(name) for name in names])

    memory_mib = _node()["status"]["devices"][0]["memoryMiB"]
    away = lane(memory_mib - 100)
    assert problems(away)
    for one in away.nodes[0]["spec"]["slices"]:
        one["suspendable"] = True
    assert not problems(away), "of those that may leave one is there at a time"
    assert not problems(lane(memory_mib - 300))
    (found,) = problems(lane(memory_mib - 299))
    assert found.text.endswith(f"{memory_mib} memoryMiB")
