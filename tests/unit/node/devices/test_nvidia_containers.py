# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.device_rigs import NvidiaRig, a_binding
from ullage.api.checks import CheckState, NodeCheck
from ullage.api.reasons import Reason
from ullage_node.model.devices import (
    AttachState,
    BindMount,
    ContainerKey,
    DeviceBackend,
    DeviceNode,
    Hook,
    HookStage,
    PrepareRefused,
)

A, B, C = NvidiaRig.gpus

SPECIFICATION = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": 0, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
        {
            "name": B,
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/nvidia1", "hostPath": "/dev/nvidia1", "permissions": "rw"}
                ],
                "hooks": [
                    {
                        "hookName": "createContainer",
                        "path": "/usr/bin/nvidia-cdi-hook",
                        "args": ["nvidia-cdi-hook", "chmod"],
                        "timeout": 7,
                    }
                ],
            },
        },
        {
            "name": "all",
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]},
        },
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "A=b=c"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [
            {
                "hostPath": "/usr/lib/libcuda.so.1",
                "containerPath": "/usr/lib/libcuda.so.1",
                "options": ["ro", "nosuid", "bind"],
            }
        ],
    },
}


NEWEST: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "nvidia.com/gpu",
    "annotations": {"a": "b"},
    "devices": [
        {
            "name": "0",
            "annotations": {"gpu.nvidia.com/coherent": "true"},
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0"},
                    {
                        "path": "/dev/dri/renderD128",
                        "type": "c",
                        "major": 226,
                        "minor": 128,
                        "fileMode": 0o660,
                        "permissions": "none",
                        "uid": 0,
                        "gid": 44,
                    },
                ],
                "netDevices": [{"hostInterfaceName": "ib0", "name": "net1"}],
                "hooks": [{"hookName": "prestart", "path": "/usr/bin/nvidia-cdi-hook"}],
                "mounts": [
                    {
                        "hostPath": "tmpfs",
                        "containerPath": "/run/nvidia",
                        "options": ["nosuid", "size=1m"],
                        "type": "tmpfs",
                    }
                ],
                "additionalGids": [0, 109],
                "intelRdt": {
                    "closID": "gpu",
                    "l3CacheSchema": "L3:0=f",
                    "memBwSchema": "MB:0=50",
                    "schemata": ["L3:0=f"],
                    "enableMonitoring": True,
                },
            },
        }
    ],
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}], "additionalGids": [44]},
}
"""Every field of CDI 1.1."""


@pytest.fixture
def rig(tmp_path: Path) -> NvidiaRig:
    rig = NvidiaRig(tmp_path)
    for place in rig.tree.paths.cdi_dirs:
        place.mkdir()
    return rig


@pytest.fixture
async def backend(rig: NvidiaRig) -> DeviceBackend:
    backend = rig.open()
    await backend.probe.start()
    await backend.probe.discover()
    return backend


def write(rig: NvidiaRig, name: str = "nvidia.yaml", body: object = SPECIFICATION) -> Path:
    path = rig.tree.paths.cdi_dirs[1] / name
    path.write_text(json.dumps(body) if name.endswith(".json") else yaml.safe_dump(body))
    return path


def toolkit_check(backend: DeviceBackend) -> NodeCheck:
    return next(c for c in backend.driver.checks() if c.name == "ContainerToolkit")


class TestEdits:
    async def test_without_the_toolkit_it_is_device_files_and_the_runtime_class(
        self, backend: DeviceBackend
    ) -> None:
        edits = await backend.driver.prepare(a_binding(A, C))
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == f"{A},{C}"
        assert [node.path for node in edits.device_nodes] == [
            "/dev/nvidia0",
            "/dev/nvidia2",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
        ]
        assert (edits.mounts, edits.hooks) == ((), ())

    @pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.yml", "nvidia.json"])
    async def test_the_toolkits_edits_are_copied_whole(
        self, rig: NvidiaRig, backend: DeviceBackend, name: str
    ) -> None:
        write(rig, name)
        edits = await backend.driver.prepare(a_binding(B))
        assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "void", "A": "b=c"}
        assert edits.device_nodes == (
            DeviceNode(path="/dev/nvidiactl"),
            DeviceNode(path="/dev/nvidia1", host_path="/dev/nvidia1", permissions="rw"),
        )
        library = "/usr/lib/libcuda.so.1"
        assert edits.mounts == (
            BindMount(host_path=library, container_path=library, options=("ro", "nosuid", "bind")),
        )
        assert edits.hooks == (
            Hook(
                stage=HookStage.CREATE_CONTAINER,
                path="/usr/bin/nvidia-cdi-hook",
                args=("nvidia-cdi-hook", "chmod"),
                timeout_seconds=7,
            ),
        )

    async def test_a_device_named_by_index_is_found_by_its_file(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig)
        edits = await backend.driver.prepare(a_binding(A))
        paths = [node.path for node in edits.device_nodes]
        assert paths == ["/dev/nvidiactl", "/dev/nvidia0"], "not the entry of all devices"

    async def test_several_devices_get_shared_edits_once(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig)
        edits = await backend.driver.prepare(a_binding(A, B))
        assert [node.path for node in edits.device_nodes] == [
            "/dev/nvidiactl",
            "/dev/nvidia0",
            "/dev/nvidia1",
        ]
        assert len(edits.mounts) == 1

    async def test_a_device_that_the_toolkit_does_not_know_gets_device_files(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig)
        edits = await backend.driver.prepare(a_binding(C))
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == C

    async def test_the_runtimes_own_directory_wins(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig)
        old = json.loads(json.dumps(SPECIFICATION))
        old["containerEdits"]["env"] = ["OLD=1"]
        (rig.tree.paths.cdi_dirs[0] / "nvidia.json").write_text(json.dumps(old))
        assert "OLD" not in (await backend.driver.prepare(a_binding(B))).env

    async def test_a_file_generated_again_is_read_again(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        path = write(rig)
        await backend.driver.prepare(a_binding(B))
        fresh = json.loads(json.dumps(SPECIFICATION))
        fresh["containerEdits"]["env"] = ["NEW=1"]
        write(rig, body=fresh)
        os.utime(path, ns=(1, 1))
        assert (await backend.driver.prepare(a_binding(B))).env == {"NEW": "1"}

    async def test_other_vendors_files_are_none_of_ours(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig, "other.yaml", {"kind": "vendor.com/nic", "devices": 7})
        (rig.tree.paths.cdi_dirs[1] / "broken.yaml").write_text("{ not: [yaml")
        (rig.tree.paths.cdi_dirs[1] / "notes.txt").write_text("nvidia.com/gpu")
        edits = await backend.driver.prepare(a_binding(B))
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == B

    async def test_every_field_of_a_newer_toolkit_reaches_the_container(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        write(rig, body=NEWEST)
        edits = await backend.driver.prepare(a_binding(A))
        assert edits.additional_gids == (44, 109)
        assert edits.device_nodes[1:] == (
            DeviceNode(path="/dev/nvidia0", host_path="/run/nvidia/driver/dev/nvidia0"),
            DeviceNode(
                path="/dev/dri/renderD128",
                kind="c",
                major=226,
                minor=128,
                file_mode=0o660,
                permissions="none",
                uid=0,
                gid=44,
            ),
        )
        assert edits.hooks[0].stage is HookStage.PRESTART
        wire = edits.to_wire()
        own, shared = NEWEST["devices"][0]["containerEdits"], NEWEST["containerEdits"]
        assert wire["additionalGids"] == [44, 109]
        assert wire["deviceNodes"] == [*shared["deviceNodes"], *own["deviceNodes"]]
        for field in ("netDevices", "intelRdt", "mounts"):
            assert wire[field] == own[field], field

    async def test_a_group_of_a_device_file_reaches_the_container(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        (rig.tree.paths.cdi_dirs[1] / "nvidia.yaml").write_text(
            "cdiVersion: 0.7.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n  containerEdits:\n"
            "    deviceNodes:\n    - {path: /dev/nvidia0}\n"
            "    - {path: /dev/dri/renderD128, fileMode: 0660, gid: 44}\n"
            "    additionalGids: [44]\n"
        )
        edits = await backend.driver.prepare(a_binding(A))
        assert edits.additional_gids == (44,)
        assert edits.device_nodes[1] == DeviceNode(
            path="/dev/dri/renderD128", file_mode=0o660, gid=44
        )

    async def test_a_field_that_is_not_known_is_left_out_with_a_word(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        body = json.loads(json.dumps(NEWEST)) | {"cdiVersion": "1.7.0", "policy": "strict"}
        body["containerEdits"]["sysctls"] = {"a": "b"}
        body["containerEdits"]["deviceNodes"][0]["label"] = "x"
        body["devices"][0]["aliases"] = ["gpu0"]
        path = write(rig, body=body)
        edits = await backend.driver.prepare(a_binding(A))
        assert edits.additional_gids == (44, 109)
        assert "sysctls" not in edits.to_wire()
        said = toolkit_check(backend).message
        assert f"{path} (CDI 1.7.0)" in said
        for name in ("policy", "devices.aliases", "sysctls", "deviceNodes.label"):
            assert name in said

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"containerEdits": {"additionalGids": ["video"]}}, "additionalGids: expected a whole"),
            ({"containerEdits": {"additionalGids": 44}}, "additionalGids: expected a list"),
            ({"containerEdits": {"additionalGids": [2**32]}}, "additionalGids: 4294967296 must be"),
            ({"containerEdits": {"env": "A=b"}}, "env: expected a list of strings"),
            ({"containerEdits": {"env": ["A"]}}, "env: 'A' is no NAME=VALUE"),
            ({"containerEdits": {"hooks": [{"hookName": "prestop", "path": "/x"}]}}, "prestop"),
            ({"containerEdits": {"hooks": [{"hookName": "poststop", "path": ""}]}}, "path"),
            ({"containerEdits": {"mounts": [{"hostPath": "/x"}]}}, "containerPath"),
            ({"containerEdits": {"deviceNodes": [{"path": "/x", "gid": -1}]}}, "deviceNodes.gid"),
            ({"containerEdits": {"deviceNodes": [{"path": "/x", "type": "z"}]}}, "type"),
            ({"devices": [{"containerEdits": {}}]}, r"devices\[0\].name: expected a string"),
            ({"devices": 7}, "devices: expected a list"),
        ],
    )
    async def test_a_specification_that_cannot_be_handed_on_refuses_the_start(
        self, rig: NvidiaRig, backend: DeviceBackend, change: dict[str, object], text: str
    ) -> None:
        path = write(rig, body=SPECIFICATION | change)
        with pytest.raises(PrepareRefused, match=text) as refused:
            await backend.driver.prepare(a_binding(B))
        assert refused.value.reason is Reason.CDI_UNAVAILABLE
        assert str(path) in refused.value.message
        assert "generate" not in refused.value.message, "the generator writes the same field"
        assert toolkit_check(backend).remedy in refused.value.message

    async def test_a_broken_entry_harms_its_own_device_alone(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        body = json.loads(json.dumps(SPECIFICATION))
        body["devices"][1]["containerEdits"]["additionalGids"] = ["video"]
        write(rig, body=body)
        assert (await backend.driver.prepare(a_binding(A))).env["A"] == "b=c"
        assert "A" not in (await backend.driver.prepare(a_binding(C))).env
        with pytest.raises(PrepareRefused, match="additionalGids"):
            await backend.driver.prepare(a_binding(B))

    @pytest.mark.parametrize("wild", ["kind: nvidia.com/gpu\ndevices: [", "[" * 100_000, "fifo"])
    async def test_a_broken_file_harms_no_device_of_another_file(
        self, rig: NvidiaRig, backend: DeviceBackend, wild: str
    ) -> None:
        body = json.loads(json.dumps(SPECIFICATION))
        body["devices"].append(body["devices"][1] | {"name": C})
        write(rig, body=body)
        path = rig.tree.paths.cdi_dirs[1] / "z-nvidia.yaml"
        if wild == "fifo":
            os.mkfifo(path)
        else:
            path.write_text(f"{wild} # nvidia.com/gpu")
        assert (await backend.driver.prepare(a_binding(A, B))).env["A"] == "b=c"
        check = toolkit_check(backend)
        assert check.state is CheckState.OK
        assert str(path) in check.message

    async def test_another_vendors_file_that_cannot_be_read_is_none_of_ours(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        (rig.tree.paths.cdi_dirs[1] / "nic.yaml").mkdir()
        edits = await backend.driver.prepare(a_binding(B))
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == B

    async def test_a_broken_file_of_the_toolkit_refuses_the_start_in_one_line(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        path = rig.tree.paths.cdi_dirs[1] / "nvidia.yaml"
        path.write_text("kind: nvidia.com/gpu\ndevices: [\n  - {")
        with pytest.raises(PrepareRefused) as refused:
            await backend.driver.prepare(a_binding(B))
        assert "\n" not in refused.value.message
        assert f"nvidia-ctk cdi generate --output={path}" in refused.value.message

    async def test_a_share_is_refused_with_the_mode_to_ask_for(
        self, backend: DeviceBackend
    ) -> None:
        with pytest.raises(PrepareRefused, match=r"40 % of GPU-.*ask for mode Exclusive") as e:
            await backend.driver.prepare(a_binding(A, percent=40))
        assert e.value.reason is Reason.MODE_UNSUPPORTED


class TestProcesses:
    async def test_containers_of_one_pod_are_told_apart_by_their_devices(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        one = a_binding(A)
        two = replace(a_binding(B), key=ContainerKey(pod_uid=one.key.pod_uid, container="second"))
        for binding in (one, two):
            await rig.start_container(binding, await backend.driver.prepare(binding))
        readings = await backend.driver.observe([one, two])
        assert all(reading.state is AttachState.ENFORCED for reading in readings.values())
        assert readings[one.key].pids != readings[two.key].pids

    async def test_a_process_outside_any_pod_is_nobodys(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        rig.fakes[A].processes[1] = 100
        binding = a_binding(A)
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert reading.state is AttachState.ABSENT

    async def test_a_process_seen_plain_and_through_mps_counts_once(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(A)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        rig.fakes[A].mps_processes[pid] = 70
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert (reading.pids, reading.memory_used_mib) == ((pid,), 70)

    async def test_memory_that_the_driver_does_not_say_is_not_known(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(A)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        rig.fakes[A].processes[pid] = None
        assert (await backend.driver.observe([binding]))[binding.key].memory_used_mib == 0

    async def test_a_lost_gpu_blinds_its_own_tenant_alone(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        one, two = a_binding(A), a_binding(B)
        for binding in (one, two):
            await rig.start_container(binding, await backend.driver.prepare(binding))
        rig.lose(A)
        readings = await backend.driver.observe([one, two])
        assert readings[one.key].state is AttachState.UNVERIFIED
        assert readings[one.key].reason is Reason.DEVICE_LOST
        assert readings[two.key].state is AttachState.ENFORCED

    async def test_use_of_a_device_that_was_not_given_names_it(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(A)
        await rig.start_container(binding, await backend.driver.prepare(binding))
        rig.escape(binding)
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert reading.reason is Reason.UNENFORCED
        assert f"uses {B}, which the pod was not given" in reading.message

    async def test_before_discovery_nothing_is_called_absent(self, rig: NvidiaRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        binding = a_binding(A)
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert reading.state is AttachState.UNVERIFIED

    async def test_who_was_seen_stays_in_the_reading_while_nothing_can_be_read(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(A)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        await backend.driver.observe([binding])
        rig.blind()
        for _ in range(2):
            assert (await backend.driver.observe([binding]))[binding.key].pids == (pid,)
        (rig.tree.paths.proc_root / str(pid) / "cgroup").unlink()
        assert (await backend.driver.observe([binding]))[binding.key].pids == ()

    async def test_a_process_whose_cgroup_cannot_be_read_is_not_called_gone(
        self, rig: NvidiaRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(A)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        await backend.driver.observe([binding])
        cgroup = rig.tree.paths.proc_root / str(pid) / "cgroup"
        cgroup.unlink()
        cgroup.mkdir()
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert (reading.state, reading.pids) == (AttachState.UNVERIFIED, (pid,))
