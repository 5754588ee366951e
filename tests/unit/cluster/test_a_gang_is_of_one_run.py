# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of a gang are the pods of one run and revision of their controller, and of one wave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import NOW, a_gpu_node
from builders_nodes import a_node
from builders_raw import raw_adopted_pod
from fakes.deciding import Decided, decided_on
from ullage.api.reasons import Reason
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.workload import ended_in_wave
from ullage.cluster.values import streams
from ullage.scheduling.model.plan import TellPod

Raw = dict[str, Any]


def a_controller(uid: str, kind: str = "Job") -> Raw:
    group = "apps/v1" if kind in ("ReplicaSet", "StatefulSet") else "batch/v1"
    return {"apiVersion": group, "kind": kind, "name": uid, "uid": uid, "controller": True}


def a_member(
    name: str,
    controller: Raw | None,
    *,
    phase: str = "Pending",
    size: int = 2,
    share: str = "20",
    revision: str = "",
    created: str = "2026-01-02T03:04:05Z",
    **more: Any,
) -> Raw:
    """A pod of the gang g: gated while it is Pending, else on the node of these tests."""
    gated = phase == "Pending"
    raw = raw_adopted_pod(
        name,
        keys={"share": share, "gang": "g"},
        notes={"gang-size": str(size)},
        controller=controller,
        gated=gated,
        node="" if gated else "node-1",
        phase=phase,
        **more,
    )
    raw["metadata"]["creationTimestamp"] = created
    if revision:
        raw["metadata"]["labels"]["controller-revision-hash"] = revision
    return raw


def a_state(*pods: Raw) -> ClusterState:
    state = ClusterState(effect_of)
    for pod in pods:
        state.upsert(streams.PODS, pod, NOW)
    return state


def members(state: ClusterState) -> dict[str, list[str]]:
    """Names of pods by the uid of their gang; what snapshot and pods say of it agrees."""
    snapshot = state.freeze(NOW)
    found: dict[str, list[str]] = {}
    for pod in snapshot.pods.values():
        found.setdefault(pod.owner.uid, []).append(pod.name)
    told = {
        uid: sorted(one.pod.name for one in unit.adopted)
        for uid, unit in snapshot.workloads.items()
    }
    live = {pod.name for pod in snapshot.pods.values() if not pod.stage.finished}
    shown = {uid: sorted(live & set(names)) for uid, names in found.items()}
    assert told == {uid: names for uid, names in shown.items() if names}
    return {uid: sorted(names) for uid, names in found.items()}


def decide_on(state: ClusterState) -> Decided:
    node = a_gpu_node(devices=4)
    snapshot = replace(state.freeze(NOW), gpu_nodes={node.name: node}, taken_at=NOW)
    return decided_on(replace(snapshot, nodes={"node-1": a_node("node-1")}))


def placed(state: ClusterState) -> set[str]:
    return set(decide_on(state).places())


def reasons(state: ClusterState) -> dict[str, str]:
    """Why each pod that is told something is not further, by name."""
    told = {}
    for one in decide_on(state).all(TellPod):
        condition = one.status.condition("Admitted")
        told[one.owner.name] = condition.reason if condition is not None else ""
    return told


RUN_1, RUN_2 = a_controller("run-1"), a_controller("run-2")


def test_the_second_run_of_a_cron_job_starts_while_the_pods_of_the_first_exist() -> None:
    first = [a_member(f"one-{n}", RUN_1, phase="Succeeded") for n in range(2)]
    second = [a_member(f"two-{n}", RUN_2) for n in range(2)]
    for pods in ((*first, *second), (*second, *first)):
        assert placed(a_state(*pods)) == {"two-0", "two-1"}
    assert reasons(a_state(*first, second[0])) == {"two-0": Reason.PODS_MISSING}
    assert not placed(a_state(first[0], second[0])), "one of an older run is none of this one"


def test_a_run_beside_one_that_runs_is_a_gang_of_its_own() -> None:
    first = [a_member(f"one-{n}", RUN_1, phase="Running") for n in range(2)]
    second = [a_member(f"two-{n}", RUN_2) for n in range(2)]
    state = a_state(*first, *second)
    assert members(state) == {
        "gang/default/g/run-1": ["one-0", "one-1"],
        "gang/default/g/run-2": ["two-0", "two-1"],
    }
    assert placed(state) == {"two-0", "two-1"}
    state.remove(streams.PODS, first[0], NOW)
    assert members(state)["gang/default/g/run-1"] == ["one-1"], "a run stays one"
    state.upsert(streams.PODS, a_member("one-2", RUN_1), NOW)
    assert members(state)["gang/default/g/run-1"] == ["one-1", "one-2"], "the successor joins"


def test_a_run_that_comes_again_under_another_uid_is_forgotten_with_its_last_pod() -> None:
    pods = [a_member(f"one-{n}", RUN_1) for n in range(2)]
    state = a_state(*pods)
    for pod in pods:
        state.remove(streams.PODS, pod, NOW)
    state.upsert(streams.PODS, pods[0], NOW)
    assert members(state) == {"gang/default/g": ["one-0"]}


def test_pods_of_several_jobs_are_one_gang_while_each_has_fewer_than_it_counts() -> None:
    left, right = a_member("left", RUN_1), a_member("right", RUN_2)
    state = a_state(left, right)
    assert members(state) == {"gang/default/g": ["left", "right"]}
    assert placed(state) == {"left", "right"}
    over = a_member("left", RUN_1, phase="Succeeded")
    assert not placed(a_state(over, right)), "no pod of the left run lives: it is over"


def test_pods_without_a_controller_are_one_gang() -> None:
    state = a_state(a_member("a", None), a_member("b", None), a_member("c", RUN_1))
    assert members(state) == {"gang/default/g": ["a", "b", "c"]}


def test_each_wave_of_a_job_starts_when_the_one_before_has_ended() -> None:
    ended = [a_member(f"old-{n}", RUN_1, phase="Succeeded") for n in range(2)]
    new = [a_member(f"new-{n}", RUN_1) for n in range(2)]
    assert placed(a_state(*ended, *new)) == {"new-0", "new-1"}
    found = reasons(a_state(*ended, new[0]))
    assert found == {"new-0": Reason.PODS_MISSING}, "it is gated, so it is told no more than that"
    runs = a_member("new-1", RUN_1, phase="Running")
    assert not placed(a_state(ended[0], runs, new[0])) - {"new-1"}
    assert placed(a_state(ended[0], new[0])) == {"new-0"}, "it makes up for one that failed"


def test_a_gated_pod_beside_a_whole_gang_is_told_that_it_waits() -> None:
    """One of a wave has ended, the other runs: the next pod is in neither's place."""
    ended = a_member("old-0", RUN_1, phase="Succeeded")
    runs = a_member("old-1", RUN_1, phase="Running")
    state = a_state(ended, runs, a_member("new-0", RUN_1))
    (unit,) = state.freeze(NOW).workloads.values()
    assert {one.pod.name: one.too_many for one in unit.adopted} == {"old-1": False, "new-0": True}
    assert reasons(state)["new-0"] == Reason.GANG_COMPLETE


def test_a_stopped_pod_makes_up_for_no_one() -> None:
    meta = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    stopped = a_member("one-0", RUN_1, phase="Succeeded", meta=meta)
    assert not placed(a_state(stopped, a_member("one-1", RUN_1)))


OLD, NEW = a_controller("web-1", "ReplicaSet"), a_controller("web-2", "ReplicaSet")


def test_each_revision_of_a_deployment_is_a_generation() -> None:
    old = [a_member(f"old-{n}", OLD, phase="Running") for n in range(2)]
    new = [a_member(f"new-{n}", NEW, share="40") for n in range(2)]
    state = a_state(*old, new[0])
    assert reasons(state)["new-0"] == Reason.PODS_MISSING
    state.upsert(streams.PODS, new[1], NOW)
    assert members(state) == {
        "gang/default/g/web-1": ["old-0", "old-1"],
        "gang/default/g/web-2": ["new-0", "new-1"],
    }
    units = state.freeze(NOW).workloads.values()
    assert not any(unit.invalid for unit in units)
    assert placed(state) == {"new-0", "new-1"}


def test_what_is_left_of_a_revision_never_joins_another() -> None:
    state = a_state(a_member("old-0", OLD, phase="Running"), a_member("new-0", NEW))
    assert members(state) == {"gang/default/g/web-1": ["old-0"], "gang/default/g/web-2": ["new-0"]}
    assert reasons(state)["new-0"] == Reason.PODS_MISSING


STS = a_controller("sts", "StatefulSet")


def test_pods_of_a_new_revision_of_a_stateful_set_join_one_by_one() -> None:
    """It replaces one pod, waits until that is ready, and goes on with the next."""
    old = [
        a_member(f"s-{n}", STS, phase="Running", revision="r1", created="2026-01-01T00:00:00Z")
        for n in range(2)
    ]
    new = a_member("s-1", STS, share="40", revision="r2", meta={"uid": "uid-new"})
    state = a_state(*old)
    state.remove(streams.PODS, old[1], NOW)
    state.upsert(streams.PODS, new, NOW)
    (unit,) = state.freeze(NOW).workloads.values()
    assert not unit.invalid
    assert (unit.gpu.share.min_percent, unit.replicas) == (40, 2)
    assert [one.pod.name for one in unit.adopted] == ["s-0", "s-1"]
    assert placed(state) == {"s-1"}
    runs = a_member("s-1", STS, share="40", revision="r2", phase="Running", meta={"uid": "uid-new"})
    state.upsert(streams.PODS, runs, NOW)
    (unit,) = state.freeze(NOW).workloads.values()
    assert not unit.invalid, "both run, each as its revision asked"


def test_pods_of_one_revision_still_have_to_agree() -> None:
    pods = [
        a_member("s-0", STS, revision="r1"),
        a_member("s-1", STS, share="40", revision="r1"),
    ]
    (unit,) = a_state(*pods).freeze(NOW).workloads.values()
    assert "of one gang ask for different things" in unit.invalid


def test_a_controller_of_any_length_is_a_key_of_bounded_length() -> None:
    pods = [a_member(f"p-{n}", a_controller("u" * 100_000)) for n in range(2)]
    (uid,) = members(a_state(*pods))
    assert len(uid) < 200


def test_whole_waves_are_over() -> None:
    assert ended_in_wave(2, ["a"] * 3, {"a"}) == 1
    assert ended_in_wave(2, ["a", "a"], {"a"}) == 0
    assert ended_in_wave(4, ["a", "b", "a"], {"b"}) == 1
