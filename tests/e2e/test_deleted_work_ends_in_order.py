# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A deleted job in tiers saves what it did; a deleted search counts what its trials brought."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from demo.install import NAMESPACE
from e2e.stack import Json, Stack, eventually
from e2e.test_a_job_in_tiers_runs import COORDINATOR, NAME, _example, _run

JOBS = "trainingjobs.ullage.dev"
SEARCHES = "tuningjobs.ullage.dev"
FINALIZER = "ullage.dev/life"
OTHER = "example.org/reads-the-results"
SEARCH = Path("examples/13-tuning.yaml")
PROFILES = Path("examples/profiles.yaml")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that the pods of both nodes see."""
    tmp_path.chmod(0o777)
    return tmp_path


def _finalizers(stack: Stack, kind: str, name: str, namespace: str) -> list[str] | None:
    held = stack.get(kind, name, namespace)
    return held["metadata"].get("finalizers", []) if held is not None else None


def _held(stack: Stack, kind: str, name: str, namespace: str) -> None:
    eventually(
        lambda: FINALIZER in (_finalizers(stack, kind, name, namespace) or ()),
        within_s=30,
        what=f"{name} is held",
    )


@contextmanager
def _no_operator(stack: Stack) -> Iterator[None]:
    """No operator runs inside."""
    deployment = stack.get("deployment", "ullage-operator", NAMESPACE)
    assert deployment is not None

    def scale(replicas: int) -> None:
        words = ("scale", "deployment", "ullage-operator", f"--replicas={replicas}")
        stack.cluster.kubectl(*words, "--namespace", NAMESPACE)

    scale(0)
    try:
        selector = "app.kubernetes.io/component=operator"
        eventually(
            lambda: not stack.list("pods", NAMESPACE, selector),
            within_s=60,
            what="no operator is left",
        )
        yield
    finally:
        scale(deployment["spec"]["replicas"])


def _apply(stack: Stack, namespace: str, shared: Path, steps: int) -> None:
    """The job, which saves nothing but at its end."""
    body = _example(namespace, steps, shared)
    for variable in body["spec"]["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "CHECKPOINT_EVERY":
            variable["value"] = "1000000"
    stack.apply(body)


def _trains(stack: Stack, namespace: str, shared: Path, steps: int) -> dict[str, str]:
    """The job; uids of its members by name."""
    _apply(stack, namespace, shared, steps)
    members = _run(stack, namespace, 3)
    for name in members:
        eventually(
            lambda name=name: "begins at step" in stack.logs(name, namespace),  # type: ignore[misc]
            within_s=60,
            what=f"{name} trains",
        )
    return members


def test_members_of_a_deleted_job_save_one_step_before_their_lead_goes(
    stack: Stack, namespace: str, shared: Path
) -> None:
    members = _trains(stack, namespace, shared, 100_000)
    assert _finalizers(stack, JOBS, NAME, namespace) == [FINALIZER]
    stack.delete(JOBS, NAME, namespace, "--wait=false")

    def ended() -> bool:
        lead = stack.get("pods", COORDINATOR, namespace)
        run = [
            pod
            for pod in stack.pods(namespace, NAME)
            if pod["metadata"]["name"] in members
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        assert not run or (lead is not None and "deletionTimestamp" not in lead["metadata"])
        return not run

    eventually(ended, within_s=60, what="the members have ended")
    eventually(
        lambda: stack.get(JOBS, NAME, namespace) is None, within_s=60, what="the job is gone"
    )
    saved = [int(file.name.split("-")[1]) for file in shared.rglob("tiered-*-*.npz")]
    assert len(saved) == 10, "each of the ten digits is saved once, by who owned it"
    (step,) = set(saved)
    stack.tells(namespace, NAME, "LeadEnds")
    # it may be over before three members were seen at once; its log stays
    _apply(stack, namespace, shared, step + 2_000)
    stack.job_reaches(NAME, namespace, "Succeeded", within_s=420)
    begun = re.search(r"begins at step (\d+)", stack.logs(f"{NAME}-0", namespace))
    assert begun is not None
    assert int(begun.group(1)) == step + 1, "no step is done again"
    eventually(
        lambda: _finalizers(stack, JOBS, NAME, namespace) == [],
        within_s=30,
        what="a job that is over is held no more",
    )


def _search(namespace: str) -> Json:
    """Two trials, one of which ends soon."""
    (body,) = yaml.safe_load_all(SEARCH.read_text(encoding="utf-8"))
    for variable in body["spec"]["trialTemplate"]["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "CHECKPOINT_DIR":
            variable["value"] += f"/{namespace}"
    body["metadata"] |= {"namespace": namespace, "finalizers": [OTHER]}
    body["spec"] |= {"trials": 9, "parallelism": 3}
    return dict(body)


def test_a_search_that_is_deleted_while_no_operator_runs_counts_its_results(
    stack: Stack, namespace: str
) -> None:
    body, profiles = _search(namespace), list(yaml.safe_load_all(PROFILES.read_text()))
    for profile in profiles:
        profile["metadata"]["namespace"] = namespace
    stack.apply(*profiles, body)
    name = body["metadata"]["name"]

    def ended() -> list[str]:
        return [
            one["metadata"]["name"]
            for one in stack.list(JOBS, namespace)
            if one.get("status", {}).get("phase") == "Succeeded"
        ]

    eventually(ended, within_s=240, what="a trial has ended")
    assert _finalizers(stack, SEARCHES, name, namespace) == [OTHER, FINALIZER]
    with _no_operator(stack):
        stack.delete(SEARCHES, name, namespace, "--wait=false")
        brought = ended()
        assert _finalizers(stack, SEARCHES, name, namespace) == [OTHER, FINALIZER]
    eventually(
        lambda: _finalizers(stack, SEARCHES, name, namespace) == [OTHER],
        within_s=90,
        what="the operator lets the search go",
    )
    runs = [one["metadata"]["name"] for one in stack.list(JOBS, namespace)]
    results = stack.status(SEARCHES, name, namespace)["results"]
    counted = {f"{name}-t{one['trial']:04d}-e{one['epoch']}" for one in results}
    assert counted >= set(brought)
    assert set(runs) <= counted, "what has brought nothing runs on"
    stack.patch(SEARCHES, name, namespace, {"metadata": {"finalizers": []}})
    eventually(
        lambda: not stack.list(JOBS, namespace), within_s=60, what="the trials go with the search"
    )


def test_a_namespace_deleted_while_no_operator_runs_ends_when_there_is_one(
    stack: Stack, namespace: str, shared: Path
) -> None:
    search = _search(namespace)
    del search["metadata"]["finalizers"]
    stack.apply(search)
    _trains(stack, namespace, shared, 100_000)
    _held(stack, SEARCHES, search["metadata"]["name"], namespace)
    _held(stack, JOBS, NAME, namespace)
    with _no_operator(stack):
        stack.cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        eventually(lambda: not stack.list("pods", namespace), within_s=60, what="its pods are gone")
        _held(stack, JOBS, NAME, namespace)
    eventually(
        lambda: stack.get("namespace", namespace) is None,
        within_s=150,
        what="the namespace is gone",
    )
    stack.cluster.kubectl("create", "namespace", namespace)  # for who cleans up
