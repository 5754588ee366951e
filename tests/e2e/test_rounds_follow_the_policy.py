# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Six real jobs take turns on two accelerator types, and get the time that they were promised."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from demo.cluster import EmulatedDevice
from e2e.conftest import DEVICES
from e2e.stack import Json, Stack, busy_template, eventually, training_job, whole_device

FULL, HALF = "emulated-full", "emulated-half"
TYPES = {
    "node-1": [EmulatedDevice(core=0, percent=60, model=FULL)],
    "node-2": [EmulatedDevice(core=1, percent=30, model=HALF)],
}
ROUND_S = 15
ROUNDS = int(os.environ.get("ULLAGE_E2E_ROUNDS") or 0)
"""Set: time is measured for so many rounds, on a quiet machine; 50 take a quarter of an hour."""
MOST_OFF = max(0.05, 2.5 / max(ROUNDS, 1))
"""Of the elapsed time; a round is 1 / ROUNDS of it, so a few rounds cannot tell more exactly."""
CLASSES = {"turns-a": (12.0, 5.0), "turns-b": (12.0, 9.0)}
"""Steps per second that are declared of each class on the full and on the half core."""
JOBS = {f"turn-{at}": sorted(CLASSES)[at % 2] for at in range(6)}


@pytest.fixture(scope="module")
def types(stack: Stack) -> Iterator[None]:
    """Two accelerator types; as before afterwards."""
    stack.offer(TYPES)
    yield
    stack.offer(DEVICES)


@pytest.fixture
def turns(stack: Stack, types: None, namespace: str) -> Iterator[str]:
    """A policy that divides the time of the two types; gone afterwards."""
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {"objective": "MaxMinFairness", "roundSeconds": ROUND_S, "gangSkipLimit": 2},
    }
    try:
        stack.apply(policy, *(_profile(name, namespace) for name in CLASSES))
        yield namespace
    finally:
        stack.cluster.kubectl("delete", "trainingjobs.ullage.dev", "--all", "-n", namespace)
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )


def _profile(workload_class: str, namespace: str) -> Json:
    full, half = CLASSES[workload_class]
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": workload_class, "namespace": namespace},
        "spec": {
            "class": workload_class,
            "solo": [
                {"device": FULL, "share": 100, "stepsPerSecond": full},
                {"device": HALF, "share": 100, "stepsPerSecond": half},
            ],
        },
    }


def _job(name: str, workload_class: str, namespace: str) -> Json:
    template = busy_template()
    template["metadata"] = {"labels": {"ullage.dev/class": workload_class}}
    checkpoint = {"signal": "SIGTERM", "graceSeconds": 5}
    return training_job(name, namespace, template, gpu=whole_device(), checkpoint=checkpoint)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _books(stack: Stack, namespace: str) -> dict[str, Json]:
    """``status.allocation`` of every job."""
    return {
        job["metadata"]["name"]: job.get("status", {}).get("allocation", {})
        for job in stack.list("trainingjobs.ullage.dev", namespace)
    }


def _received(books: Json, kind: str, now: float) -> float:
    had = books.get("receivedSeconds", {}).get(kind, {})
    running = max(0.0, now - _moment(had["since"])) if had.get("since") else 0.0
    return float(had.get("seconds", 0)) + running


def _divided(stack: Stack, namespace: str) -> bool:
    """Whether all jobs know their part, and the two types are in use."""
    books = _books(stack, namespace)
    held = [job for job in books.values() if any(
        one.get("since") for one in job.get("receivedSeconds", {}).values()
    )]  # fmt: skip
    return all(job.get("fractions") for job in books.values()) and len(held) == len(TYPES)


def test_six_jobs_take_turns_and_each_has_one(stack: Stack, turns: str) -> None:
    """How exactly promises are kept is stated in virtual time, and measured on request."""
    stack.apply(*(_job(name, workload_class, turns) for name, workload_class in JOBS.items()))
    eventually(lambda: _divided(stack, turns), within_s=120, what="six jobs share two types")

    def waiting() -> set[str]:
        """Jobs that have had no time yet."""
        return {
            name
            for name, book in _books(stack, turns).items()
            if not any(_received(book, kind, time.time()) for kind in (FULL, HALF))
        }

    eventually(lambda: not waiting(), within_s=12 * ROUND_S, what="each job has had a turn")
    _all_went_well(stack, turns)


@pytest.mark.skipif(
    not ROUNDS, reason="a quarter of an hour on a quiet machine: make test-e2e E2E_ROUNDS=50"
)
@pytest.mark.timeout(ROUND_S * ROUNDS + 600, func_only=True)
def test_six_jobs_get_the_time_that_they_were_promised(stack: Stack, turns: str) -> None:
    stack.apply(*(_job(name, workload_class, turns) for name, workload_class in JOBS.items()))
    eventually(lambda: _divided(stack, turns), within_s=120, what="six jobs share two types")
    begin, before = time.time(), _books(stack, turns)
    promised: dict[tuple[str, str], float] = {}
    last = begin
    while last < begin + ROUND_S * ROUNDS:
        time.sleep(3)
        now, books = time.time(), _books(stack, turns)
        for name, job in books.items():
            for kind, part in job.get("fractions", {}).items():
                promised[name, kind] = promised.get((name, kind), 0.0) + float(part) * (now - last)
        last = now
    elapsed, after = last - begin, _books(stack, turns)
    found = {
        (name, kind): (
            (_received(after[name], kind, last) - _received(before[name], kind, begin)) / elapsed,
            promised.get((name, kind), 0.0) / elapsed,
        )
        for name in JOBS
        for kind in (FULL, HALF)
    }
    off = {key: one for key, one in found.items() if abs(one[0] - one[1]) > MOST_OFF}
    assert not off, (off, found)
    for name in JOBS:
        assert sum(found[name, kind][0] for kind in (FULL, HALF)) > 0.1
    for kind in (FULL, HALF):
        busy = sum(found[name, kind][0] for name in JOBS)
        assert busy > 0.8, f"{kind} was idle for {1 - busy:.0%} of the time"
    _all_went_well(stack, turns)


def _all_went_well(stack: Stack, namespace: str) -> None:
    """No restart counts against a job, and events and the command line tell of all."""
    for name in JOBS:
        status = stack.job(name, namespace)
        assert status.get("restarts", 0) == 0, status
        stack.tells(namespace, name, "RoundScheduled")
    stack.books_balance()
    done = subprocess.run(
        [
            sys.executable, "-m", "ullage.cli.main",
            "--kubeconfig", str(stack.cluster.kubeconfig), "explain", "policy",
        ],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert "MaxMinFairness" in done.stdout
    for name in JOBS:
        assert f"{namespace}/{name}" in done.stdout
