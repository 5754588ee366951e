# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ullage.api.readers import WireError
from ullage.api.steps import STEP_LAYOUT, STEP_MAGIC, STEP_VERSION, StepRecord
from ullage_node import step_record as record_module
from ullage_node.step_record import read_step_record

SPIN = """
import struct, sys
import mmap
file = open(sys.argv[1], "r+b")
words = memoryview(mmap.mmap(file.fileno(), 64)).cast("Q")
words[0] = int.from_bytes(struct.pack("<4sI", b"ULST", 1), "little")
print("ready", flush=True)
step = 0
while True:
    step += 1
    # Every byte of a word changes with every step, so that half a word would show.
    words[3] = words[2] = words[4] = step * 0x0001_0101_0101_0101 % (1 << 46)
    words[1] = step
"""


def packed(
    *,
    steps: int = 5,
    items: int = 160,
    sms: int = 0,
    version: int = STEP_VERSION,
    ewma: int = 9,
    resumed: int = 0,
) -> bytes:
    return STEP_LAYOUT.pack(STEP_MAGIC, version, steps, 7_000, ewma, items, sms, resumed, 0, 40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record"


def test_a_record_is_read_whole(path: Path) -> None:
    path.write_bytes(packed(sms=66))
    assert read_step_record(path) == StepRecord(
        steps=5,
        last_step_ns=7_000,
        ewma_ns=9,
        items=160,
        sm_count=66,
        last_checkpoint_ns=0,
        busy_ns=40,
    )


def test_the_bytes_of_every_writer_are_read(path: Path) -> None:
    """The same bytes as in the test of the writer; 0 is what older writers left there."""
    said = (
        "554c535401000000 0200000000000000 8813000000000000 a00f000000000000"
        " 4000000000000000 42000000{} 7017000000000000 a00f000000000000"
    )
    for half, resumed_at in (("88130000", 5_000), ("00000000", 0), ("ffffffff", (1 << 32) - 1)):
        path.write_bytes(bytes.fromhex(said.format(half)))
        assert read_step_record(path) == StepRecord(
            steps=2,
            last_step_ns=5_000,
            ewma_ns=4_000,
            items=64,
            sm_count=66,
            last_checkpoint_ns=6_000,
            busy_ns=4_000,
            resumed_at=resumed_at,
        )


def test_a_record_that_no_one_began_says_nothing(path: Path) -> None:
    path.write_bytes(bytes(64))
    assert read_step_record(path) is None


def test_no_record_says_nothing(path: Path) -> None:
    assert read_step_record(path) is None
    assert read_step_record(path / "in" / "no" / "directory") is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "0 bytes"),
        (packed()[:63], "63 bytes"),
        (packed() + b"\0", "65 bytes"),
        (packed() * 1000, "65 bytes"),
        (b"NOPE" + packed()[4:], "magic"),
        (packed(version=2), "version 2"),
        (packed(steps=1 << 63), "no program reaches"),
        (packed(steps=(1 << 63) - 5, resumed=5), "no program reaches"),
        (packed(items=(1 << 64) - 1), "no program reaches"),
        (packed(ewma=1 << 63), "no program reaches"),
        (packed(sms=1 << 31), "no program reaches"),
    ],
)
def test_what_is_no_record_is_an_error_that_says_why(path: Path, raw: bytes, text: str) -> None:
    path.write_bytes(raw)
    with pytest.raises(WireError, match=text):
        read_step_record(path)


def _link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(packed())
    path.symlink_to(target)


@pytest.mark.parametrize("plant", [_link, os.mkfifo, os.mkdir], ids=["link", "pipe", "folder"])
def test_what_a_tenant_plants_in_its_place_is_never_opened(
    path: Path, plant: Callable[[Path], None]
) -> None:
    plant(path)
    with pytest.raises(WireError, match="no plain file"):
        read_step_record(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: device files are made")
def test_a_device_file_in_its_place_is_never_opened(path: Path) -> None:
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero: an endless record of zeros
    with pytest.raises(WireError, match="no plain file"):
        read_step_record(path)


def test_a_record_shortened_while_it_is_read_is_an_error_not_a_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(packed())
    real = os.pread

    def shortening(descriptor: int, count: int, offset: int) -> bytes:
        got = real(descriptor, count, offset)
        os.truncate(path, 0)
        return got

    monkeypatch.setattr(record_module.os, "pread", shortening)
    with pytest.raises(WireError, match="0 bytes"):
        read_step_record(path)


@pytest.mark.parametrize(("changes", "read"), [(0, True), (1, True), (2, True), (3, False)])
def test_a_changing_record_is_tried_twice_more_and_then_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, changes: int, read: bool
) -> None:
    path.write_bytes(packed(steps=1))
    real, left = os.pread, [changes]

    def stepping(descriptor: int, count: int, offset: int) -> bytes:
        got = real(descriptor, count, offset)
        if left[0]:
            left[0] -= 1
            path.write_bytes(packed(steps=100 - left[0]))
        return got

    monkeypatch.setattr(record_module.os, "pread", stepping)
    found = read_step_record(path)
    assert (found is not None) == read
    if found is not None:
        assert found.steps == (100 if changes else 1)


def test_no_descriptor_is_left_open(path: Path) -> None:
    path.write_bytes(packed())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        read_step_record(path)
    path.write_bytes(b"short")
    for _ in range(50):
        with pytest.raises(WireError):
            read_step_record(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reads_beside_a_writer_that_never_rests_are_never_torn(path: Path) -> None:
    path.write_bytes(bytes(64))
    writer = subprocess.Popen([sys.executable, "-S", "-c", SPIN, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        seen = 0
        for _ in range(20_000):
            found = read_step_record(path, 1 << 46)
            if found is None:
                continue
            seen += 1
            words = {found.last_step_ns, found.ewma_ns, found.items}
            steps = {found.steps, found.steps + 1}  # the rest is stored before steps
            assert words <= {step * 0x0001_0101_0101_0101 % (1 << 46) for step in steps}
        assert seen > 0
    finally:
        writer.kill()
        writer.wait()
        if writer.stdout is not None:
            writer.stdout.close()
