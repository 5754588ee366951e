# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ullage.api.slices import DesiredSlice, SliceKey
from ullage_node.files import write_whole
from ullage_node.model.devices import (
    READ_ONLY,
    BindMount,
    ContainerEdits,
    ContainerKey,
    DeviceNode,
    Hook,
    HookStage,
    IntelRdt,
    NetDevice,
)
from ullage_node.slices.cdi import CDIDirectory, device_name, render
from ullage_node.slices.table import binding_of

PART = DesiredSlice(
    key=SliceKey(pod_uid="uid-1", container="main"),
    pod_namespace="team",
    pod_name="trainer",
    gpu="gpu-0",
    percent=100,
    memory_mib=1000,
    epoch=3,
)
SECOND = replace(PART, key=SliceKey(pod_uid="uid-1", container="main", index=1), gpu="gpu-1")
BOTH = {0: PART, 1: SECOND}
KEY = ContainerKey(pod_uid="uid-1", container="main")
EDITS = ContainerEdits(
    env={"CUDA_MPS_PIPE_DIRECTORY": "/run/ullage/mps/0/pipe"},
    device_nodes=(DeviceNode(path="/dev/nvidia0"),),
    mounts=(BindMount(host_path="/a", container_path="/b", options=READ_ONLY),),
    hooks=(
        Hook(stage=HookStage.CREATE_RUNTIME, path="/bin/h", args=("h", "slot-07"), env=("A=1",)),
    ),
)


def device(data: bytes) -> dict[str, object]:
    spec = json.loads(data)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "ullage.dev/slot")
    (only,) = spec["devices"]
    assert isinstance(only, dict)
    return only


def test_a_container_that_shares_a_lane_finds_its_socket_and_its_memory(tmp_path: Path) -> None:
    part = replace(PART, percent=40, persistent_mib=200, ephemeral_mib=800)
    folder = tmp_path / "lanes" / "slot-07"
    files = render(binding_of([(part, "slot-07")]), {0: part}, EDITS, tmp_path, (), folder)
    edits = device(files["slot-07"])["containerEdits"]
    assert isinstance(edits, dict)
    assert "ULLAGE_LANE=/run/ullage/lane/socket" in edits["env"]
    assert "ULLAGE_LANE_MEMORY=200,800" in edits["env"]
    assert {
        "hostPath": str(folder),
        "containerPath": "/run/ullage/lane",
        "options": ["bind", "nosuid", "nodev", "ro"],
    } in edits["mounts"]


def test_one_slot_carries_everything(tmp_path: Path) -> None:
    files = render(binding_of([(PART, "slot-07")]), {0: PART}, EDITS, tmp_path)
    found = device(files["slot-07"])
    assert found["name"] == "slot-07"
    assert found["containerEdits"] == {
        "env": [
            "CUDA_MPS_PIPE_DIRECTORY=/run/ullage/mps/0/pipe",
            "ULLAGE_PERCENT=100",
            "ULLAGE_SLICE=uid-1_main",
            "ULLAGE_STEPS=/run/ullage/steps/record",
        ],
        "deviceNodes": [{"path": "/dev/nvidia0"}],
        "mounts": [
            {
                "hostPath": "/a",
                "containerPath": "/b",
                "options": ["bind", "nosuid", "nodev", "ro"],
            },
            {
                "hostPath": str(tmp_path),
                "containerPath": "/run/ullage/steps/record",
                "options": ["bind", "nosuid", "nodev", "rw"],
            },
        ],
        "hooks": [
            {
                "hookName": "createRuntime",
                "path": "/bin/h",
                "timeout": 5,
                "args": ["h", "slot-07"],
                "env": ["A=1"],
            }
        ],
    }


def test_the_library_is_mounted_read_only_beside_the_record(tmp_path: Path) -> None:
    library = BindMount(host_path="/l", container_path="/run/ullage/python", options=READ_ONLY)
    files = render(binding_of([(PART, "slot-07")]), {0: PART}, EDITS, tmp_path, (library,))
    edits = device(files["slot-07"])["containerEdits"]
    assert isinstance(edits, dict)
    assert edits["mounts"][-1] == {
        "hostPath": "/l",
        "containerPath": "/run/ullage/python",
        "options": ["bind", "nosuid", "nodev", "ro"],
    }


@pytest.mark.parametrize(
    ("edits", "version"),
    [
        (EDITS, "0.6.0"),
        (replace(EDITS, additional_gids=(44,)), "0.7.0"),
        (replace(EDITS, intel_rdt=IntelRdt(class_id="gpu")), "0.7.0"),
        (replace(EDITS, intel_rdt=IntelRdt(enable_monitoring=True)), "1.1.0"),
        (replace(EDITS, net_devices=(NetDevice(host_interface_name="a", name="b"),)), "1.1.0"),
    ],
)
def test_a_file_declares_the_oldest_version_that_has_its_fields(
    tmp_path: Path, edits: ContainerEdits, version: str
) -> None:
    files = render(binding_of([(PART, "slot-07"), (SECOND, "slot-05")]), BOTH, edits, tmp_path)
    assert json.loads(files["slot-07"])["cdiVersion"] == version
    assert json.loads(files["slot-05"])["cdiVersion"] == "0.6.0"
    written = json.loads(files["slot-07"])["devices"][0]["containerEdits"]
    assert ContainerEdits.from_wire(written).additional_gids == edits.additional_gids


def test_further_slots_only_say_whose_they_are(tmp_path: Path) -> None:
    binding = binding_of([(PART, "slot-02"), (SECOND, "slot-05")])
    files = render(binding, {0: PART, 1: SECOND}, EDITS, tmp_path)
    assert device(files["slot-05"])["containerEdits"] == {"env": ["ULLAGE_SLICE=uid-1_main"]}


def test_a_user_cannot_be_told_another_slice(tmp_path: Path) -> None:
    edits = ContainerEdits(env={"ULLAGE_SLICE": "someone-else"})
    files = render(binding_of([(PART, "slot-07")]), {0: PART}, edits, tmp_path)
    assert b"someone-else" not in files["slot-07"]


def test_names_are_those_that_allocate_answers() -> None:
    assert device_name("slot-07") == "ullage.dev/slot=slot-07"


def test_a_file_tells_the_decision_behind_it(tmp_path: Path) -> None:
    directory = CDIDirectory(tmp_path / "cdi")
    directory.write(render(binding_of([(PART, "slot-07")]), {0: PART}, EDITS, tmp_path))
    assert directory.slots() == ("slot-07",)
    assert directory.decision("slot-07") == PART
    assert (tmp_path / "cdi/ullage.dev-slot-07.json").stat().st_mode & 0o777 == 0o644
    directory.remove("slot-07")
    assert directory.decision("slot-07") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"devices": []}', b'{"devices": [{}]}'])
def test_a_file_that_says_nothing_is_no_decision(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ullage.dev-slot-07.json").write_bytes(content)
    assert CDIDirectory(tmp_path).decision("slot-07") is None


def test_a_sweep_leaves_others_files_alone(tmp_path: Path) -> None:
    keep = ["ullage.dev-slot-01.json", "nvidia.com-gpu.json", "ullage.dev-other.json", ".x.tmp"]
    gone = ["ullage.dev-slot-02.json", ".ullage.dev-slot-03.json.0a1b2c3d.tmp"]
    for name in keep + gone:
        (tmp_path / name).write_text("{}")
    assert CDIDirectory(tmp_path).sweep(frozenset({"slot-01"})) == ("slot-02",)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(keep)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "state.json"
    write_whole(target, b"old", mode=0o600)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(target, b"new", mode=0o600)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
