# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A simulation starts from the live cluster, with the examples on it, and leaves it as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.stack import Json, Stack, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("profiles.yaml", "01-training.yaml", "03-inference.yaml", "04-waits.yaml")
JOBS = ("digits-a", "digits-waits")
BASELINES = {"fifo", "las"}


def _examples(namespace: str) -> Iterator[Json]:
    """What a user applies, in one namespace."""
    for name in FILES:
        for body in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")):
            yield body | {"metadata": body["metadata"] | {"namespace": namespace}}


def _simulated(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, with the figures on its standard output."""
    command = [
        sys.executable, "-m", "ullage.cli.main", "--kubeconfig", str(stack.cluster.kubeconfig),
        "simulate", "--from-cluster", "--round-seconds", "60", "--each", "--json", "-", *words,
    ]  # fmt: skip
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _specs(stack: Stack, namespace: str) -> dict[str, tuple[str, int, str]]:
    """What must not change: who is there, and what is wanted of it."""
    kinds = (
        "trainingjobs.ullage.dev",
        "inferencedeployments.ullage.dev",
    )
    return {
        f"{kind}/{one['metadata']['name']}": (
            one["metadata"]["uid"], one["metadata"]["generation"], json.dumps(one["spec"])
        )
        for kind in kinds
        for one in stack.list(kind, namespace)
    }  # fmt: skip


@pytest.fixture
def examples(stack: Stack, namespace: str) -> str:
    """The examples, of which the first trains and the service has been looked at."""
    stack.apply(*_examples(namespace))
    stack.job_reaches("digits-a", namespace, "Running")
    eventually(
        lambda: stack.status("inferencedeployments.ullage.dev", "digits-serve", namespace),
        within_s=60,
        what="the service has a status",
    )
    return namespace


@pytest.mark.timeout(1800, func_only=True)
@pytest.mark.parametrize("mode", ["fast", "decide"])
def test_the_examples_are_played_to_their_end(stack: Stack, examples: str, mode: str) -> None:
    before = _specs(stack, examples)
    done = _simulated(stack, "--mode", mode)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert set(found["policies"]) >= BASELINES
    for name in BASELINES:
        figures = found["policies"][name]
        ends = {job["name"]: job["jct_s"] for job in figures["each"]}
        for job in JOBS:
            assert ends[f"{examples}/{job}"] > 0, (name, ends)
        assert figures["jobs"] == len(ends)
    assert any("ask for a part of a device" in note for note in found["notes"])
    assert _specs(stack, examples) == before
    stack.books_balance()


@pytest.fixture
def priced(stack: Stack) -> Iterator[str]:
    """The type of the cluster's devices, which costs 2.50 an hour; as before afterwards."""
    kind = "deviceprofiles.ullage.dev"
    device = stack.list("gpunodes.ullage.dev")[0]["status"]["devices"][0]
    model, price = device["model"], {"pricePerHour": "2.50"}
    before = stack.get(kind, model)
    if before is None:
        spec = {"memory": f"{device['memoryMiB']}Mi", **price}
        head = {"apiVersion": "ullage.dev/v1alpha1", "kind": "DeviceProfile"}
        stack.apply({**head, "metadata": {"name": model}, "spec": spec})
    else:
        stack.patch(kind, model, "", {"spec": price})
    yield model
    if before is None:
        stack.cluster.kubectl("delete", kind, model)
    else:
        stack.patch(kind, model, "", {"spec": {"pricePerHour": None}})


@pytest.mark.timeout(1800, func_only=True)
@pytest.mark.usefixtures("examples")
def test_a_price_of_the_cluster_is_one_of_the_simulation(stack: Stack, priced: str) -> None:
    done = _simulated(stack, "--policy", "min-cost")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["prices"] == {priced: 2.5}
    assert found["policies"]["min-cost"]["dollars"] > 0
