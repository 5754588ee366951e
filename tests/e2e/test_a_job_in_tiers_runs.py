# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job in tiers on two nodes: members go with and without a word, and training ends as if not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from demo.images import image_name
from digits import data
from digits.data import CLASSES
from digits.plan import Plan
from digits.tiered import Model
from e2e.stack import Json, Stack, eventually

NAME = "digits-tiers"
COORDINATOR = f"{NAME}-lead"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "07-tiers.yaml"
STEPS = 6_500
STEPS_AFTER_A_LOSS = 4_000
"""Of the job whose coordinator is lost at a quarter of it."""
SILENCE_S = 60
"""On a busy machine a member that trains may say nothing for seconds."""
EVERY = 500
BATCH = 256
PACED = """
import sys, time
import ullage_run
from digits import tiered
step = ullage_run.step
def paced():
    time.sleep(0.002)
    step()
ullage_run.step = paced
sys.exit(tiered.main())
"""
"""The example, which is not over before a member was taken away, however fast the machine is."""
COMPARED = 5_000
"""Losses up to this step are compared with those of one process that no one disturbs."""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that the pods of both nodes see; /var/tmp is one of each node's own."""
    tmp_path.chmod(0o777)
    return tmp_path


def _example(namespace: str, steps: int, shared: Path) -> Json:
    """The example as users apply it, with our images, a shared volume, and longer."""
    body: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = namespace
    body["spec"]["work"]["steps"] = steps
    body["spec"]["elasticity"]["backup"]["silenceSeconds"] = SILENCE_S
    del body["spec"]["profileRef"]  # it stands in another namespace
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["image"] = image_name("examples")
    assert container["command"] == ["python", "-m", "digits.tiered"]
    container["command"] = ["python", "-c", PACED]
    said = {
        "STEPS": str(steps),
        "BATCH": str(BATCH),
        "CHECKPOINT_DIR": f"/checkpoints/{namespace}",
        "CHECKPOINT_EVERY": str(EVERY),
    }
    for entry in container["env"]:
        entry["value"] = said.get(entry["name"], entry["value"])
    volumes = body["spec"]["template"]["spec"]["volumes"]
    next(one for one in volumes if one["name"] == "checkpoints")["hostPath"]["path"] = str(shared)
    return body


def _members(stack: Stack, namespace: str, tier: str = "") -> dict[str, str]:
    """Members that run and stay: uid by name."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in stack.pods(namespace, NAME)
        if pod["metadata"]["labels"].get("ullage.dev/tier", "").startswith(tier or "")
        and "ullage.dev/tier" in pod["metadata"]["labels"]
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


def _run(stack: Stack, namespace: str, members: int) -> dict[str, str]:
    """Wait until so many run."""
    return eventually(
        lambda: found if len(found := _members(stack, namespace)) == members else None,
        within_s=120,
        what=f"{members} members run",
    )


def _said(stack: Stack, namespace: str) -> list[Json]:
    """Events that the coordinator has printed."""
    lines = stack.logs(COORDINATOR, namespace).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _losses(stack: Stack, namespace: str, pod: str) -> dict[int, float]:
    """Loss by step, as a member prints it."""
    found = re.findall(r"step (\d+) loss ([0-9.]+)", stack.logs(pod, namespace))
    return {int(step): float(loss) for step, loss in found}


def _passes(stack: Stack, namespace: str, step: int) -> None:
    eventually(
        lambda: max(_losses(stack, namespace, f"{NAME}-0"), default=0) >= step,
        within_s=240,
        what=f"step {step} is done",
    )


def _undisturbed(steps: int) -> dict[int, float]:
    """Losses of one process that owns everything."""
    model = Model(Plan(batch=BATCH, checkpoint_dir=Path("/nonexistent")), data.load())
    for digit in range(CLASSES):
        model.take(digit, None)
    found: dict[int, float] = {}
    for step in range(1, steps + 1):
        loss = model.train(step, lambda mine: {"alone": mine})
        if step % EVERY == 0:
            found[step] = loss
    return found


@pytest.mark.timeout(1800, func_only=True)
def test_members_go_with_and_without_a_word_and_no_work_is_lost(
    stack: Stack, namespace: str, shared: Path
) -> None:
    stack.apply(_example(namespace, STEPS, shared))
    members = _run(stack, namespace, 3)
    assert _members(stack, namespace, "reliable").keys() == {f"{NAME}-0"}
    coordinator = stack.get("pods", COORDINATOR, namespace)
    assert coordinator is not None
    tier = eventually(
        lambda: stack.job(NAME, namespace).get("tier"), within_s=60, what="the coordinator is asked"
    )
    assert tier["ratio"].endswith(":1")
    uid = (stack.get("trainingjobs.ullage.dev", NAME, namespace) or {})["metadata"]["uid"]
    for kind in ("services", "secrets", "networkpolicies"):
        owners = [
            one["metadata"].get("ownerReferences", [{}])[0].get("uid")
            for one in stack.list(kind, namespace)
        ]
        assert uid in owners, f"no {kind} of the job"

    _passes(stack, namespace, EVERY)
    transient = _members(stack, namespace, "transient")
    first, second = sorted(transient)
    stack.delete("pod", first, namespace, "--wait=false")  # SIGTERM, as a drain sends it
    eventually(
        lambda: any(one["event"] == "EvictionNotice" for one in _said(stack, namespace)),
        within_s=30,
        what="the coordinator hears that a member goes",
    )
    eventually(
        lambda: transient[first] not in _members(stack, namespace).values(),  # it comes again
        within_s=60,
        what=f"{first} has left",
    )
    lost = [one["lostSteps"] for one in _said(stack, namespace) if one["event"] == "Recovered"]
    assert sum(lost) == 0, "a member that hands over costs nothing"

    _passes(stack, namespace, max(_losses(stack, namespace, f"{NAME}-0")) + EVERY)
    killed = _members(stack, namespace)[second]
    node = (stack.get("pods", second, namespace) or {})["spec"]["nodeName"]
    print(f"{second} on {node} is killed")
    stack.delete("pod", second, namespace, "--grace-period=0", "--force", "--wait=false")
    eventually(
        lambda: killed not in _members(stack, namespace).values(),
        within_s=60,
        what=f"{second} is gone",
    )
    done = stack.job_reaches(NAME, namespace, "Succeeded", within_s=600)
    assert done.get("restarts", 0) == 0
    lost = [one["lostSteps"] for one in _said(stack, namespace) if one["event"] == "Recovered"]
    print(f"steps done again: {lost}")
    assert sum(lost) <= 2
    survivor = stack.get("pods", f"{NAME}-0", namespace)
    assert survivor is not None
    assert survivor["metadata"]["uid"] == members[f"{NAME}-0"], "no one else was touched"
    same = stack.get("pods", COORDINATOR, namespace)
    assert same is not None
    assert same["metadata"]["uid"] == coordinator["metadata"]["uid"]
    eventually(
        lambda: (stack.get("pods", COORDINATOR, namespace) or {})["status"]["phase"] == "Succeeded",
        within_s=30,
        what="the coordinator ends with its job",
    )
    log = stack.logs(f"{NAME}-0", namespace)
    accuracy = re.search(r"test accuracy ([0-9.]+)", log)
    assert accuracy is not None
    assert float(accuracy.group(1)) > 0.9
    told = _losses(stack, namespace, f"{NAME}-0")
    for step, loss in _undisturbed(COMPARED).items():
        assert told[step] == pytest.approx(loss, abs=1e-5), f"step {step}"
    stack.books_balance()


@pytest.mark.timeout(1800, func_only=True)
def test_a_lost_lead_means_another_start_from_the_checkpoint(
    stack: Stack, namespace: str, shared: Path
) -> None:
    stack.apply(_example(namespace, STEPS_AFTER_A_LOSS, shared))
    before = _run(stack, namespace, 3)
    _passes(stack, namespace, 2 * EVERY)
    coordinator = (stack.get("pods", COORDINATOR, namespace) or {})["metadata"]["uid"]
    stack.delete("pod", COORDINATOR, namespace, "--grace-period=0", "--force", "--wait=false")
    eventually(
        lambda: "LeadLost" in {event["reason"] for event in stack.events(namespace, NAME)},
        within_s=60,
        what="the loss is told",
    )

    def again() -> dict[str, str]:
        found = _members(stack, namespace)
        old = set(found.values()) & set(before.values())
        return found if f"{NAME}-0" in found and not old else {}

    eventually(again, within_s=180, what="every member started again")
    again = eventually(
        lambda: (stack.get("pods", COORDINATOR, namespace) or {}).get("metadata", {}).get("uid"),
        within_s=30,
        what="there is a new coordinator",
    )
    assert again != coordinator
    begun = eventually(
        lambda: re.search(r"begins at step (\d+)", stack.logs(f"{NAME}-0", namespace)),
        within_s=90,
        what="it begins where the checkpoint was",
    )
    assert int(begun.group(1)) > 2 * EVERY
    done = stack.job_reaches(NAME, namespace, "Succeeded", within_s=600)
    assert done.get("restarts", 0) == 0
    stack.books_balance()
