# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Specifications of NVIDIA's own generator, in three versions, reach a container through ours.

The generator reads device files and a driver below a folder; the GPUs that NVML would list are
those of the test. What a container gets is judged by the library that containerd and CRI-O parse
specifications with: once from the toolkit's file, once from the file that the node agent writes.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from demo.cluster import LocalCluster
from ullage_node.devices.nvidia.cdi import ToolkitSpecifications
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.slices.cdi import CDIDirectory, render
from ullage_node.slices.table import binding_of
from unit.node.slices.test_files_for_the_runtime import PART

GPUS = ("GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444")
VIDEO = 44
VERSIONS = {"nvidia-cdi": "0.7.0", "nvidia-cdi-1.19": "0.7.0", "nvidia-cdi-1.17": "0.5.0"}
"""What each generator declares for device files that a group alone may open."""


@dataclass(frozen=True)
class Toolkit:
    """One version of the generator, and the driver that it looks at."""

    component: str
    root: Path

    def run(self, *words: str) -> str:
        program = LocalCluster().tool("nvidia-cdi", component=self.component)
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def injected(self, folder: Path, device: str) -> dict[str, Any]:
        """What a runtime makes of a device of a folder: the OCI specification."""
        found: dict[str, Any] = json.loads(self.run("inject", str(folder), device))
        return found


@pytest.fixture(scope="module", params=VERSIONS)
def toolkit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toolkit:
    root = tmp_path_factory.mktemp("driver")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for folder in (root / "dev", root / "usr/bin", root / "etc", libraries):
        folder.mkdir(parents=True)
    (libraries / "libcuda.so.580.65.06").touch()
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    (root / "usr/bin/nvidia-smi").touch(0o755)
    for name, minor, group, mode in (
        ("nvidia0", 0, VIDEO, 0o660),
        ("nvidia1", 1, VIDEO, 0o660),
        ("nvidiactl", 255, 0, 0o666),
    ):
        path = root / "dev" / name
        os.mknod(path, stat.S_IFCHR, os.makedev(195, minor))
        os.chown(path, 0, group)
        path.chmod(mode)
    return Toolkit(component=request.param, root=root)


@pytest.mark.parametrize("strategy", ["index", "uuid"])
def test_a_container_gets_what_the_toolkit_would_have_given_it(
    toolkit: Toolkit, strategy: str, tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs", CDIDirectory(tmp_path / "ours")
    theirs.mkdir()
    path = theirs / "nvidia.yaml"
    toolkit.run("generate", str(toolkit.root), str(path), strategy, *GPUS)
    version = VERSIONS[toolkit.component]
    assert f"cdiVersion: {version}" in path.read_text()

    device = NvidiaDevice(uuid=GPUS[1], product_name="", memory_mib=81_559, minor=1, mig=False)
    survey = ToolkitSpecifications((theirs,)).survey((device,), {device.uuid: ("/dev/nvidia1",)})
    assert survey.edits is not None
    assert survey.remarks == (), "every field of the generator is known"
    part = replace(PART, gpu=device.uuid)
    record = tmp_path / "record"
    ours.write(render(binding_of([(part, "slot-07")]), {0: part}, survey.edits, record))

    name = "1" if strategy == "index" else GPUS[1]
    wanted = toolkit.injected(theirs, f"nvidia.com/gpu={name}")
    given = toolkit.injected(ours.path, "ullage.dev/slot=slot-07")
    assert wanted["process"]["user"].get("additionalGids") == (
        [VIDEO] if version == "0.7.0" else None
    )
    assert given["process"]["user"] == wanted["process"]["user"]
    assert given["linux"] == wanted["linux"], "device files with owner, mode and permissions"
    assert [{**hook, "timeout": 0} for hook in hooks(given)] == [
        {**hook, "timeout": 0} for hook in hooks(wanted)
    ]
    assert all(hook["timeout"] > 0 for hook in hooks(given))
    assert set(wanted["process"]["env"]) < set(given["process"]["env"])
    assert [mount for mount in given["mounts"] if mount["source"] != str(record)] == wanted[
        "mounts"
    ]


def hooks(container: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"stage": stage, **hook} for stage, of in sorted(container["hooks"].items()) for hook in of
    ]
