# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage why`` and the metrics show how many replicas a service has, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from builders import a_service
from ullage.api.reasons import Reason
from ullage.cli.tables_scaling import scaling
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import ChosenShare, ReplicaChoice, ScalingRecord
from ullage.metrics.scaling import scaling_figures

BOUNDS = ReplicaBounds(min_replicas=1, max_replicas=8)
RECORD = ScalingRecord(
    load="18.2",
    forecast="21",
    predicted_ms=210,
    chosen=ReplicaChoice(replicas=3, percent=30, accelerator="emulated"),
    runner_up=ReplicaChoice(replicas=2, percent=30, accelerator="emulated"),
    reason=Reason.STEADY,
    message="p99 of 250 ms needs 3 replicas",
    launch_seconds=30,
)


def shown(record: ScalingRecord) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(scaling(BOUNDS, record))
    return capture.get()


def test_load_choice_and_one_less_are_shown() -> None:
    text = shown(RECORD)
    for part in (
        "3 of 30% emulated, 1 to 8",
        "Steady: p99 of 250 ms needs 3 replicas",
        "18.2 requests/s, 21 planned for",
        "210 ms predicted",
        "2 of 30% emulated: more would come than is served",
        "30 s",
    ):
        assert part in text
    assert "what helps" not in text


def test_what_is_wrong_comes_with_what_helps() -> None:
    text = shown(ScalingRecord(chosen=ReplicaChoice(replicas=2), reason=Reason.LOAD_UNKNOWN))
    assert "LatencyUnmeasured" in text
    assert "requests/s" not in text


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (ChosenShare(percent=25, time=1000.0), "25% chosen for the objective"),
        (ChosenShare(percent=25, accelerator="l4", time=1000.0), "25% l4 chosen for the objective"),
        (ChosenShare(time=1000.0), "found no room"),
    ],
)
def test_a_chosen_share_is_shown(share: ChosenShare, said: str) -> None:
    assert said in shown(replace(RECORD, share=share))


def test_metrics_count_services_by_reason_and_name_none() -> None:
    one = a_service("one").with_(scaling=BOUNDS).status(scaling=RECORD).build()
    two = replace(one, status=replace(one.status, scaling=replace(RECORD, reason=Reason.SCALED_UP)))
    external = replace(one, scaling=None)
    found = scaling_figures([one, one, two, external])
    assert found.services == {"Steady": 2, "ScaledUp": 1}
    assert found.replicas == 9
