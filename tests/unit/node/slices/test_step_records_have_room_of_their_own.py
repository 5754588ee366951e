# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage_node import mounts
from ullage_node.model.devices import ContainerKey
from ullage_node.mounts import unmount
from ullage_node.slices.steps import HOMES, TRACES, StepRecords, mount_homes

KEY = ContainerKey(pod_uid="uid-1", container="main")
OTHER = ContainerKey(pod_uid="uid-2", container="main")


@pytest.fixture
def steps(tmp_path: Path) -> StepRecords:
    return StepRecords(tmp_path / "steps")


def test_every_start_gets_a_new_file_that_its_name_leads_to(steps: StepRecords) -> None:
    first = steps.reset(KEY, "slot-07")
    first.write_bytes(b"x" * 64)
    held = os.open(first, os.O_RDWR)
    second = steps.reset(KEY, "slot-07")
    os.write(held, b"y" * 64)
    os.close(held)
    assert second.read_bytes() == bytes(64), "what an earlier start holds open is another file"
    assert (steps.of(KEY) / "record").samefile(second)
    assert second.stat().st_mode & 0o777 == 0o666


def test_a_container_that_gets_another_slot_is_found_there(steps: StepRecords) -> None:
    steps.reset(KEY, "slot-01")
    record = steps.reset(KEY, "slot-02")
    assert (steps.of(KEY) / "record").samefile(record)


def test_no_other_name_leads_to_the_record_of_a_slot_that_changed_hands(
    steps: StepRecords,
) -> None:
    steps.reset(KEY, "slot-07")
    steps.reset(OTHER, "slot-07")
    assert not steps.of(KEY).exists()
    assert (steps.of(OTHER) / "record").read_bytes() == bytes(64)


def test_a_link_in_the_place_of_the_record_is_replaced_and_not_followed(
    steps: StepRecords, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    record = steps.reset(KEY, "slot-07")
    record.unlink()
    record.symlink_to(secret)
    assert steps.reset(KEY, "slot-07").read_bytes() == bytes(64)
    assert not record.is_symlink()
    assert secret.read_text() == "untouched"


def test_records_of_pods_that_are_gone_are_forgotten(steps: StepRecords) -> None:
    steps.reset(KEY, "slot-01")
    steps.reset(OTHER, "slot-02")
    steps.sweep({"uid-2"})
    assert [steps.of(key).exists() for key in (KEY, OTHER)] == [False, True]
    steps.remove(OTHER)
    assert not steps.of(OTHER).exists()
    steps.clear()
    assert list(steps.path.rglob("record")) == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_home_stops_no_start(
    steps: StepRecords, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    real = os.open

    def full(path: Path, flags: int, mode: int = 0) -> int:
        if HOMES in str(path):
            raise OSError(error, "full", str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    record = steps.reset(KEY, "slot-07")
    assert (steps.of(KEY) / "record").samefile(record)
    assert steps.uncapped == 1


def test_a_home_takes_little_and_does_not_grow(tmp_path: Path) -> None:
    try:
        assert mount_homes(tmp_path / "steps", 3) == 3
    except PermissionError:
        assert os.geteuid() != 0 or not may_mount()
        return
    try:
        assert mount_homes(tmp_path / "steps", 3) == 3, "again, when the container begins again"
        steps = StepRecords(tmp_path / "steps")
        records = [steps.reset(key, slot) for key, slot in ((KEY, "slot-00"), (OTHER, "slot-01"))]
        with pytest.raises(OSError, match="No space left"):
            records[0].write_bytes(bytes(1 << 20))
        assert records[0].stat().st_blocks * 512 <= 16 * 1024
        records[1].write_bytes(b"z" * 64)
        for _ in range(100):
            assert steps.reset(KEY, "slot-00").read_bytes() == bytes(64)
        assert steps.uncapped == 0
        held = [os.open(steps.reset(KEY, "slot-00"), os.O_RDWR) for _ in range(20)]
        assert steps.uncapped > 0, "files of earlier starts fill it, and the start goes on"
        for each in held:
            os.close(each)
    finally:
        for number in range(3):
            for parent in (HOMES, TRACES):
                unmount(tmp_path / "steps" / parent / f"slot-{number:02d}")


def may_mount() -> bool:
    """Whether this process has CAP_SYS_ADMIN."""
    line = next(
        one
        for one in Path("/proc/self/status").read_text().splitlines()
        if one.startswith("CapEff")
    )
    return bool(int(line.split()[1], 16) >> 21 & 1)


def test_what_is_mounted_already_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    mounts.mount_tmpfs(tmp_path, 0, "size=1")
    assert not os.path.samefile(tmp_path, "/")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[StepRecords]:
    """Records whose slots have file systems of their own."""
    path = tmp_path / "steps"
    try:
        mount_homes(path, 2)
    except PermissionError:
        pytest.skip("needs the right to mount")
    yield StepRecords(path)
    for number in range(2):
        for parent in (HOMES, TRACES):
            unmount(path / parent / f"slot-{number:02d}")


def traces_of(steps: StepRecords, record: Path) -> Path:
    (mount,) = steps.trace_mount(record)
    assert mount.container_path == "/run/ullage/steps/trace"
    return Path(mount.host_path)


def test_a_container_gets_a_directory_for_traces_that_any_user_may_write(
    mounted: StepRecords,
) -> None:
    folder = traces_of(mounted, mounted.reset(KEY, "slot-00"))
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert (folder / "armed").read_bytes() == bytes(8)
    assert (folder / "armed").stat().st_mode & 0o777 == 0o644
    (folder / "record-0").write_bytes(b"x")
    assert (mounted.of(KEY) / "trace" / "record-0").read_bytes() == b"x"


def test_the_next_start_sees_nothing_of_the_one_before(mounted: StepRecords) -> None:
    first = traces_of(mounted, mounted.reset(KEY, "slot-00"))
    (first / "deep" / "er").mkdir(parents=True)
    held = os.open(first / "deep", os.O_RDONLY)
    second = traces_of(mounted, mounted.reset(OTHER, "slot-00"))
    os.close(held)
    assert first != second
    assert not first.exists()
    assert os.listdir(second) == ["armed"]
    mounted.remove(OTHER)
    assert not second.exists(), "what a pod leaves behind goes with it"


def touch_many(folder: Path) -> None:
    for number in range(1000):
        (folder / str(number)).touch()


def test_traces_fill_the_file_system_of_their_slot_alone(mounted: StepRecords) -> None:
    full = traces_of(mounted, mounted.reset(KEY, "slot-00"))
    with pytest.raises(OSError, match="No space left"):
        touch_many(full)
    other = traces_of(mounted, mounted.reset(OTHER, "slot-01"))
    (other / "record-0").write_bytes(b"x")
    again = mounted.reset(KEY, "slot-00")
    assert os.listdir(traces_of(mounted, again)) == ["armed"]
    assert mounted.uncapped == 0


def test_without_a_file_system_of_its_slot_a_container_gets_no_directory_for_traces(
    steps: StepRecords,
) -> None:
    assert steps.trace_mount(steps.reset(KEY, "slot-00")) == ()


def test_all_traces_go_with_the_last_slice_of_a_node(mounted: StepRecords) -> None:
    folder = traces_of(mounted, mounted.reset(KEY, "slot-00"))
    mounted.clear()
    assert not folder.exists()
    assert list((mounted.path / TRACES).rglob("armed")) == []
