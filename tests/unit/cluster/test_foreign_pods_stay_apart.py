# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod that claims a workload which did not create it never counts as one of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from builders_raw import (
    owner_reference,
    raw_deployment,
    raw_foreign_pod,
    raw_job,
    raw_kube_service,
    raw_node,
    raw_pod,
    raw_service,
)
from ullage.api.labels import API_VERSION, LABEL_LEAD, LABEL_ORDER, SLOT_RESOURCE
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams

VICTIM = raw_job("train", namespace="tenant-a")
HONEST = raw_pod("train-0", namespace="tenant-a", meta={"uid": "uid-honest"})


def forged(**changes: Any) -> dict[str, Any]:
    """A pod of tenant-b with everything that tenant-b may write as in tenant-a's pod."""
    fields: dict[str, Any] = {"namespace": "tenant-b", "gated": False, "node": "node-1"}
    return raw_pod(**(fields | {"meta": {"uid": "uid-forged"}} | changes))


def with_label(raw: dict[str, Any], key: str, value: str) -> dict[str, Any]:
    raw["metadata"]["labels"][key] = value
    return raw


def a_state(*pods: dict[str, Any], job: dict[str, Any] | None = VICTIM) -> ClusterState:
    state = ClusterState(effect_of)
    state.replace(streams.NODES, [raw_node()], 0.0)
    state.replace(streams.PODS, list(pods), 0.0)
    state.replace(streams.TRAINING_JOBS, [job] if job else [], 0.0)
    return state


FORGERIES = {
    "the uid of another namespace's job": forged(),
    "its lead": with_label(forged(name="train-lead"), LABEL_LEAD, "true"),
    "its order": with_label(forged(name="train-order-0"), LABEL_ORDER, "spot"),
    "another apiVersion": forged(
        namespace="tenant-a",
        controller=owner_reference("TrainingJob", "train") | {"apiVersion": "example.com/v1"},
    ),
    "no apiVersion": forged(
        namespace="tenant-a",
        controller=owner_reference("TrainingJob", "train") | {"apiVersion": ""},
    ),
    "the uid under another name": forged(
        name="other-0",
        namespace="tenant-a",
        owner="other",
        controller=owner_reference("TrainingJob", "other", "uid-train"),
    ),
    "a name that no rank has": forged(name="train-zero", namespace="tenant-a"),
}


@pytest.mark.parametrize("raw", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_pod_is_foreign_and_the_honest_one_stays(raw: dict[str, Any]) -> None:
    state = a_state(HONEST, raw)
    snapshot = state.freeze(0.0)
    assert set(snapshot.pods) == {"uid-honest"}
    assert not state.coordinator_pods()
    (found,) = state.foreign_pods().values()
    assert (found.namespace, found.name) == (
        raw["metadata"]["namespace"],
        raw["metadata"]["name"],
    )
    assert found.claims.namespace == found.namespace
    assert found.why


def test_what_a_foreign_pod_takes_still_counts_on_its_node() -> None:
    state = a_state(HONEST, forged())
    use = state.freeze(0.0).foreign_use["node-1"]
    assert (use.cpu_milli, use.pods, use.extended) == (500, 1, ((SLOT_RESOURCE, 1),))
    state.upsert(streams.PODS, forged(phase="Succeeded"), 1.0)
    assert "node-1" not in state.freeze(1.0).foreign_use


def test_a_claim_is_judged_when_the_job_appears_and_again_when_it_goes() -> None:
    state = a_state(forged(), job=None)
    assert set(state.freeze(0.0).pods) == {"uid-forged"}, "its job may be deleted already"
    state.upsert(streams.TRAINING_JOBS, VICTIM, 1.0)
    assert not state.freeze(1.0).pods
    assert set(state.foreign_pods()) == {"uid-forged"}
    state.remove(streams.TRAINING_JOBS, VICTIM, 2.0)
    assert set(state.freeze(2.0).pods) == {"uid-forged"}
    assert not state.foreign_pods()


def test_a_pod_that_is_gone_is_foreign_no_more() -> None:
    state = a_state(HONEST, forged())
    state.remove(streams.PODS, forged(), 1.0)
    assert not state.foreign_pods()
    assert not state.freeze(1.0).foreign_use
    state = a_state(HONEST, forged())
    state.replace(streams.PODS, [HONEST], 1.0)
    assert not state.foreign_pods()


def test_a_replica_counts_for_the_service_of_its_own_namespace_only() -> None:
    def replica(namespace: str) -> dict[str, Any]:
        return raw_pod(
            "serve-abc12-x",
            namespace=namespace,
            kind="InferenceDeployment",
            owner="serve",
            rank=None,
            meta={"uid": f"uid-{namespace}"},
        )

    state = a_state(replica("tenant-a"), replica("tenant-b"))
    state.upsert(streams.INFERENCE_DEPLOYMENTS, raw_service("serve", namespace="tenant-a"), 0.0)
    owners = {uid: pod.owner.uid for uid, pod in state.freeze(0.0).pods.items()}
    assert owners == {"uid-tenant-a": "uid-serve", "uid-tenant-b": ""}


@pytest.mark.parametrize("version", ["example.com/v1", "v1", ""])
def test_a_child_of_another_api_group_is_none_of_ours(version: str) -> None:
    state = ClusterState(effect_of)
    for stream, raw in (
        (streams.DEPLOYMENTS, raw_deployment("serve")),
        (streams.SERVICES, raw_kube_service("serve")),
    ):
        owned = raw["metadata"]["ownerReferences"][0]
        assert owned["apiVersion"] == API_VERSION
        owned["apiVersion"] = version
        state.upsert(stream, raw, 0.0)
    snapshot = state.freeze(0.0)
    (deployment,) = snapshot.deployments.values()
    (service,) = snapshot.services.values()
    assert deployment.owner_uid == service.owner_uid == ""


def test_foreign_pods_that_hold_slots_are_named_by_node() -> None:
    state = a_state(HONEST, forged())
    idle = raw_foreign_pod("idle")
    idle["spec"]["containers"][0]["resources"] = {"limits": {SLOT_RESOURCE: "2"}}
    state.upsert(streams.FOREIGN_PODS, idle, 0.0)
    state.upsert(streams.FOREIGN_PODS, raw_foreign_pod("web"), 0.0)
    assert state.freeze(0.0).slot_holders == {"node-1": ("default/idle", "tenant-b/train-0")}
    state.remove(streams.FOREIGN_PODS, idle, 1.0)
    state.remove(streams.PODS, forged(), 1.0)
    assert not state.freeze(1.0).slot_holders
