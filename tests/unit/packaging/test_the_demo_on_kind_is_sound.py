# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What ``make demo CLUSTER=kind`` hands to kind: nodes, labels, device files, images.

No Docker is here: kind's program is one that notes how it is called. That kind takes the manifest
was tried with kind 0.30 in front of a docker that starts nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.__main__ import DEVICES
from demo.cluster import NODE_LABELS, KindCluster
from demo.images import IMAGES, TARGETS, image_name
from demo.install import local_values

NOTES = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with kind, kubectl and helm, and the file ``calls`` of what they were told."""
    for name in ("kind", "kubectl", "helm"):
        path = tmp_path / name
        path.write_text(NOTES)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_each_node_has_its_labels_and_its_device_file(programs: Path) -> None:
    cluster = KindCluster()
    try:
        cluster.up(DEVICES)
        words = (programs / "calls").read_text().split()
        assert words[:-1] == ["create", "cluster", "--name", "ullage", "--config"]
        config = json.loads(Path(words[-1]).read_text())
        assert (config["kind"], config["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
        first, *workers = config["nodes"]
        assert first == {"role": "control-plane"}
        for worker, devices in zip(workers, DEVICES.values(), strict=True):
            assert worker["role"] == "worker"
            assert [f"{key}={value}" for key, value in worker["labels"].items()] == [*NODE_LABELS]
            (mount,) = worker["extraMounts"]
            assert mount["containerPath"] == "/var/lib/ullage"
            listed = json.loads(Path(mount["hostPath"], "emulated.json").read_text())
            assert listed == {"devices": [device.to_json() for device in devices]}
    finally:
        cluster.down()
    assert (programs / "calls").read_text().splitlines()[-1] == "delete cluster --name ullage"
    assert not Path(words[-1]).exists()


def test_the_images_that_are_loaded_are_those_that_pods_name(programs: Path) -> None:
    archives = [IMAGES / f"{target}.tar" for target in TARGETS]
    cluster = KindCluster()
    cluster.load_images(archives)
    calls = (programs / "calls").read_text().splitlines()
    assert calls == [f"load image-archive --name ullage {archive}" for archive in archives]
    values = local_values()
    tag = values["node"]["image"]
    assert tag == {"tag": "dev", "pullPolicy": "Never"}
    assert image_name("operator") == f"{values['image']['registry']}/ullage-operator:dev"
