# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Searches that divide devices: many trials get shares, few get whole ones, a long one grows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from e2e.stack import Json, Stack, eventually

EXAMPLE = Path("examples/13-tuning.yaml")
PROFILES = Path("examples/profiles.yaml")
TUNING = "tuningjobs.ullage.dev"
RUNS = "trainingjobs.ullage.dev"
OVER = ("Succeeded", "Failed")


def _apply(stack: Stack, namespace: str, **changes: object) -> None:
    """The example, with devices that the operator divides instead of a share for each trial."""
    (body,) = yaml.safe_load_all(EXAMPLE.read_text())
    template = body["spec"]["trialTemplate"]
    template["gpu"] = {"memory": template["gpu"]["memory"]}
    template["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    body["spec"] |= {"parallelism": 4, "resources": {"devices": 1, "minPercent": 25}} | changes
    profiles = list(yaml.safe_load_all(PROFILES.read_text()))
    for one in (*profiles, body):
        one["metadata"]["namespace"] = namespace
    stack.apply(*profiles, body)


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(TUNING, "digits-tune", namespace)


def _runs(stack: Stack, namespace: str) -> dict[str, Json]:
    found = stack.list(RUNS, namespace, selector="ullage.dev/tuning=digits-tune")
    return {one["metadata"]["name"]: one for one in found}


def _percent(run: Json) -> int:
    gpu = run["spec"]["gpu"]
    return int(gpu["share"]["minPercent"]) if "share" in gpu else 100 * int(gpu["count"])


def test_the_last_rung_gets_what_the_first_shared(stack: Stack, namespace: str) -> None:
    _apply(stack, namespace, trials=9)
    seen: dict[str, int] = {}

    def over() -> Json | None:
        seen.update({name: _percent(run) for name, run in _runs(stack, namespace).items()})
        status = _status(stack, namespace)
        return status if status.get("phase") in OVER else None

    status = eventually(over, within_s=420, what="the search is over")
    assert status["phase"] == "Succeeded", status.get("message")
    counts = Counter((one["trial"], one["epoch"]) for one in status["results"])
    assert set(counts.values()) == {1}
    assert Counter(epoch for _, epoch in counts) == {1: 9, 3: 3, 9: 1}
    first = [percent for name, percent in seen.items() if name.endswith("-e1")]
    assert first.count(25) >= 4, seen
    assert [percent for name, percent in seen.items() if name.endswith("-e9")] == [100]
    values = {one["trial"]: float(one["value"]) for one in status["results"] if one["epoch"] == 1}
    ranked = sorted(values, key=lambda trial: (-values[trial], trial))
    assert {trial for trial, epoch in counts if epoch == 3} == set(ranked[:3])


def test_a_long_trial_gets_the_devices_of_those_that_ended(stack: Stack, namespace: str) -> None:
    _apply(
        stack,
        namespace,
        algorithm={"ref": "Grid", "maxEpochs": 400},
        searchSpace=[{"name": "hidden", "type": "Categorical", "values": ["8", "9", "512"]}],
        trials=3,
    )

    def resized() -> Json | None:
        return next(iter(_status(stack, namespace).get("resizes", ())), None)

    resize = eventually(resized, within_s=240, what="the long trial is resized")
    assert (resize["trial"], resize["toPercent"]) == (2, 100)
    assert resize["fromPercent"] < 100
    name = "digits-tune-t0002-e400"

    def goes_on() -> Json | None:
        run = _runs(stack, namespace).get(name)
        if run is None or _percent(run) != 100:
            return None
        progress = run.get("status", {}).get("progress", {})
        return progress if progress.get("resumedAtStep", 0) > 0 else None

    eventually(goes_on, within_s=120, what="it goes on from its checkpoint on the whole device")
    status = eventually(
        lambda: found if (found := _status(stack, namespace)).get("phase") in OVER else None,
        within_s=300,
        what="the search is over",
    )
    assert status["phase"] == "Succeeded", status.get("message")
    assert sorted(one["trial"] for one in status["results"]) == [0, 1, 2]
    reasons = {
        event["reason"]
        for event in stack.list("events", namespace)
        if event["involvedObject"]["name"] == "digits-tune"
    }
    assert "TrialResized" in reasons
