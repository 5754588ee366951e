# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever waits says why, on the user's own object, with numbers; and starts when it can."""

import json

from demo.install import NAMESPACE
from e2e.stack import Stack, busy_template, eventually, share, training_job, whole_device


def test_a_refused_job_is_admitted_by_itself_once_room_appears(
    stack: Stack, namespace: str
) -> None:
    stack.apply(training_job("first", namespace, busy_template(3600), gpu=share(80)))
    stack.apply(training_job("second", namespace, busy_template(3600), gpu=share(80)))
    stack.job_reaches("first", namespace, "Running")
    stack.job_reaches("second", namespace, "Running")
    stack.apply(training_job("third", namespace, busy_template(3), gpu=share(60)))
    decision = stack.job_waits_for("third", namespace, "PercentLimit")
    assert "60" in decision["message"]
    assert decision["refusals"][0]["devices"] == 2
    told = eventually(
        lambda: [e for e in stack.events(namespace, "third") if e["reason"] == "PercentLimit"],
        within_s=60,
        what="an Event on the job",
    )
    assert len(told) == 1
    stack.delete("trainingjob.ullage.dev", "first", namespace)
    stack.job_reaches("third", namespace, "Succeeded")
    stack.books_balance()


def test_an_unknown_accelerator_is_named(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("h100", namespace, accelerators=["nvidia-h100-80gb-hbm3"]))
    decision = stack.job_waits_for("h100", namespace, "UnknownAccelerator")
    assert "nvidia-h100-80gb-hbm3" in decision["message"]
    assert "emulated" in decision["message"]
    assert stack.pods(namespace) == []


def test_a_gang_larger_than_the_cluster_is_told_so(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("huge", namespace, replicas=64, gpu=whole_device()))
    decision = stack.job_waits_for("huge", namespace, "GangTooLarge")
    assert "64" in decision["message"]
    assert stack.pods(namespace) == []


def test_memory_above_any_device_is_told_so(stack: Stack, namespace: str) -> None:
    gpu = share(30, memory={"limit": "900Gi"})
    stack.apply(training_job("fat", namespace, gpu=gpu))
    decision = stack.job_waits_for("fat", namespace, "MemoryWouldOverflow")
    assert "8192" in decision["message"]


def test_a_name_that_is_taken_is_not_overwritten(stack: Stack, namespace: str) -> None:
    taken = busy_template(3600)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-0"}, **taken}
    pod["metadata"]["namespace"] = namespace
    stack.apply(pod)
    stack.apply(training_job("taken", namespace))
    decision = stack.job_waits_for("taken", namespace, "NameConflict")
    assert "taken-0" in decision["message"]
    stack.delete("pod", "taken-0", namespace, "--grace-period=1")
    stack.job_reaches("taken", namespace, "Running")


def test_the_api_server_s_own_refusal_reaches_the_user(stack: Stack, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-pods", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    stack.apply(quota)
    eventually(
        lambda: stack.status("resourcequotas", "no-pods", namespace).get("hard"),
        within_s=60,
        what="the quota is in force",
    )
    stack.apply(training_job("quota", namespace))
    decision = stack.job_waits_for("quota", namespace, "CreateRefused")
    assert "exceeded quota" in decision["message"]
    stack.books_balance()


def test_a_pod_no_one_placed_is_refused_on_the_node_in_its_own_events(
    stack: Stack, namespace: str
) -> None:
    pod = busy_template(3600)
    pod["spec"]["containers"][0]["resources"]["limits"] = {"ullage.dev/slot": "1"}
    body = {"apiVersion": "v1", "kind": "Pod", **pod}
    body["metadata"] = {"name": "stray", "namespace": namespace}
    # admission lets only the operator ask for slots
    words = ("create", "-f", "-", "--as", f"system:serviceaccount:{NAMESPACE}:ullage-operator")
    stack.cluster.kubectl(*words, stdin=json.dumps(body))

    def told() -> bool:
        messages = [e.get("message", "") for e in stack.events(namespace, "stray")]
        return any("PlacementMissing" in message for message in messages)

    eventually(told, within_s=60, what="PlacementMissing in the pod's events")

    def waits() -> bool:
        stray = stack.get("pods", "stray", namespace) or {}
        states = [c["state"] for c in stray.get("status", {}).get("containerStatuses", [])]
        reasons = [state.get("waiting", {}).get("reason") for state in states]
        return reasons == ["CreateContainerConfigError"]

    eventually(waits, within_s=30, what="the container waits")
    stack.delete("pod", "stray", namespace, "--grace-period=0", "--force")


def test_a_whole_device_waits_for_an_empty_one(stack: Stack, namespace: str) -> None:
    stack.apply(training_job("left", namespace, gpu=share(30)))
    stack.job_reaches("left", namespace, "Running")
    stack.apply(training_job("whole", namespace, gpu=whole_device()))
    whole = stack.job_reaches("whole", namespace, "Running")
    assert whole["sharing"]["percent"] == 100
    stack.apply(training_job("other", namespace, gpu=whole_device()))
    stack.job_waits_for("other", namespace, "NoCapacity")
    stack.delete("trainingjob.ullage.dev", "left", namespace)
    stack.job_reaches("other", namespace, "Running")
    stack.books_balance()


def policy(**spec: object) -> dict[str, object]:
    """The SchedulingPolicy that binds."""
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def test_strangers_do_not_share_a_device(stack: Stack, namespace: str) -> None:
    granted = [{"name": name, "namespaces": [namespace]} for name in ("red", "blue", "green")]
    stack.apply(policy(trustDomains=granted))
    try:
        stack.apply(
            training_job("a", namespace, gpu=share(40), trustDomain="red"),
            training_job("b", namespace, gpu=share(40), trustDomain="blue"),
        )
        stack.job_reaches("a", namespace, "Running")
        stack.job_reaches("b", namespace, "Running")
        stack.apply(training_job("c", namespace, gpu=share(40), trustDomain="green"))
        stack.job_waits_for("c", namespace, "TrustDomain")
        stack.apply(training_job("d", namespace, gpu=share(40), trustDomain="yellow"))
        decision = stack.job_waits_for("d", namespace, "TrustDomainNotGranted")
        assert "ask your administrator" in decision["message"]
    finally:
        stack.cluster.kubectl("delete", "schedulingpolicies.ullage.dev", "default")


def test_a_slowdown_objective_keeps_neighbours_away(stack: Stack, namespace: str) -> None:
    for name in ("fast-a", "fast-b"):
        gpu = share(60, memory={"limit": "1Gi"})
        job = training_job(name, namespace, gpu=gpu, slo={"maxSlowdown": "1.7"})
        stack.apply(job)
        stack.job_reaches(name, namespace, "Running")
    stack.apply(policy(packing={"maxPercentSum": 150}))
    try:
        gpu = share(60, memory={"limit": "1Gi"})
        stack.apply(training_job("noisy", namespace, gpu=gpu))
        decision = stack.job_waits_for("noisy", namespace, "PredictedSLOBreach")
        assert "fast-" in decision["message"]
        assert "1.7" in decision["message"]
    finally:
        stack.cluster.kubectl("delete", "schedulingpolicies.ullage.dev", "default")


def test_a_higher_priority_takes_the_place_of_a_job_with_a_checkpoint(
    stack: Stack, namespace: str
) -> None:
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"{namespace}-urgent"},
        "value": 1000,
    }
    stack.apply(urgent)
    try:
        saves = {"graceSeconds": 5}
        for name in ("low-a", "low-b"):
            job = training_job(name, namespace, gpu=share(80), checkpoint=saves)
            stack.apply(job)
            stack.job_reaches(name, namespace, "Running")
        template = busy_template(priorityClassName=f"{namespace}-urgent")
        stack.apply(training_job("high", namespace, template, gpu=share(80)))
        stack.job_reaches("high", namespace, "Running", within_s=90)
        phases = {stack.job(name, namespace)["phase"] for name in ("low-a", "low-b")}
        assert "Running" in phases
        stack.finish("high-0", namespace)
        stack.job_reaches("high", namespace, "Succeeded")
        for name in ("low-a", "low-b"):
            assert stack.job_reaches(name, namespace, "Running").get("restarts", 0) == 0
    finally:
        stack.cluster.kubectl("delete", "priorityclass", f"{namespace}-urgent")
    stack.books_balance()
