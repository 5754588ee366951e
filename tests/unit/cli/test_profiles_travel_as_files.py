# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What one cluster learned reaches another unchanged, and garbage is refused by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from builders import a_device_profile, a_gpu_node, a_policy, a_snapshot
from builders_raw import raw_meta
from fakes.cluster_port import FakeCluster
from ullage.api.schedulingpolicy import Knowledge
from ullage.cli import profiles
from ullage.cli.look import saved
from ullage.cli.profiles import ProfileError, accelerators, exported, read, to_yaml
from ullage.cluster.projection.rest import project_profile
from ullage.ports import WORKLOAD_PROFILE
from ullage.scheduling.prediction.rows import rows_of

SAMPLE = Path(__file__).parents[2] / "data" / "crd" / "status" / "workloadprofile.yaml"
KNOWN = {"emulated"}


def learned() -> dict[str, object]:
    body = yaml.safe_load(SAMPLE.read_text("utf-8"))
    return body | {"metadata": raw_meta("status-profile")}


def text() -> str:
    return to_yaml(exported(project_profile(learned())))


def imported(file: str) -> dict[str, object]:
    body = read(file, "status-profile", "default", KNOWN)
    return body | {"metadata": raw_meta("status-profile")}


def test_importing_what_was_exported_and_exporting_it_again_gives_the_same_file() -> None:
    first = text()
    assert to_yaml(exported(project_profile(imported(first)))) == first
    assert "stepTime" in first
    assert "novel" not in first


def test_rows_mean_the_same_after_the_journey() -> None:
    here = a_snapshot(project_profile(learned()))
    trusting = a_policy(knowledge=Knowledge(trusted=frozenset({"default"})))
    there = a_snapshot(project_profile(imported(text())), trusting)
    assert rows_of(there, "emulated") == rows_of(here, "emulated")
    assert len(rows_of(there, "emulated")) == 2


def test_imported_rows_teach_nothing_where_declarations_are_not_trusted() -> None:
    assert rows_of(a_snapshot(project_profile(imported(text()))), "emulated") == ()


def test_a_measured_row_beats_the_declared_one() -> None:
    (row,) = exported(project_profile(learned()))["spec"]["solo"]  # type: ignore[index]
    assert (row["smUtil"], row["stepsPerSecond"]) == (0.93, 28.5714)


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ("smUtil: .nan", r"spec\.solo\[0\]\.smUtil: nan must be a finite number"),
        ("smUtil: .inf", r"spec\.solo\[0\]\.smUtil: inf must be a finite number"),
        ("smUtil: -0.5", r"spec\.solo\[0\]\.smUtil: -0\.5 must be a finite number of at least 0"),
        ("smUtil: 93", r"spec\.solo\[0\]\.smUtil: 93 must be a number from 0 to 1"),
        ("smUtil: much", r"spec\.solo\[0\]\.smUtil: expected a number, got str"),
        ("l2Util: 0.5", r"spec\.solo\[0\]\.l2Util: unknown field"),
    ],
)
def test_a_bad_column_is_named(spoilt: str, says: str) -> None:
    file = text().replace("smUtil: 0.93", spoilt)
    with pytest.raises(ProfileError, match=says):
        imported(file)


def test_a_device_that_the_cluster_does_not_know_is_named_with_what_helps() -> None:
    file = text().replace("device: emulated", "device: nvidia-h100-80gb-hbm3")
    with pytest.raises(ProfileError, match=r"spec\.solo\[0\]\.device.*unknown here \(known: emu"):
        imported(file)
    assert read(file, "a", "default", None)["metadata"] == {"name": "a", "namespace": "default"}


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("", "holds no WorkloadProfile"),
        ("kind: TrainingJob", "holds no WorkloadProfile"),
        ("kind: [", "no YAML"),
        ("kind: WorkloadProfile", r"spec: expected an object, got NoneType"),
        ("{kind: WorkloadProfile, spec: {solo: []}}", r"spec\.class: missing"),
    ],
)
def test_what_is_no_profile_is_refused(file: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says):
        imported(file)


def test_a_flood_of_faults_is_cut() -> None:
    rows = [{"device": "emulated", "share": 10, "cs2": -1} for _ in range(50)]
    file = yaml.safe_dump({"kind": "WorkloadProfile", "spec": {"class": "a", "solo": rows}})
    with pytest.raises(ProfileError, match="and 40 more") as caught:
        imported(file)
    assert len(str(caught.value).splitlines()) == profiles.MOST_FAULTS + 2


def test_a_cluster_knows_the_devices_of_its_nodes_and_of_its_profiles() -> None:
    assert accelerators(a_snapshot(a_gpu_node(), a_device_profile("h100"))) == {"emulated", "h100"}


def test_saving_creates_the_object_or_replaces_its_spec_alone() -> None:
    async def main() -> tuple[str, str, FakeCluster]:
        cluster = FakeCluster()
        body = read(text(), "mine", "default", KNOWN)
        first = await saved(cluster, body)
        cluster.put(WORKLOAD_PROFILE, body | {"metadata": raw_meta("mine", uid="uid-mine")})
        return first, await saved(cluster, body), cluster

    first, second, cluster = asyncio.run(main())
    assert (first, second) == ("created", "replaced")
    assert cluster.verbs() == [
        ("get", "mine"),
        ("create", "mine"),
        ("get", "mine"),
        ("patch", "mine"),
    ]
    test, replace = cluster.calls[-1].body
    assert test == {"op": "test", "path": "/metadata/uid", "value": "uid-mine"}
    assert (replace["op"], replace["path"], replace["value"]["class"]) == (
        "replace",
        "/spec",
        "digits",
    )
