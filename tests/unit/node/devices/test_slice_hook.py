# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The real script, run by ``sh`` over a cgroup tree of plain files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from fakes.cgroup_tree import CgroupTree, run_hook
from ullage_node.devices.cgroups import CgroupUnreadable
from ullage_node.devices.emulated_hook import HookScript
from ullage_node.model.devices import Hook, HookStage

UID = "0b54f1a2-3c4d-4e5f-8a9b-0c1d2e3f4a5b"
PID = 4711


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> CgroupTree:
    return CgroupTree(base=tmp_path, version=request.param).build()


@pytest.fixture
def script(tree: CgroupTree) -> HookScript:
    hook = HookScript(paths=tree.paths)
    hook.install()
    return hook


def forty_percent(script: HookScript) -> Hook:
    return script.call("slot-07", 40_000, frozenset({1}))


def refused(hook: Hook, state: str | None = None) -> str:
    done = run_hook(hook, PID, state=state)
    assert done.returncode != 0
    assert done.stderr.startswith("ullage slice-hook: ")
    return done.stderr


def test_quota_and_core_are_set_and_the_place_is_written_down(
    tree: CgroupTree, script: HookScript
) -> None:
    path = tree.create(UID, "c", PID)
    done = run_hook(forty_percent(script), PID)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tree.quota(path) == "40000 100000"
    assert tree.cores_of(path) == "1"
    record = script.read_record("slot-07")
    assert record is not None
    assert (record.pid, record.quota_us) == (PID, 40_000)
    assert record.cgroup.cpu_path == path
    assert record.cgroup.version == tree.version


def test_the_pods_own_limits_are_left_alone(tree: CgroupTree, script: HookScript) -> None:
    tree.create(UID, "c", PID, pod_limit_us=50_000)
    run_hook(forty_percent(script), PID)
    assert tree.quota(tree.pod_path(UID)) == "50000 100000"


def test_version_1_takes_a_smaller_limit_of_the_pod(tmp_path: Path) -> None:
    tree = CgroupTree(base=tmp_path, version=1).build()
    script = HookScript(paths=tree.paths)
    script.install()
    path = tree.create(UID, "c", PID, pod_limit_us=15_000)
    assert run_hook(forty_percent(script), PID).returncode == 0
    assert tree.quota(path) == "15000 100000"
    record = script.read_record("slot-07")
    assert record is not None
    assert record.quota_us == 15_000


def test_the_containers_own_smaller_limit_is_never_raised(
    tree: CgroupTree, script: HookScript
) -> None:
    path = tree.create(UID, "c", PID)
    tree.set_quota(path, 10_000, 50_000)
    assert run_hook(forty_percent(script), PID).returncode == 0
    assert tree.quota(path) == "20000 100000"


def test_a_larger_limit_of_the_container_is_lowered_to_the_slice(
    tree: CgroupTree, script: HookScript
) -> None:
    path = tree.create(UID, "c", PID)
    tree.set_quota(path, 90_000)
    assert run_hook(forty_percent(script), PID).returncode == 0
    assert tree.quota(path) == "40000 100000"


def test_the_process_is_that_of_the_state_whatever_annotations_say(
    tree: CgroupTree, script: HookScript
) -> None:
    path = tree.create(UID, "c", PID)
    other = tree.create(UID, "other", 99)
    state = {
        "annotations": {"pid": "99", "note": '"pid": 99', 'x"pid":99': "y"},
        "bundle": "/run/pid/99",
        "pid": PID,
        "zz": {"pid": "99", "z": ',"pid":99,'},
    }
    for text in (json.dumps(state), json.dumps(state, indent=2)):
        assert run_hook(forty_percent(script), PID, state=text).returncode == 0
        assert tree.quota(path) == "40000 100000"
        assert tree.quota(other) == ("max 100000" if tree.version == 2 else "-1 100000")


@pytest.mark.parametrize(
    "state", ["", "{}", "no json", '{"pid": 0}', '{"pid": "12"}', '{"pid": -1}']
)
def test_a_state_without_a_process_stops_the_container(script: HookScript, state: str) -> None:
    assert "names no process" in refused(forty_percent(script), state)


def test_a_process_that_is_gone_stops_the_container(script: HookScript) -> None:
    assert f"process {PID} is gone" in refused(forty_percent(script))


@pytest.mark.parametrize("path", ["/", "/../outside", "/a/..", "/with space"])
def test_a_cgroup_that_is_not_the_containers_own_stops_it(
    tree: CgroupTree, script: HookScript, path: str
) -> None:
    tree.create(UID, "c", PID)
    names = "cpu,cpuset,cpuacct,pids,memory" if tree.version == 1 else ""
    number = 3 if tree.version == 1 else 0
    (tree.paths.proc_root / str(PID) / "cgroup").write_text(f"{number}:{names}:{path}\n")
    assert "not its container's own" in refused(forty_percent(script))


def test_a_process_without_the_controller_stops_the_container(
    tree: CgroupTree, script: HookScript
) -> None:
    tree.create(UID, "c", PID)
    (tree.paths.proc_root / str(PID) / "cgroup").write_text("5:devices:/x\n")
    assert "cgroup" in refused(forty_percent(script))


@pytest.mark.parametrize("gone", ["cpu", "cpuset"])
def test_a_controller_that_is_not_enabled_stops_the_container(
    tree: CgroupTree, script: HookScript, gone: str
) -> None:
    path = tree.create(UID, "c", PID)
    v1, v2 = {"cpu": ("cpu.cfs_quota_us", "cpu.max"), "cpuset": ("cpuset.cpus",) * 2}[gone]
    (tree.place(gone, path) / (v2 if tree.version == 2 else v1)).unlink()
    assert script.read_record("slot-07") is None
    refused(forty_percent(script))
    assert script.read_record("slot-07") is None


def test_a_failed_start_leaves_no_record_of_the_last_one(
    tree: CgroupTree, script: HookScript
) -> None:
    tree.create(UID, "c", PID)
    assert run_hook(forty_percent(script), PID).returncode == 0
    refused(forty_percent(script), "{}")
    assert script.read_record("slot-07") is None


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("slot-07", "40000"),
        ("slot-07", "40000", "0", "x"),
        ("../../etc/passwd", "40000", "0"),
        ("slot-0/7", "40000", "0"),
        ("slot-", "40000", "0"),
        ("slot-07", "-1", "0"),
        ("slot-07", "", "0"),
        ("slot-07", "1; rm -rf /", "0"),
        ("slot-07", "40000", "$(id)"),
        ("slot-07", "40000", "0 1"),
        ("slot-07", "40000", ""),
    ],
)
def test_arguments_that_are_not_what_they_should_be_stop_the_container(
    tree: CgroupTree, script: HookScript, args: tuple[str, ...]
) -> None:
    path = tree.create(UID, "c", PID)
    before = tree.quota(path)
    refused(Hook(stage=HookStage.CREATE_RUNTIME, path=str(script.path), args=("slice-hook", *args)))
    assert tree.quota(path) == before


@pytest.mark.parametrize(
    ("slot", "quota_us", "cores"),
    [
        ("slot-7", 40_000, {0}),
        ("slot-07\n", 40_000, {0}),
        ("slot-07;id", 40_000, {0}),
        ("slot-07", 999, {0}),
        ("slot-07", 40_000, set()),
        ("slot-07", 40_000, {-1}),
    ],
)
def test_the_agent_composes_no_call_that_the_script_would_refuse(
    script: HookScript, slot: str, quota_us: int, cores: set[int]
) -> None:
    with pytest.raises(ValueError):
        script.call(slot, quota_us, frozenset(cores))


def test_a_call_is_plain_words(script: HookScript) -> None:
    hook = script.call("slot-07", 40_000, frozenset({0, 1, 3}))
    assert hook.args == ("slice-hook", "slot-07", "40000", "0-1,3")
    assert hook.stage is HookStage.CREATE_RUNTIME
    assert hook.path == str(script.path)


def test_installing_again_writes_only_what_differs(script: HookScript) -> None:
    assert not script.install()
    script.path.write_text("#!/bin/sh\nexit 0\n")
    assert script.install()
    script.path.chmod(0o644)
    assert script.install()
    assert script.path.stat().st_mode & 0o777 == 0o755
    script.path.unlink()
    assert script.install()
    assert not script.install()


def test_removing_leaves_nothing_of_ours_and_everything_of_others(
    tree: CgroupTree, script: HookScript
) -> None:
    tree.create(UID, "c", PID)
    run_hook(forty_percent(script), PID)
    other = script.path.parent / "other-tool"
    other.write_text("x")
    script.remove()
    script.remove()
    assert other.exists()
    assert not script.path.exists()
    assert not script.slots.exists()


@pytest.mark.parametrize("text", ["", "pid=x quota=1", "pid=1", "pid=1 quota=2 version=1"])
def test_a_record_that_is_none_is_an_error(script: HookScript, text: str) -> None:
    (script.slots / "slot-07").write_text(text)
    with pytest.raises(CgroupUnreadable):
        script.read_record("slot-07")


def test_the_script_is_quoted_for_directories_with_shell_characters(tmp_path: Path) -> None:
    tree = CgroupTree(base=tmp_path / "a'b $(touch pwned) `x`", version=2).build()
    script = HookScript(paths=replace(tree.paths))
    script.install()
    path = tree.create(UID, "c", PID)
    assert run_hook(forty_percent(script), PID).returncode == 0
    assert tree.quota(path) == "40000 100000"


@pytest.mark.parametrize("shell", [name for name in ("sh", "dash", "bash") if which(name)])
def test_the_script_is_sound_for_every_shell_that_is_here(script: HookScript, shell: str) -> None:
    words = [shell, "--posix"] if shell == "bash" else [shell]
    done = subprocess.run([*words, "-n", str(script.path)], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
