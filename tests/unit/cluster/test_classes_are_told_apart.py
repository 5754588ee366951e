# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from builders_raw import raw_job, raw_template
from ullage.api.labels import LABEL_CLASS, LABEL_FAMILY
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.projection.workload_class import class_key, family_key, profile_name, repository
from ullage.cluster.records.workload import WorkloadKind


def template(labels: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "example/train:1", **container}]},
    }


def test_the_same_work_has_the_same_key_whatever_surrounds_it() -> None:
    one = class_key(template(command=["python"], args=["--batch", "8"]), {})
    same = template(
        command=["python"], args=["--batch", "8"], env=[{"name": "A", "value": "b"}], ports=[]
    )
    assert class_key(same, {}) == one
    assert len(one) == 12


@pytest.mark.parametrize(
    "other",
    [
        {"args": ["--batch", "16"]},
        {"command": ["python3"], "args": ["--batch", "8"]},
        {"args": ["--batch", "8"], "image": "example/train:2"},
        {"command": ["--batch", "8"]},
    ],
)
def test_image_command_and_arguments_make_another_class(other: dict[str, Any]) -> None:
    assert class_key(template(args=["--batch", "8"]), {}) != class_key(template(**other), {})


def test_the_label_of_the_template_beats_that_of_the_owner_and_both_beat_the_hash() -> None:
    owner = {LABEL_CLASS: "from-owner", LABEL_FAMILY: "family-of-owner"}
    own = template({LABEL_CLASS: "from-template", LABEL_FAMILY: "family"})
    assert class_key(own, owner) == "from-template"
    assert family_key(own, owner) == "family"
    assert class_key(template(), owner) == "from-owner"
    assert family_key(template(), owner) == "family-of-owner"


def test_a_family_that_no_gpunode_can_hold_counts_by_its_hash() -> None:
    endless = family_key(template(image="x" * 20_000), {})
    assert len(endless) == 12
    assert endless != family_key(template(image="x" * 20_001), {})
    assert family_key(template(image="x" * 253 + ":1"), {}) == "x" * 253


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("resnet", "resnet"),
        ("team/resnet:1.2", "team/resnet"),
        ("host:5000/team/resnet", "host:5000/team/resnet"),
        ("host:5000/team/resnet:1@sha256:0f2c", "host:5000/team/resnet"),
        ("", ""),
    ],
)
def test_a_family_is_the_repository_of_the_image(image: str, name: str) -> None:
    assert repository(image) == name
    assert family_key(template(image=image), {}) == name


def test_a_profile_name_is_a_legal_name_for_any_class() -> None:
    names = {
        profile_name(workload_class) for workload_class in ("A_b.C", "resnet/50 amp", "x" * 253)
    }
    assert len(names) == 3
    assert all(len(name) == 18 and name.replace("-", "").isalnum() for name in names)


def test_a_workload_knows_class_and_family_by_its_own_labels_too() -> None:
    share = Sharer()
    plain = project_workload(WorkloadKind.TRAINING_JOB, raw_job(), None, share)[0]
    labelled = raw_job(meta={"labels": {LABEL_CLASS: "mine"}})
    record = project_workload(WorkloadKind.TRAINING_JOB, labelled, None, share)[0]
    assert plain.workload_class == class_key(raw_template(), {})
    assert (record.workload_class, record.family) == ("mine", "example/train")
