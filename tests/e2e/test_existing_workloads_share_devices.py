# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What people run already shares devices by a label in the pod template."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from e2e.stack import Json, Stack, busy_template, eventually
from ullage.cli.main import app

LABEL = "ullage.dev/share"
ADMITTED = "ullage.dev/Admitted"
ENFORCED = "ullage.dev/Enforced"


def template(
    name: str,
    share: str = "20-30",
    *,
    seconds: float = 3600,
    labels: Json | None = None,
    notes: Json | None = None,
    **pod: Any,
) -> Json:
    """A pod template that shares a device."""
    body = busy_template(seconds, **pod)
    body["metadata"] = {
        "labels": {"app": name, LABEL: share, **(labels or {})},
        "annotations": notes or {},
    }
    return body


def workload(kind: str, name: str, namespace: str, pod: Json, **spec: Any) -> Json:
    """An object of a kind that makes pods from this template."""
    versions = {"Job": "batch/v1", "CronJob": "batch/v1", "Pod": "v1"}
    meta: Json = {"name": name, "namespace": namespace}
    body: Json = {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "metadata": meta}
    if kind == "Pod":
        return body | {"metadata": meta | pod["metadata"], "spec": pod["spec"]}
    if kind in ("Job", "CronJob"):
        pod = copy.deepcopy(pod)
        pod["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": name}}
    inner = {"template": pod, **spec}
    if kind == "CronJob":
        schedule = inner.pop("schedule")
        return body | {"spec": {"schedule": schedule, "jobTemplate": {"spec": inner}}}
    return body | {"spec": inner}


def condition(pod: Json, type_: str) -> Json:
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == type_]
    return dict(found[0]) if found else {}


def pods(stack: Stack, namespace: str, app: str) -> list[Json]:
    return stack.list("pods", namespace, f"app={app}")


def slices(stack: Stack, namespace: str) -> dict[str, Json]:
    """Slices that are given to pods of a namespace, by name of the pod."""
    return {
        one["podName"]: one
        for node in stack.list("gpunodes.ullage.dev")
        for one in node["spec"].get("slices", [])
        if one["podNamespace"] == namespace
    }


def run_under_shares(stack: Stack, namespace: str, app: str, count: int) -> list[Json]:
    """Wait until so many pods run, each enforced on its slice."""

    def look() -> list[Json]:
        found = [
            pod
            for pod in pods(stack, namespace, app)
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            and condition(pod, ENFORCED).get("status") == "True"
        ]
        return found if len(found) == count else []

    found = eventually(look, within_s=90, what=f"{count} pods of {app} run under their shares")
    given = slices(stack, namespace)
    for pod in found:
        assert condition(pod, ADMITTED)["status"] == "True"
        assert pod["metadata"]["name"] in given
    return found


@pytest.fixture(scope="module")
def nightly(stack: Stack) -> Iterator[str]:
    """A CronJob that has run by the time when its test comes."""
    namespace = "t-nightly"
    stack.create_namespace(namespace)
    pod = template("nightly", seconds=1)
    stack.apply(workload("CronJob", "nightly", namespace, pod, schedule="* * * * *"))
    yield namespace
    stack.clean(namespace, ("cronjobs", "jobs"))


def test_a_plain_pod_runs_under_its_share_and_tells_where(
    stack: Stack, namespace: str, nightly: str
) -> None:
    stack.apply(workload("Pod", "plain", namespace, template("plain")))
    (pod,) = run_under_shares(stack, namespace, "plain", 1)
    part = slices(stack, namespace)["plain"]
    assert 20 <= part["percent"] <= 30
    said = stack.cluster.kubectl("exec", "plain", "-n", namespace, "--", "printenv").stdout
    assert f"ULLAGE_PERCENT={part['percent']}" in said
    assert part["gpu"] in condition(pod, ADMITTED)["message"]
    stack.tells(namespace, "plain", "Placed")
    stack.delete("pod", "plain", namespace)
    eventually(lambda: not slices(stack, namespace), within_s=30, what="its slice is released")


NOTEBOOK = """
import time
from ullage_run import lanes
lane = lanes.join()
while True:
    with lane.step():
        time.sleep(0.01)
    time.sleep(0.2)
"""


def test_pods_that_take_turns_share_a_lane(stack: Stack, namespace: str) -> None:
    names = [f"notebook-{number}" for number in range(3)]
    for name in names:
        pod = template("notebook", "60", notes={"ullage.dev/lane": "64Mi+256Mi"})
        pod["spec"]["containers"][0]["command"] = ["python", "-c", NOTEBOOK]
        stack.apply(workload("Pod", name, namespace, pod))
    run_under_shares(stack, namespace, "notebook", 3)
    given = slices(stack, namespace)
    assert sorted(given) == names
    assert {(one["persistentMiB"], one["ephemeralMiB"]) for one in given.values()} == {(64, 256)}
    places = {(one["gpu"], one["lane"]) for one in given.values()}
    assert len(places) <= 2, "by their shares two devices would hold two of three"
    for name in names:
        stack.delete("pod", name, namespace)
    eventually(lambda: not slices(stack, namespace), within_s=30, what="their slices are released")


def test_a_job_runs_to_its_end(stack: Stack, namespace: str) -> None:
    pod = template("batch", seconds=2)
    stack.apply(workload("Job", "batch", namespace, pod, parallelism=2, completions=3))

    def done() -> bool:
        return bool(stack.status("jobs", "batch", namespace).get("succeeded") == 3)

    eventually(done, within_s=90, what="the Job completes")
    eventually(lambda: not slices(stack, namespace), within_s=30, what="slices are released")


def test_two_jobs_are_one_gang(stack: Stack, namespace: str) -> None:
    def half(name: str) -> Json:
        keys = {"ullage.dev/gang": "pair"}
        size = {"ullage.dev/gang-size": "2"}
        return workload("Job", name, namespace, template(name, labels=keys, notes=size))

    def waits() -> bool:
        found = pods(stack, namespace, "left")
        return bool(found) and condition(found[0], ADMITTED).get("reason") == "PodsMissing"

    stack.apply(half("left"))
    eventually(waits, within_s=30, what="the first pod says that another is missing")
    assert not slices(stack, namespace)
    stack.apply(half("right"))
    run_under_shares(stack, namespace, "left", 1)
    run_under_shares(stack, namespace, "right", 1)


def test_the_second_run_of_a_gang_starts_while_pods_of_the_first_exist(
    stack: Stack, namespace: str
) -> None:
    keys, size = {"ullage.dev/gang": "runs"}, {"ullage.dev/gang-size": "2"}
    pod = template("runs", "10", seconds=1, labels=keys, notes=size)
    spec = {"schedule": "0 3 1 1 *", "parallelism": 2, "completions": 2}
    stack.apply(workload("CronJob", "runs", namespace, pod, **spec))
    for run in ("first", "second"):
        stack.cluster.kubectl("create", "job", run, "--from=cronjob/runs", "-n", namespace)

        def done(name: str = run) -> bool:
            return bool(stack.status("jobs", name, namespace).get("succeeded") == 2)

        eventually(done, within_s=60, what=f"the {run} run ends")
    assert len(pods(stack, namespace, "runs")) == 4


def test_gangs_are_rolled_to_another_share(stack: Stack, namespace: str) -> None:
    size = {"ullage.dev/gang-size": "2"}
    ways: dict[str, Json] = {
        "StatefulSet": {"podManagementPolicy": "Parallel", "serviceName": "rolled"},
        "Deployment": {"strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}},
    }
    for kind, way in ways.items():
        name = kind.lower()
        pod = template(name, "10", labels={"ullage.dev/gang": name}, notes=size)
        stack.apply(workload(kind, name, namespace, pod, replicas=2, **way))
        before = {one["metadata"]["uid"] for one in run_under_shares(stack, namespace, name, 2)}
        pod["metadata"]["labels"][LABEL] = "15"
        stack.apply(workload(kind, name, namespace, pod, replicas=2, **way))
        words = ("rollout", "status", f"{name}/{name}", "-n", namespace, "--timeout=600s")
        stack.cluster.kubectl(*words)
        after = run_under_shares(stack, namespace, name, 2)
        assert not before & {one["metadata"]["uid"] for one in after}
        given = slices(stack, namespace)
        assert {given[one["metadata"]["name"]]["percent"] for one in after} == {15}


def test_a_deployment_rolls_and_those_without_room_say_so(stack: Stack, namespace: str) -> None:
    pod = template("web", "40")
    stack.apply(workload("Deployment", "web", namespace, pod, replicas=2))
    before = {one["metadata"]["uid"] for one in run_under_shares(stack, namespace, "web", 2)}
    pod["spec"]["containers"][0]["env"] = [{"name": "VERSION", "value": "2"}]
    stack.apply(workload("Deployment", "web", namespace, pod, replicas=2))
    words = ("rollout", "status", "deployment/web", "-n", namespace, "--timeout=600s")
    stack.cluster.kubectl(*words)
    after = {one["metadata"]["uid"] for one in run_under_shares(stack, namespace, "web", 2)}
    assert not before & after
    stack.cluster.kubectl("scale", "deployment/web", "-n", namespace, "--replicas=6")

    def refused() -> list[Json]:
        found = [condition(one, ADMITTED) for one in pods(stack, namespace, "web")]
        found = [one for one in found if one.get("status") == "False"]
        return found if len(found) == 2 else []

    for one in eventually(refused, within_s=60, what="two pods say why they wait"):
        assert one["message"]
    stack.cluster.kubectl("scale", "deployment/web", "-n", namespace, "--replicas=1")
    run_under_shares(stack, namespace, "web", 1)


def test_a_stateful_set_comes_ordinal_by_ordinal(stack: Stack, namespace: str) -> None:
    pod = template("store")
    stack.apply(workload("StatefulSet", "store", namespace, pod, replicas=2, serviceName="store"))
    found = run_under_shares(stack, namespace, "store", 2)
    first, second = sorted(found, key=lambda one: str(one["metadata"]["name"]))
    assert first["metadata"]["creationTimestamp"] <= second["metadata"]["creationTimestamp"]
    stack.delete("pod", "store-0", namespace)
    again = run_under_shares(stack, namespace, "store", 2)
    uids = {one["metadata"]["uid"] for one in again}
    assert first["metadata"]["uid"] not in uids
    assert second["metadata"]["uid"] in uids


@pytest.fixture
def urgent(stack: Stack) -> Iterator[str]:
    """A PriorityClass above the others."""
    name = "t-urgent"
    stack.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }
    )
    yield name
    stack.cluster.kubectl("delete", "priorityclass", name)


def test_pods_that_save_their_work_make_way_for_urgent_ones(
    stack: Stack, namespace: str, urgent: str
) -> None:
    saves = template("saves", "60", notes={"ullage.dev/checkpoint": "true"})
    stack.apply(workload("Deployment", "saves", namespace, saves, replicas=2))
    before = {one["metadata"]["name"] for one in run_under_shares(stack, namespace, "saves", 2)}
    boss = template("boss", "60", priorityClassName=urgent)
    stack.apply(workload("Pod", "boss", namespace, boss))
    run_under_shares(stack, namespace, "boss", 1)

    def waits() -> Json | None:
        found = pods(stack, namespace, "saves")
        waiting = [one for one in found if condition(one, ADMITTED).get("status") == "False"]
        return waiting[0] if len(found) == 2 and len(waiting) == 1 else None

    successor = eventually(waits, within_s=60, what="the successor waits")
    assert successor["metadata"]["name"] not in before

    def told() -> list[Json]:
        events = [event for name in before for event in stack.events(namespace, name)]
        return [event for event in events if event["reason"] == "Preempted"]

    preempted = eventually(told, within_s=60, what="an Event on the pod that made way")
    assert len(preempted) == 1
    assert "its controller creates it again" in preempted[0]["message"]
    stack.delete("pod", "boss", namespace)
    run_under_shares(stack, namespace, "saves", 2)


def test_a_gate_of_another_controller_is_waited_for_and_named(stack: Stack, namespace: str) -> None:
    gated = template("gated", schedulingGates=[{"name": "example.org/quota"}])
    stack.apply(workload("Pod", "gated", namespace, gated))

    def waits() -> bool:
        (pod,) = pods(stack, namespace, "gated")
        told = condition(pod, ADMITTED)
        return told.get("reason") == "WaitingForGate" and "example.org/quota" in told["message"]

    eventually(waits, within_s=30, what="the gate is named")
    assert not slices(stack, namespace)
    lifted = '[{"op": "remove", "path": "/spec/schedulingGates/0"}]'
    stack.cluster.kubectl("patch", "pod", "gated", "-n", namespace, "--type=json", f"-p={lifted}")
    run_under_shares(stack, namespace, "gated", 1)


def test_a_new_leader_reads_what_was_told_in_the_pods(stack: Stack, namespace: str) -> None:
    stack.apply(workload("Deployment", "lasts", namespace, template("lasts"), replicas=2))
    before = run_under_shares(stack, namespace, "lasts", 2)
    given = slices(stack, namespace)
    leader = stack.leader()
    stack.delete("pod", leader, "ullage-system", "--grace-period=0", "--force")
    eventually(lambda: stack.leader() not in ("", leader), within_s=60, what="another leads")
    stack.cluster.kubectl("scale", "deployment/lasts", "-n", namespace, "--replicas=3")
    after = {one["metadata"]["uid"]: one for one in run_under_shares(stack, namespace, "lasts", 3)}
    for pod in before:
        again = after[pod["metadata"]["uid"]]
        assert condition(again, ADMITTED) == condition(pod, ADMITTED)
    assert {name: one["gpu"] for name, one in slices(stack, namespace).items()}.items() >= {
        name: one["gpu"] for name, one in given.items()
    }.items()


def test_people_ask_by_what_creates_the_pods(stack: Stack, namespace: str) -> None:
    pod = template("asked", "99", notes={"ullage.dev/accelerators": "of-no-node"})
    stack.apply(workload("Deployment", "asked", namespace, pod, replicas=1))

    def why(name: str) -> str:
        runner = CliRunner()
        words = ["--kubeconfig", str(stack.cluster.kubeconfig), "why", name, "-n", namespace]
        return runner.invoke(app, words).output

    eventually(lambda: "UnknownAccelerator" in why("deploy/asked"), within_s=30, what="it says why")
    (found,) = pods(stack, namespace, "asked")
    assert "UnknownAccelerator" in why(f"pod/{found['metadata']['name']}")
    assert "no pod of Deployment nothing" in why("deploy/nothing")


def test_a_pod_without_a_label_is_never_touched(stack: Stack, namespace: str) -> None:
    pod = template("alone")
    pod["metadata"] = {"labels": {"app": "alone"}}
    stack.apply(workload("Pod", "alone", namespace, pod))

    def runs() -> bool:
        return bool(stack.status("pods", "alone", namespace).get("phase") == "Running")

    eventually(runs, within_s=60, what="it runs")
    found = stack.get("pods", "alone", namespace)
    assert found is not None
    assert "ullage" not in str(found["metadata"].get("managedFields", "")).replace("ullage_run", "")
    assert not condition(found, ADMITTED)


def test_a_cron_job_runs_its_jobs(stack: Stack, nightly: str) -> None:
    def ran() -> bool:
        found = stack.list("jobs", nightly)
        return any(one["status"].get("succeeded") for one in found)

    eventually(ran, within_s=120, what="a Job of the CronJob completes")
