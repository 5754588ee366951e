# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which objects have something outside of themselves, and what is left of it while they end."""

from __future__ import annotations

from typing import Any

import pytest

from builders_raw import (
    owner_reference,
    raw_deployment,
    raw_foreign_pod,
    raw_job,
    raw_pod,
    raw_service,
    raw_tuning_job,
)
from fakes.clock import FakeClock
from fakes.pool_scaling import leader_of
from ullage.api.labels import (
    ANNOTATION_TRIAL_EPOCH,
    LABEL_LEAD,
    LABEL_ORDER,
    LABEL_ROUTER,
    LABEL_TRIAL,
)
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.values.names import router_name
from ullage.cluster.values.streams import (
    DEPLOYMENTS,
    FOREIGN_PODS,
    INFERENCE_DEPLOYMENTS,
    PODS,
    STREAMS,
    TRAINING_JOBS,
    TUNING_JOBS,
)
from ullage.handlers import kinds
from ullage.handlers.ends import LeaderContext

NOW = 1_000.0
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def a_state() -> ClusterState:
    state = ClusterState(lambda _: None)
    for stream in STREAMS:
        state.replace(stream, [], NOW)
    return state


def led(state: ClusterState) -> LeaderContext:
    return leader_of(state, FakeClock())


def ref(body: dict[str, Any]) -> ObjectRef:
    meta = body["metadata"]
    return ObjectRef(
        kind=body["kind"], namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({"batching": {}}, True), ({}, False), ({"batching": None}, False), (7, False), ([], False)],
)
def test_services_with_a_router_have_a_life(spec: object, expected: bool) -> None:
    assert kinds.has_router({"spec": spec}) is expected


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"elasticity": {"tiers": "Auto"}}, {}, True),
        ({"elasticity": {"tiers": "Stage2"}}, {"phase": "Running"}, True),
        ({"elasticity": {"tiers": "Auto"}}, 7, True),
        ({"elasticity": {"tiers": "Auto"}}, {"phase": ["Failed"]}, True),
        ({"elasticity": {"tiers": "Auto"}}, {"phase": "Succeeded"}, False),
        ({"elasticity": {"tiers": "Disabled"}}, {}, False),
        ({"elasticity": {"tiers": {"Auto": 1}}}, {}, False),
        ({"elasticity": []}, None, False),
        ({}, {}, False),
        ("Auto", {}, False),
    ],
)
def test_jobs_in_tiers_have_a_life_until_they_are_over(
    spec: object, status: object, expected: bool
) -> None:
    assert kinds.has_lead({"spec": spec, "status": status}) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [(None, True), ({"phase": "Running"}, True), ([], True), ({"phase": "Failed"}, False)],
)
def test_searches_have_a_life_until_they_are_over(status: object, expected: bool) -> None:
    assert kinds.is_under_way({"status": status}) is expected


def a_router() -> dict[str, Any]:
    pod = raw_foreign_pod("web-router-0")
    pod["metadata"]["labels"] = {LABEL_ROUTER: "web"}
    return pod


def test_a_router_of_the_service_goes_and_its_pods_are_waited_for() -> None:
    state, service = a_state(), raw_service("web", batching={})
    state.upsert(INFERENCE_DEPLOYMENTS, service, NOW)
    router = raw_deployment(router_name("web"))
    router["metadata"]["ownerReferences"] = [owner_reference("InferenceDeployment", "web")]
    state.upsert(DEPLOYMENTS, router, NOW)
    state.upsert(FOREIGN_PODS, a_router(), NOW)
    left = kinds.left_of_service(led(state), ref(service), NOW)
    assert left.text == "the router with 1 pods is"
    assert [(one.kind, one.name) for one in left.goes] == [("Deployment", router_name("web"))]
    state.remove(DEPLOYMENTS, router, NOW)
    left = kinds.left_of_service(led(state), ref(service), NOW)
    assert (left.text, left.goes) == ("1 router pods are", ())
    state.remove(FOREIGN_PODS, a_router(), NOW)
    assert not kinds.left_of_service(led(state), ref(service), NOW).text


def test_a_router_of_someone_else_stays() -> None:
    state, service = a_state(), raw_service("web", batching={})
    router = raw_deployment(router_name("web"))
    router["metadata"]["ownerReferences"] = [owner_reference("InferenceDeployment", "web", "else")]
    state.upsert(DEPLOYMENTS, router, NOW)
    assert not kinds.left_of_service(led(state), ref(service), NOW).text


def pods_in_tiers() -> dict[str, dict[str, Any]]:
    lead = raw_pod("train-lead", rank=None, gated=False, phase="Running")
    lead["metadata"]["labels"][LABEL_LEAD] = "true"
    order = raw_pod("train-order-0", rank=None, gated=False)
    order["metadata"]["labels"][LABEL_ORDER] = "spot"
    members = [raw_pod(f"train-{n}", rank=n, gated=False, phase="Running") for n in range(2)]
    return {pod["metadata"]["name"]: pod for pod in (*members, order, lead)}


def test_members_and_orders_go_before_the_lead() -> None:
    state, job, pods = a_state(), raw_job("train", meta=DELETED), pods_in_tiers()
    state.upsert(TRAINING_JOBS, job, NOW)
    state.upsert(PODS, raw_pod("other-0", owner="other", gated=False, phase="Running"), NOW)
    for pod in pods.values():
        state.upsert(PODS, pod, NOW)

    def goes() -> list[str]:
        return [one.name for one in kinds.left_of_job(led(state), ref(job), NOW).goes]

    assert goes() == ["train-0", "train-1", "train-order-0"]
    pods["train-0"]["metadata"] |= DELETED
    state.upsert(PODS, pods["train-0"], NOW)
    state.remove(PODS, pods["train-order-0"], NOW)
    assert goes() == ["train-1"]
    pods["train-1"]["status"]["phase"] = "Succeeded"
    state.upsert(PODS, pods["train-1"], NOW)
    assert goes() == []
    assert kinds.left_of_job(led(state), ref(job), NOW).text, "a member is still on its way out"
    state.remove(PODS, pods["train-0"], NOW)
    assert goes() == ["train-lead"]
    state.remove(PODS, pods["train-lead"], NOW)
    assert not kinds.left_of_job(led(state), ref(job), NOW).text


def a_trial(number: int, *, uid: str = "uid-digits", **more: Any) -> dict[str, Any]:
    meta = {
        "ownerReferences": [owner_reference("TuningJob", "digits", uid)],
        "labels": {LABEL_TRIAL: str(number)},
        "annotations": {ANNOTATION_TRIAL_EPOCH: "1"},
    }
    return raw_job(f"digits-t{number:04d}-e1", meta=meta, **more)


def a_search(*counted: int, **meta: object) -> dict[str, Any]:
    results = [{"trial": number, "epoch": 1, "value": "0.5"} for number in counted]
    search = raw_tuning_job("digits", status={"phase": "Running", "results": results})
    search["metadata"] |= DELETED | meta
    return search


def test_trials_are_waited_for_until_they_are_counted_or_gone() -> None:
    state = a_state()
    state.upsert(TUNING_JOBS, a_search(), NOW)
    others = {**a_trial(7), "metadata": {**a_trial(7)["metadata"], "namespace": "b", "uid": "b"}}
    for trial in (a_trial(0), a_trial(1), a_trial(2, uid="uid-else"), others):
        state.upsert(TRAINING_JOBS, trial, NOW)

    def text() -> str:
        return kinds.left_of_search(led(state), ref(a_search()), NOW).text

    assert text() == "2 trials are"
    state.upsert(TUNING_JOBS, a_search(0), NOW)
    assert text() == "1 trials are"
    state.remove(TRAINING_JOBS, a_trial(1), NOW)
    assert text() == ""


def test_a_trial_that_changes_hands_counts_for_its_new_search() -> None:
    state = a_state()
    state.upsert(TRAINING_JOBS, a_trial(0), NOW)
    assert state.trials_of("uid-digits") == {"uid-digits-t0000-e1"}
    state.upsert(TRAINING_JOBS, a_trial(0, uid="uid-else"), NOW)
    assert state.trials_of("uid-digits") == set()
    assert state.trials_of("uid-else") == {"uid-digits-t0000-e1"}
    state.remove(TRAINING_JOBS, a_trial(0, uid="uid-else"), NOW)
    assert state.trials_of("uid-else") == set()


def test_a_search_that_no_step_knows_to_end_is_let_go() -> None:
    state = a_state()
    state.upsert(TRAINING_JOBS, a_trial(0), NOW)
    assert not kinds.left_of_search(led(state), ref(a_search()), NOW).text
    alive = raw_tuning_job("digits")
    state.upsert(TUNING_JOBS, alive, NOW)
    assert not kinds.left_of_search(led(state), ref(alive), NOW).text
