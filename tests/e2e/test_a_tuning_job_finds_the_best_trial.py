# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials of the digits network: they divide devices, one is killed, one grows, all are deleted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from e2e.stack import Json, Stack, eventually

EXAMPLE = Path("examples/13-tuning.yaml")
PROFILES = Path("examples/profiles.yaml")
TUNING = "tuningjobs.ullage.dev"
WITHIN_S = 420.0


@pytest.fixture
def search(stack: Stack, namespace: str) -> Json:
    """The example with nine trials."""
    return _apply(stack, namespace, trials=9, parallelism=3)


def _apply(stack: Stack, namespace: str, **changes: object) -> Json:
    """The example with changes; with ``resources`` the operator divides a device of node-1."""
    (body,) = yaml.safe_load_all(EXAMPLE.read_text())
    template = body["spec"]["trialTemplate"]
    pod = template["template"]["spec"]
    for variable in pod["containers"][0]["env"]:
        if variable["name"] == "CHECKPOINT_DIR":
            variable["value"] += f"/{namespace}"
    if "resources" in changes:
        template["gpu"] = {"memory": template["gpu"]["memory"]}
        pod["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    body["spec"] |= changes
    profiles = list(yaml.safe_load_all(PROFILES.read_text()))
    for one in (*profiles, body):
        one["metadata"]["namespace"] = namespace
    stack.apply(*profiles, body)
    return dict(body)


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(TUNING, "digits-tune", namespace)


def _runs(stack: Stack, namespace: str) -> list[Json]:
    return stack.list(
        "trainingjobs.ullage.dev", namespace, selector="ullage.dev/tuning=digits-tune"
    )


def _percent(run: Json) -> int:
    """Percent of a device that a TrainingJob asks for, 100 for each whole one."""
    gpu = run["spec"]["gpu"]
    return int(gpu["share"]["minPercent"]) if "share" in gpu else 100 * int(gpu["count"])


def test_a_search_ends_with_its_best_trial_and_counts_each_result_once(
    stack: Stack, namespace: str
) -> None:
    _apply(stack, namespace, trials=9, parallelism=4, resources={"devices": 1, "minPercent": 25})
    runs = eventually(lambda: _runs(stack, namespace), within_s=60, what="a trial runs")
    first = runs[0]["metadata"]["name"]
    eventually(
        lambda: stack.get("pods", f"{first}-0", namespace), within_s=60, what="it has its pod"
    )
    stack.delete("pods", f"{first}-0", namespace, "--grace-period=0", "--force")
    most = 0
    widths: dict[str, int] = {}

    def over() -> Json | None:
        nonlocal most
        runs = _runs(stack, namespace)
        active = [
            one for one in runs if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]
        most = max(most, len(active))
        widths.update({one["metadata"]["name"]: _percent(one) for one in runs})
        status = _status(stack, namespace)
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = eventually(over, within_s=WITHIN_S, what="the search is over")
    assert status["phase"] == "Succeeded", json.dumps(status)[:2000]
    assert most <= 4
    first = [percent for name, percent in widths.items() if name.endswith("-e1")]
    assert first.count(25) >= 4, widths
    assert [percent for name, percent in widths.items() if name.endswith("-e9")] == [100]
    counts = Counter((one["trial"], one["epoch"]) for one in status["results"])
    assert set(counts.values()) == {1}
    assert Counter(epoch for _, epoch in counts) == {1: 9, 3: 3, 9: 1}
    best = status["bestTrial"]
    assert best["epoch"] == 9
    assert 0.5 < float(best["value"]) <= 1.0
    assert best["parameters"].keys() == {"rate", "hidden"}
    values = {one["trial"]: float(one["value"]) for one in status["results"] if one["epoch"] == 1}
    ranked = sorted(values, key=lambda trial: (-values[trial], trial))
    assert {trial for trial, epoch in counts if epoch == 3} == set(ranked[:3])


@pytest.mark.timeout(1800, func_only=True)
def test_a_long_trial_gets_the_devices_of_those_that_ended(stack: Stack, namespace: str) -> None:
    _apply(
        stack,
        namespace,
        algorithm={"ref": "Grid", "maxEpochs": 2000},
        searchSpace=[{"name": "hidden", "type": "Categorical", "values": ["8", "9", "512"]}],
        trials=3,
        parallelism=4,
        resources={"devices": 1, "minPercent": 25},
    )

    def resized() -> Json | None:
        resizes = _status(stack, namespace).get("resizes", ())
        return next((one for one in resizes if (one["trial"], one["toPercent"]) == (2, 100)), None)

    resize = eventually(resized, within_s=WITHIN_S, what="the long trial gets a whole device")
    assert resize["fromPercent"] < 100
    name = "digits-tune-t0002-e2000"

    def goes_on() -> Json | None:
        run = stack.get("trainingjobs.ullage.dev", name, namespace)
        if run is None or _percent(run) != 100:
            return None
        progress = run.get("status", {}).get("progress", {})
        return progress if progress.get("resumedAtStep", 0) > 0 else None

    eventually(goes_on, within_s=120, what="it goes on from its checkpoint on the whole device")
    status = eventually(
        lambda: (
            found
            if (found := _status(stack, namespace)).get("phase") in ("Succeeded", "Failed")
            else None
        ),
        within_s=WITHIN_S,
        what="the search is over",
    )
    assert status["phase"] == "Succeeded", status.get("message")
    assert sorted(one["trial"] for one in status["results"]) == [0, 1, 2]
    stack.tells(namespace, "digits-tune", "TrialResized")


def test_a_search_that_is_deleted_halfway_leaves_nothing(
    stack: Stack, namespace: str, search: Json
) -> None:
    eventually(
        lambda: _status(stack, namespace).get("results"), within_s=180, what="a trial has a result"
    )
    stack.delete(TUNING, "digits-tune", namespace)
    eventually(lambda: not _runs(stack, namespace), within_s=90, what="its trials are gone")
    eventually(lambda: not stack.pods(namespace), within_s=90, what="their pods are gone")
