# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever tenant-b writes into its pods, tenant-a's plan stays the same, and so do its objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import a_device, a_slice, reported
from builders_raw import (
    CREATED_S,
    owner_reference,
    raw_gpu_node,
    raw_job,
    raw_node,
    raw_pod,
    raw_pool,
    raw_service,
)
from fakes.deciding import Decided, decided_on
from fakes.examples import examples
from ullage.api.labels import (
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_WORLD_SIZE,
    API_VERSION,
    LABEL_KIND,
    LABEL_LEAD,
    LABEL_ORDER,
    LABEL_OWNER,
    LABEL_RANK,
)
from ullage.api.slices import SlicePhase
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.scheduling.model.plan import Action, CreatePod, DeletePod, EvictPod, UngatePod

Raw = dict[str, Any]
CI = examples(40, many=300)
NOW = CREATED_S + 100.0
JOBS = ("train", "gang", "tiers")
ELSEWHERE = "node-elsewhere"


def job(name: str, namespace: str, replicas: int, **spec: object) -> Raw:
    return raw_job(
        name,
        namespace=namespace,
        replicas=replicas,
        meta={"uid": f"uid-{namespace}-{name}"},
        **spec,
    )


def honest(namespace: str, name: str, rank: int, stage: str) -> Raw:
    running = {"gated": False, "node": "node-1", "phase": "Running"}
    return raw_pod(
        f"{name}-{rank}",
        namespace=namespace,
        owner=name,
        rank=rank,
        controller=owner_reference("TrainingJob", name, f"uid-{namespace}-{name}"),
        meta={"uid": f"uid-{namespace}-{name}-{rank}"},
        **(running if stage == "running" else {"gated": stage == "gated"}),
    )


@st.composite
def forgeries(draw: st.DrawFn, number: int) -> Raw:
    """A pod of tenant-b: names, kinds, labels and owners in every mixture."""
    owner = draw(st.sampled_from((*JOBS, "serve", "none")))
    uid = draw(
        st.sampled_from([f"uid-tenant-a-{one}" for one in (*JOBS, "serve")] + ["", "uid-nowhere"])
    )
    kind = draw(st.sampled_from(("TrainingJob", "InferenceDeployment", "ReplicaSet", "Job", "")))
    version = draw(st.sampled_from((API_VERSION, "ullage.dev/v9", "apps/v1", "x/v1", "v1", "")))
    holder = draw(st.sampled_from((owner, f"{owner}-abc12", "other")))
    suffix = draw(st.sampled_from(("0", "1", "00", "lead", "order-0", "x", "-1")))
    raw = raw_pod(
        f"{owner}-{suffix}",
        namespace="tenant-b",
        owner=owner,
        gated=draw(st.booleans()),
        node=draw(st.sampled_from(("", ELSEWHERE))),
        phase=draw(st.sampled_from(("Pending", "Running", "Failed", "Succeeded"))),
        controller={
            "apiVersion": version,
            "kind": kind,
            "name": holder,
            "uid": uid,
            "controller": draw(st.booleans()),
        },
        meta={"uid": f"uid-forged-{number}"},
    )
    labels = raw["metadata"]["labels"]
    for key, values in {
        LABEL_KIND: ("TrainingJob", "InferenceDeployment", "Pod"),
        LABEL_OWNER: (owner, "", "other"),
        LABEL_RANK: ("0", "1", "-1", "9" * 30, "x"),
        LABEL_LEAD: ("true", "false"),
        LABEL_ORDER: ("spot-a", "other"),
    }.items():
        if draw(st.booleans()):
            labels[key] = draw(st.sampled_from(values))
    raw["metadata"]["annotations"] = {
        ANNOTATION_TEMPLATE_HASH: draw(st.sampled_from(("", "0123456789ab"))),
        ANNOTATION_WORLD_SIZE: draw(st.sampled_from(("", "1", "2", "9" * 5000))),
    }
    return raw


def a_state(stages: tuple[str, str, str], forged: list[Raw]) -> ClusterState:
    """tenant-a's jobs and services with their honest pods, and whatever tenant-b brings."""
    state = ClusterState(effect_of)
    first, second, third = stages
    pods = [
        honest("tenant-a", "train", 0, first),
        honest("tenant-a", "gang", 0, second),
        honest("tenant-a", "gang", 1, third),
    ]
    held = a_slice("uid-tenant-a-train-0", device="GPU-0", percent=100)
    state.replace(streams.NODES, [raw_node("node-1"), raw_node(ELSEWHERE, managed=False)], NOW)
    state.replace(
        streams.GPU_NODES,
        [
            raw_gpu_node(
                "node-1",
                devices=[a_device(f"GPU-{index}") for index in range(4)],
                desired=[held],
                observed=[reported(held, SlicePhase.RESERVED)],
            )
        ],
        NOW,
    )
    state.replace(streams.CAPACITY_POOLS, [raw_pool("spot-a")], NOW)
    state.replace(
        streams.TRAINING_JOBS,
        [job("train", "tenant-a", 1), job("gang", "tenant-a", 2), job("tiers", "tenant-a", 1)],
        NOW,
    )
    state.replace(
        streams.INFERENCE_DEPLOYMENTS,
        [raw_service("serve", namespace="tenant-a", meta={"uid": "uid-tenant-a-serve"})],
        NOW,
    )
    state.replace(streams.PODS, [*pods, *forged], NOW)
    return state


def plan(state: ClusterState) -> Decided:
    return decided_on(state.freeze(NOW), at=NOW)


def subject(action: Action) -> str:
    match action:
        case DeletePod() | EvictPod() | UngatePod():
            return action.pod.namespace
        case CreatePod():
            return action.owner.namespace
        case _:
            return "tenant-a"


stages = st.sampled_from(("gated", "free", "running"))
forged_pods = st.integers(1, 6).flatmap(
    lambda count: st.tuples(*(forgeries(number) for number in range(count)))
)


@CI
@given(st.tuples(stages, stages, stages), forged_pods)
def test_the_plan_is_the_one_without_forged_pods(
    stages: tuple[str, str, str], forged: tuple[Raw, ...]
) -> None:
    before, after = plan(a_state(stages, [])), plan(a_state(stages, list(forged)))
    assert after.actions == before.actions
    assert before.actions, "something is decided at all"


@CI
@given(st.tuples(stages, stages, stages), forged_pods)
def test_no_action_touches_another_namespace(
    stages: tuple[str, str, str], forged: tuple[Raw, ...]
) -> None:
    state = a_state(stages, list(forged))
    found = plan(state)
    uids = {raw["metadata"]["uid"] for raw in forged}
    assert {subject(one) for one in found.actions} <= {"tenant-a"}
    assert not {one.key.pod_uid for _, one in found.slices()} & uids
    assert not {pod.uid for pod in state.coordinator_pods().values()} & uids
