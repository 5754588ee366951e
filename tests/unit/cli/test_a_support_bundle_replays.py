# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A support bundle gives the decision again elsewhere, without commands and environments."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import NOW, a_gpu_node, a_job, a_node, a_snapshot
from builders_raw import raw_job
from ullage.api.checks import CheckState, NodeCheck
from ullage.app.replay import from_json
from ullage.cli import access, doctor, main
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.streams import STREAMS, Stream
from ullage.scheduling.cycle.decide import decide

RUNNER = CliRunner()
CHECK = NodeCheck(name="Driver", state=CheckState.OK, message="580.65.06")


def secretive() -> Snapshot:
    """A cluster whose job says what should go nowhere."""
    container = {
        "name": "main",
        "image": "example/train:1",
        "command": ["train", "--token=open-sesame"],
        "env": [{"name": "TOKEN", "value": "hidden-value"}],
    }
    raw = raw_job("train")
    raw["spec"]["template"]["spec"]["containers"] = [container]
    record = project_workload(WorkloadKind.TRAINING_JOB, raw, None, Sharer())[0]
    waits = a_job("waits")
    return a_snapshot(record, waits.record, *waits.pods(), a_node(), a_gpu_node())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    seen = secretive()

    def look(_: object, wanted: Sequence[Stream]) -> Snapshot:
        assert tuple(wanted) == STREAMS
        return seen

    async def examine(*_: object) -> tuple[doctor.Examined, ...]:
        return (doctor.Examined(node="node-1", checks=(CHECK,)),)

    monkeypatch.setattr(access, "look_at", look)
    monkeypatch.setattr(doctor, "examine", examine)
    return seen


def files_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(
            member.isfile() and member.name.startswith("ullage-support/") for member in members
        )
        found = {member.name: archive.extractfile(member) for member in members}
        return {
            name.removeprefix("ullage-support/"): one.read()
            for name, one in found.items()
            if one is not None
        }


def test_the_snapshot_of_a_bundle_gives_the_same_decision(
    cluster: Snapshot, tmp_path: Path
) -> None:
    path = tmp_path / "bundle.tar.gz"
    told = RUNNER.invoke(main.app, ["support-bundle", "-f", str(path)])
    assert told.exit_code == 0, told.output
    files = files_of(path)
    snapshot, now, settings = from_json(files["snapshot.json"])
    assert now == NOW
    assert snapshot == cluster
    again, before = decide(snapshot, now, settings), decide(cluster, now, settings)
    assert again.slices == before.slices
    assert again.statuses == before.statuses
    assert json.loads(files["about.json"])["workloads"] == 2
    assert b"node-1" in files["doctor.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_command_and_no_environment_is_in_it(cluster: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    RUNNER.invoke(main.app, ["support-bundle", "-f", str(path)])
    for name, data in files_of(path).items():
        for secret in (b"open-sesame", b"hidden-value", b"TOKEN"):
            assert secret not in data, name


def test_a_file_that_is_there_is_left_alone(cluster: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_text("mine")
    told = RUNNER.invoke(main.app, ["support-bundle", "-f", str(path)])
    assert told.exit_code == 1
    assert "File exists" in told.output
    assert path.read_text() == "mine"
