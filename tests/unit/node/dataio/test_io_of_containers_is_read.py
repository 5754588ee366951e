# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of containers, the same from both cgroup versions, whatever stands in the files."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.io_tree import IoTree
from ullage_node.dataio.windows import IoReader, IoReading, window
from ullage_node.devices.cgroup_io import (
    COUNTED_MOST,
    NO_LIMIT,
    DeviceLimit,
    IoCgroup,
    IoCount,
    WaitSampler,
    find_containers,
    io_root,
    read_counters,
    read_limit,
    write_limit,
)
from ullage_node.devices.cgroups import CgroupVersion

A = IoCgroup(str(uuid.UUID(int=1)), "aaa")
B = IoCgroup(str(uuid.UUID(int=2)), "bbb")
BLKIO = Path("/sys/fs/cgroup/blkio")


@pytest.fixture(params=[1, 2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> IoTree:
    return IoTree(tmp_path / "cgroup", version=request.param)


def reader(tree: IoTree) -> IoReader:
    (tree.root / "proc").mkdir(exist_ok=True)
    return IoReader(cgroup_root=tree.root, sampler=WaitSampler(proc_root=tree.root / "proc"))


def test_both_versions_say_the_same(tree: IoTree) -> None:
    tree.write(A, {"7:0": (4096, 1), "8:0": (100, 2)}, stalled_us=500, throttled_us=300)
    base, version = io_root(tree.root)
    (found,) = find_containers(base).items()
    assert found[0] == A
    counters = read_counters(tree.root, version, found[1])
    assert counters is not None
    assert counters.devices == {"7:0": IoCount(4096, 1), "8:0": IoCount(100, 2)}
    assert (counters.stalled_us, counters.throttled_us) == (500, 300)


def test_a_window_is_the_difference_of_two_readings(tree: IoTree) -> None:
    tree.write(A, {"7:0": (0, 0)})
    tree.write(B, {"7:0": (100, 0), "8:0": (0, 0)})
    before = reader(tree).read(10.0)
    tree.write(A, {"7:0": (5000, 50)}, stalled_us=4_000_000)
    tree.write(B, {"7:0": (50, 0), "8:0": (0, 0)}, stalled_us=1_000_000)  # a counter went back
    uses = window(before, reader(tree).read(15.0), {}, {A.pod_uid: 0.5})
    by_key = {use.key: use for use in uses["7:0"]}
    assert by_key[A].bytes_per_s == 1000
    assert by_key[A].requests_per_s == 10
    assert by_key[A].stalled == pytest.approx(0.8)
    assert by_key[A].data_wait == 0.5
    assert by_key[B].bytes_per_s == 0
    assert by_key[B].data_wait is None


def test_waits_belong_to_the_device_that_moves_most() -> None:
    def reading(at: float, first: int, second: int, stalled: int) -> IoReading:
        from ullage_node.devices.cgroup_io import IoCounters

        devices = {"7:0": IoCount(first, 1), "8:0": IoCount(second, 1)}
        counters = IoCounters(devices=devices, stalled_us=stalled, throttled_us=0)
        return IoReading(at_s=at, containers={A: counters})

    uses = window(reading(0, 0, 0, 0), reading(1, 10, 1000, 900_000), {}, {})
    assert uses["8:0"][0].stalled == pytest.approx(0.9)
    assert uses["7:0"][0].stalled == pytest.approx(0.009)


def test_without_counted_waits_the_processes_are_sampled(tmp_path: Path) -> None:
    tree = IoTree(tmp_path / "cgroup", version=1, pressure=False)
    proc = tmp_path / "proc"
    for pid, state, owner in ((10, "D", A), (11, "S", B), (12, "D", None)):
        task = proc / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        path = f"/kubepods/pod{owner.pod_uid}/{owner.name}" if owner else "/init"
        (proc / str(pid) / "cgroup").write_text(f"7:blkio:{path}\n1:cpu:{path}\n")
        (task / "stat").write_text(f"{pid} (a ) D ( b) {state} 1 1 1 0\n")
    tree.write(A, {"7:0": (0, 0)})
    tree.write(B, {"7:0": (0, 0)})
    io = IoReader(cgroup_root=tree.root, sampler=WaitSampler(proc_root=proc))
    io.read(0.0)
    for _ in range(4):
        io.sampler.sample()
    (proc / "10" / "task" / "10" / "stat").write_text("10 (x) R 1\n")
    for _ in range(4):
        io.sampler.sample()
    assert io.sampler.take() == {A: 0.5, B: 0.0}
    assert io.sampler.take() == {}


def test_containers_that_vanish_are_left_out(tree: IoTree) -> None:
    tree.write(A, {"7:0": (0, 0)})
    tree.write(B, {"7:0": (0, 0)})
    folder = tree.folder(A)
    for file in folder.iterdir():
        file.unlink()
    assert set(reader(tree).read(0.0).containers) == {B}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    st.text(max_size=200) | st.from_regex(r"(\d+:\d+ (rbytes=\S{0,30} ?)*\n?)+", fullmatch=True),
    st.text(max_size=80) | st.from_regex(r"some total=\S{0,40}\n", fullmatch=True),
)
def test_whatever_stands_in_the_files_figures_are_bounded(
    tree: IoTree, stat: str, pressure: str
) -> None:
    tree.write(A, {})
    folder = tree.folder(A)
    names = ("io.stat", "blkio.throttle.io_service_bytes_recursive")
    folder.joinpath(names[0] if tree.version == 2 else names[1]).write_text(
        stat, encoding="utf-8", errors="replace"
    )
    beside = folder if tree.version == 2 else tree.folder(A, "unified")
    (beside / "io.pressure").write_text(pressure, encoding="utf-8", errors="replace")
    counters = reader(tree).read(0.0).containers[A]
    assert len(counters.devices) <= 32
    assert all(0 <= count.bytes <= 2 * COUNTED_MOST for count in counters.devices.values())
    assert counters.stalled_us is None or 0 <= counters.stalled_us <= COUNTED_MOST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NO_LIMIT),
        ("8:0 rbps=max wbps=max riops=max wiops=max\n", NO_LIMIT),
        ("8:16 rbps=1 wbps=1\n8:0 rbps=2097152 wbps=max\n", DeviceLimit(read=2097152, write=None)),
    ],
)
def test_limits_of_version_2_are_read(tmp_path: Path, text: str, expected: DeviceLimit) -> None:
    (tmp_path / "io.max").write_text(text)
    assert read_limit(tmp_path, CgroupVersion.V2, "8:0") == expected


def test_limits_of_version_2_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    (tmp_path / "io.max").write_text("")
    write_limit(tmp_path, CgroupVersion.V2, "8:0", DeviceLimit(read=5, write=None))
    assert (tmp_path / "io.max").read_text() == "8:0 rbps=5 wbps=max"


@pytest.mark.skipif(
    os.geteuid() != 0 or not (BLKIO / "cgroup.procs").exists(), reason="no version 1 of its own"
)
def test_this_kernel_takes_and_shows_limits_of_version_1() -> None:
    device = next((line for line in Path("/sys/block").iterdir() if (line / "dev").exists()), None)
    assert device is not None
    number = (device / "dev").read_text().strip()
    folder = BLKIO / f"ullage-test-{os.getpid()}"
    folder.mkdir()
    try:
        limit = DeviceLimit(read=3 << 20, write=4 << 20)
        assert read_limit(folder, CgroupVersion.V1, number) == NO_LIMIT
        write_limit(folder, CgroupVersion.V1, number, limit)
        assert read_limit(folder, CgroupVersion.V1, number) == limit
        write_limit(folder, CgroupVersion.V1, number, NO_LIMIT)
        assert read_limit(folder, CgroupVersion.V1, number) == NO_LIMIT
        counters = read_counters(Path("/sys/fs/cgroup"), CgroupVersion.V1, folder)
        assert counters is not None
    finally:
        folder.rmdir()
