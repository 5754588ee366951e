# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``simulate --submit`` says what the operator would do with a job, and submits nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from builders import NOW, WorkloadBuilder, a_device, a_gpu_node, a_job, a_snapshot
from ullage.app.replay import to_json
from ullage.cli.main import app
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings
from ullage_simulate.submission import SubmissionTrial
from ullage_simulate.world import World

SETTINGS = DecideSettings(epoch=7)
Tried = Callable[[Snapshot, str], tuple[int, str, dict[str, Any]]]


def manifest(*, replicas: int = 1, priority: int = 0) -> str:
    return f"""
apiVersion: ullage.dev/v1alpha1
kind: TrainingJob
metadata: {{name: try, namespace: team-a}}
spec:
  replicas: {replicas}
  template:
    spec: {{containers: [{{name: main, image: example/train:1}}], priority: {priority}}}
"""


def world(*jobs: WorkloadBuilder) -> Snapshot:
    """One node of two devices, on which these jobs run already."""
    found = World(
        base=a_snapshot(a_gpu_node(devices=[a_device("GPU-0"), a_device("GPU-1")]), *jobs), now=NOW
    )
    cycle = SubmissionTrial(found, SETTINGS)
    cycle.run("")
    return found.snapshot()


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    """Tries a manifest on a saved snapshot: exit status, what was told, the JSON."""

    def command(seen: Snapshot, text: str) -> tuple[int, str, dict[str, Any]]:
        saved, manifest, answer = (tmp_path / name for name in ("seen", "job.yaml", "answer"))
        saved.write_bytes(to_json((seen, NOW, SETTINGS)))
        manifest.write_text(text, encoding="utf-8")
        done = CliRunner().invoke(
            app,
            [
                "simulate",
                "--submit",
                str(manifest),
                "--snapshot",
                str(saved),
                "--json",
                str(answer),
            ],
        )
        found = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
        return done.exit_code, done.output, found

    return command


def test_a_job_that_fits_is_told_its_devices(tried: Tried) -> None:
    code, said, found = tried(world(), manifest(replicas=2))
    assert code == 0, said
    assert "team-a/try would start at once" in said
    assert found["starts"] is True
    assert found["stopped"] == []
    places = found["status"]["placement"]
    assert sorted(place["gpu"] for place in places) == ["GPU-0", "GPU-1"]


def test_a_job_that_does_not_fit_is_told_why_it_would_wait(tried: Tried) -> None:
    code, said, found = tried(world(a_job("runs")), manifest(replicas=2))
    assert code == 0, said
    assert "team-a/try would wait" in said
    assert found["starts"] is False
    assert found["startsInSeconds"] is None
    assert found["status"]["decision"]["reason"] == "NoCapacity"


def test_whoever_would_be_stopped_is_named(tried: Tried) -> None:
    seen = world(a_job("low").with_(checkpoint=True), a_job("lower").with_(checkpoint=True))
    code, said, found = tried(seen, manifest(replicas=1, priority=100))
    assert code == 0, said
    assert found["starts"] is True
    (stopped,) = found["stopped"]
    assert stopped["name"] in ("low", "lower")
    assert stopped["why"].startswith("Preempted: ")
    assert stopped["name"] in said


def test_the_snapshot_without_the_job_is_played_first(tried: Tried) -> None:
    """A job that the operator is about to start takes its device before the newcomer."""
    seen = a_snapshot(
        a_gpu_node(devices=[a_device("GPU-0")]), a_job("first").with_(created=NOW - 60)
    )
    _, said, found = tried(seen, manifest(replicas=1))
    assert found["starts"] is False, said
    assert found["stopped"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file holds 0 TrainingJobs"),
        ("a: [", "the file is no YAML"),
        ("kind: TrainingJob\nspec: 7", "spec"),
        ("kind: TrainingJob\nmetadata: {name: a}\nspec: {work: 2026-11-26}", "spec"),
        ("kind: TrainingJob\nspec: &a {work: *a}", "cannot be written as JSON"),
        ("kind: InferenceDeployment", "the file holds 0 TrainingJobs"),
        ("#" * ((1 << 20) + 1), "1048576 bytes"),
    ],
)
def test_what_is_no_job_is_an_error_that_says_so(tried: Tried, text: str, problem: str) -> None:
    code, said, found = tried(world(), text)
    assert (code, found) == (1, {})
    assert problem in said
    assert "Traceback" not in said


def test_a_name_that_is_taken_is_an_error(tried: Tried) -> None:
    code, said, _ = tried(world(a_job("try", "team-a")), manifest())
    assert code == 1
    assert "team-a/try exists" in said


def test_a_priority_class_that_is_not_read_is_told(tried: Tried) -> None:
    text = manifest().replace("{containers:", "{priorityClassName: urgent, containers:")
    _, said, _ = tried(world(), text)
    assert "priorityClassName urgent" in said
