# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from demo.images import image_name
from digits.plan import Plan

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = sorted((ROOT / "examples").glob("*.yaml"))
DEVICES = 2
OWN_IMAGE = {"digits-torchrun": "localhost/ullage-examples-torch:dev"}
"""Of examples whose image the reader makes: it needs more than the other programs do."""

Body = dict[str, Any]


def bodies(file: Path) -> list[Body]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def ours(file: Path) -> list[Body]:
    """What of a file is of our own kinds."""
    return [body for body in bodies(file) if body["apiVersion"].startswith("ullage.dev/")]


WORKLOADS = {
    body["metadata"].get("name") or body["metadata"]["generateName"]: body
    for file in MANIFESTS
    for body in bodies(file)
    if body["kind"] in ("TrainingJob", "InferenceDeployment")
}
JOBS = {name: body for name, body in WORKLOADS.items() if body["kind"] == "TrainingJob"}


@cache
def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Kind -> schema of the version we use."""
    found = {}
    for file in (ROOT / "crds").glob("*.yaml"):
        crd = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        found[crd["spec"]["names"]["kind"]] = crd["spec"]["versions"][0]["schema"][
            "openAPIV3Schema"
        ]
    return found


def closed(node: Any) -> Any:
    """The schema with unknown fields refused where the API server would refuse them too."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: closed(value) for key, value in node.items()}
    if "properties" in node and not node.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    return result


def container(body: Body) -> Body:
    found: Body = body["spec"]["template"]["spec"]["containers"][0]
    return found


def environment(body: Body) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(body).get("env", [])}


@pytest.mark.slow
@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_every_field_is_one_the_api_knows(file: Path) -> None:
    for body in ours(file):
        known = dict(closed(schemas()[body["kind"]]))
        known["properties"] = {**known["properties"], "metadata": {}}
        jsonschema.validate(body, known)


def test_profiles_exist_for_every_reference() -> None:
    profiles = {body["metadata"]["name"] for body in bodies(ROOT / "examples" / "profiles.yaml")}
    assert {body["spec"]["profileRef"] for body in WORKLOADS.values()} == profiles


@pytest.mark.parametrize("name", JOBS)
def test_progress_counts_the_steps_that_the_program_does(name: str) -> None:
    plan = Plan.from_environment(environment(JOBS[name]))
    assert JOBS[name]["spec"]["work"]["steps"] == plan.steps


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_checkpoints_keeps_them_outside_its_pods(name: str) -> None:
    spec = JOBS[name]["spec"]["template"]["spec"]
    folder = environment(JOBS[name]).get("CHECKPOINT_DIR")
    assert (folder is not None) == ("checkpoint" in JOBS[name]["spec"])
    if folder is not None:
        mounts = {m["mountPath"]: m["name"] for m in container(JOBS[name])["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mount = next(path for path in mounts if folder.startswith(f"{path}/"))
        assert "hostPath" in volumes[mounts[mount]]
        assert folder.endswith(f"/{name}")  # the folder is shared: each job has its own inside


@pytest.mark.parametrize("name", WORKLOADS)
def test_containers_run_without_privileges_and_with_one_thread(name: str) -> None:
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    box = container(WORKLOADS[name])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert box["securityContext"]["readOnlyRootFilesystem"] is True
    assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "cpu" not in box["resources"]["limits"], "a CPU limit would fight with the share"
    assert environment(WORKLOADS[name])["OPENBLAS_NUM_THREADS"] == "1"
    assert box["image"] == OWN_IMAGE.get(name, image_name("examples"))
    assert box["imagePullPolicy"] == "Never"


def test_the_first_three_share_two_devices_and_the_fourth_waits_for_a_job_to_end() -> None:
    def most(name: str) -> int:
        spec = WORKLOADS[name]["spec"]
        percent: int = spec["gpu"]["share"]["maxPercent"]
        return percent * spec["replicas"] if "replicas" in spec else percent

    waits = WORKLOADS["digits-waits"]["spec"]["gpu"]["share"]["minPercent"]
    first, second, third = most("digits-a"), most("digits-parallel"), most("digits-serve")
    assert first + second // 2 <= 100
    assert third + second // 2 <= 100
    # All get their most, and what is left even of both devices together is not enough ...
    assert DEVICES * 100 - first - second - third < waits
    # ... until a job's part of a device is free again.
    assert 100 - second // 2 >= waits
    assert 100 - third >= waits
