# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nine trials of the digits network by successive halving; one of them is killed."""

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
    (body,) = yaml.safe_load_all(EXAMPLE.read_text())
    body["metadata"]["namespace"] = namespace
    body["spec"] |= {"trials": 9, "parallelism": 3}
    profiles = list(yaml.safe_load_all(PROFILES.read_text()))
    for one in profiles:
        one["metadata"]["namespace"] = namespace
    stack.apply(*profiles, body)
    return dict(body)


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(TUNING, "digits-tune", namespace)


def _runs(stack: Stack, namespace: str) -> list[Json]:
    return stack.list(
        "trainingjobs.ullage.dev", namespace, selector="ullage.dev/tuning=digits-tune"
    )


def test_a_search_ends_with_its_best_trial_and_counts_each_result_once(
    stack: Stack, namespace: str, search: Json
) -> None:
    runs = eventually(lambda: _runs(stack, namespace), within_s=60, what="a trial runs")
    first = runs[0]["metadata"]["name"]
    eventually(
        lambda: stack.get("pods", f"{first}-0", namespace), within_s=60, what="it has its pod"
    )
    stack.delete("pods", f"{first}-0", namespace, "--grace-period=0", "--force")
    most = 0

    def over() -> Json | None:
        nonlocal most
        active = [
            one
            for one in _runs(stack, namespace)
            if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]
        most = max(most, len(active))
        status = _status(stack, namespace)
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = eventually(over, within_s=WITHIN_S, what="the search is over")
    assert status["phase"] == "Succeeded", json.dumps(status)[:2000]
    assert most <= 3
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


def test_a_search_that_is_deleted_halfway_leaves_nothing(
    stack: Stack, namespace: str, search: Json
) -> None:
    eventually(
        lambda: _status(stack, namespace).get("results"), within_s=180, what="a trial has a result"
    )
    stack.delete(TUNING, "digits-tune", namespace)
    eventually(lambda: not _runs(stack, namespace), within_s=90, what="its trials are gone")
    eventually(lambda: not stack.pods(namespace), within_s=90, what="their pods are gone")
