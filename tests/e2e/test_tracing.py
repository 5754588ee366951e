# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The same steps of all ranks are traced on request, on real kubelets, by unchanged programs.

With ``ULLAGE_E2E_TORCH``, the site-packages of a torch for the Python of the image, a stock DDP
script on gloo is traced; without it, a program of torch's shape, whose profiler writes what torch's
does.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable

import pytest

from bench.tracing_programs import adopted, indexed_job, numbered, request, service, template
from demo.progress import CommandFailed
from e2e.stack import Json, Stack, eventually, share, training_job

TORCH = os.environ.get("ULLAGE_E2E_TORCH", "")
RANKS = 2
PERCENT = 30
READS = "import base64,sys;print(base64.b64encode(open(sys.argv[1],'rb').read()).decode())"


def a_rank(name: str, master: str, rank: int, labels: dict[str, str]) -> Json:
    """The pod of one rank of another controller's job."""
    return adopted(
        name, master, {"value": f"{rank}"}, TORCH, ranks=RANKS, percent=PERCENT, labels=labels
    )


def a_job(name: str, namespace: str) -> list[Json]:
    return indexed_job(name, namespace, RANKS, TORCH, PERCENT)


def a_job_set(name: str, namespace: str) -> list[Json]:
    """The Jobs that the controller of a JobSet makes, each with one pod of index 0."""
    jobs = [service(name, namespace)]
    for at in range(RANKS):
        labels = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
            "jobset.sigs.k8s.io/job-index": f"{at}",
        }
        pod = a_rank(name, f"{name}-workers-0-0", at, labels)
        jobs.append(numbered(f"{name}-workers-{at}", namespace, 1, pod))
    return jobs


def a_pytorch_job(name: str, namespace: str) -> list[Json]:
    """The pods that the training operator makes for a PyTorchJob."""
    pods = [service(name, namespace)]
    for at in range(RANKS):
        kind, index = ("worker", at - 1) if at else ("master", 0)
        labels = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/replica-type": kind,
            "training.kubeflow.org/replica-index": f"{index}",
        }
        pod = a_rank(name, f"{name}-master-0", at, labels)
        meta = {"name": f"{name}-{kind}-{index}", "namespace": namespace, **pod["metadata"]}
        spec = {**pod["spec"], "hostname": meta["name"], "restartPolicy": "Never"}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return pods


def over(stack: Stack, namespace: str, name: str) -> Json:
    """The status of a request that has ended."""

    def look() -> Json | None:
        status = stack.status("profilerequests.ullage.dev", name, namespace)
        return status if status.get("phase") in ("Done", "Failed") else None

    return eventually(look, within_s=180, what=f"{name} is over")


def running(stack: Stack, namespace: str, name: str, **runtime: str) -> None:
    job = training_job(
        name, namespace, template(TORCH), replicas=RANKS, gpu=share(PERCENT), runtime=runtime or {}
    )
    stack.apply(job)
    stack.job_reaches(name, namespace, "Running", within_s=180)


def orders(stack: Stack) -> list[Json]:
    return [
        order
        for node in stack.list("gpunodes.ullage.dev")
        for order in node["spec"].get("traces", [])
    ]


def test_all_ranks_trace_the_same_steps_and_keep_their_files(stack: Stack, namespace: str) -> None:
    running(stack, namespace, "digits", inject="Auto")
    before = {pod["metadata"]["uid"] for pod in stack.pods(namespace)}
    ref = {"kind": "TrainingJob", "name": "digits"}
    stack.apply(request("first", namespace, jobRef=ref))
    status = over(stack, namespace, "first")
    assert status["phase"] == "Done", status
    assert status["conditions"][0]["reason"] == "TraceDone", status
    assert [capture["rank"] for capture in status["ranks"]] == list(range(RANKS))
    assert status["result"]["steps"] >= 4
    assert status["window"]["firstStep"] <= status["result"]["firstStep"]
    assert len(status["result"]["ranks"]) == RANKS
    assert {pod["metadata"]["uid"] for pod in stack.pods(namespace)} == before
    eventually(lambda: not orders(stack), within_s=30, what="no order is left on a node")
    told = [event["reason"] for event in stack.tells(namespace, "first", "TraceDone")]
    assert told.count("TraceDone") == 1
    assert first_steps(stack, namespace, "first", status) == [status["window"]["firstStep"]] * RANKS


def first_steps(stack: Stack, namespace: str, name: str, status: Json) -> list[int]:
    """First step of each rank's trace, as its own file says."""
    steps = []
    for capture in status["ranks"]:
        rank = capture.get("localRank", 0)
        path = f"/run/ullage/steps/trace/{_uid(stack, namespace, name)}-{rank}.json.gz"
        words = ("exec", capture["pod"], "--namespace", namespace, "--", "python3", "-c", READS)
        sent = stack.cluster.kubectl(*words, path).stdout
        steps.append(json.loads(gzip.decompress(base64.b64decode(sent)))["ullage"]["step"])
    return steps


def _uid(stack: Stack, namespace: str, name: str = "first") -> str:
    made = stack.get("profilerequests.ullage.dev", name, namespace)
    assert made is not None
    attempt = made["status"]["attempt"]
    uid: str = made["metadata"]["uid"]
    return uid if attempt == 1 else f"{uid}.{attempt}"


@pytest.mark.parametrize(
    ("made", "spec"),
    [
        (a_job, {"jobRef": {"kind": "Job", "name": "batch"}}),
        (a_job_set, {"jobRef": {"kind": "JobSet", "name": "batch"}}),
        (a_pytorch_job, {"jobRef": {"kind": "PyTorchJob", "name": "batch"}}),
        (a_pytorch_job, {"podSelector": {"matchLabels": {"app": "batch"}}}),
    ],
)
def test_pods_of_other_controllers_are_traced(
    stack: Stack, namespace: str, made: Callable[[str, str], list[Json]], spec: Json
) -> None:
    stack.apply(*made("batch", namespace))
    stack.apply(request("theirs", namespace, **spec))
    status = over(stack, namespace, "theirs")
    assert status["phase"] == "Done", status
    assert status["conditions"][0]["reason"] == "TraceDone", status
    assert [capture["rank"] for capture in status["ranks"]] == list(range(RANKS))
    first = status["window"]["firstStep"]
    assert first_steps(stack, namespace, "theirs", status) == [first] * RANKS
    pods = stack.list("pods", namespace, "app=batch")
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0] * RANKS
    eventually(lambda: not orders(stack), within_s=30, what="no order is left on a node")


def test_pods_of_other_controllers_without_the_label_say_which_line_to_add(
    stack: Stack, namespace: str
) -> None:
    meeting, job = a_job("batch", namespace)
    del job["spec"]["template"]["metadata"]["labels"]["ullage.dev/inject"]
    stack.apply(meeting, job)
    stack.apply(request("theirs", namespace, jobRef={"kind": "Job", "name": "batch"}))
    status = over(stack, namespace, "theirs")
    assert status["conditions"][0]["reason"] == "NotInstrumented"
    assert "ullage.dev/inject: Auto" in status["message"]


def test_a_job_without_the_hook_says_which_line_to_add(stack: Stack, namespace: str) -> None:
    running(stack, namespace, "plain")
    stack.apply(request("plain", namespace, jobRef={"kind": "TrainingJob", "name": "plain"}))
    status = over(stack, namespace, "plain")
    assert status["conditions"][0]["reason"] == "NotInstrumented"
    assert "inject: Auto" in status["message"]


def test_an_operator_that_dies_during_a_trace_leaves_nothing_stuck(
    stack: Stack, namespace: str
) -> None:
    running(stack, namespace, "digits", inject="Auto")
    ref = {"kind": "TrainingJob", "name": "digits"}
    stack.apply(request("killed", namespace, jobRef=ref, steps=50))
    eventually(lambda: orders(stack), within_s=60, what="the trace is ordered")
    leader = stack.leader()
    stack.cluster.kubectl(
        "delete", "pod", leader, "--namespace", "ullage-system", "--grace-period=0", "--force"
    )
    status = over(stack, namespace, "killed")
    assert status["phase"] == "Done", status
    eventually(lambda: not orders(stack), within_s=60, what="no order is left on a node")


@pytest.mark.parametrize("spec", [{"steps": 51}, {"jobRef": None}, {"ranks": "0,x"}])
def test_the_api_server_refuses_what_makes_no_sense(
    stack: Stack, namespace: str, spec: Json
) -> None:
    wrong = request("wrong", namespace, jobRef={"kind": "Job", "name": "x"})
    wrong["spec"] = {key: value for key, value in {**wrong["spec"], **spec}.items() if value}
    with pytest.raises(CommandFailed, match=r"(?i)invalid"):
        stack.apply(wrong)
