# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A loop device that moves so many bytes a second for all together, and readers in control groups.

The device lies on a file of a FUSE file system of this program, which serves one request after the
other and sleeps for each as long as it takes at the device's rate. So readers compete for it as on
a disk: who asks for more at a time gets more. Needs root, ``/dev/fuse`` and a free loop device.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroup_io import IoCgroup

CGROUPS: Final = Path("/sys/fs/cgroup")
NAME: Final = "ullage-bench-dataio"
SIZE: Final = 1 << 34
"""Bytes of the device; they read as zeros."""
REQUEST_MOST: Final = 1 << 20
OVERHEAD_S: Final = 0.0002
"""Time of a request beside its bytes."""
READER: Final = """
import mmap, os, random, sys, time
device, size, gap, seed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
file = os.open(device, os.O_RDONLY | os.O_DIRECT)
place, draw = mmap.mmap(-1, size), random.Random(seed)
while True:
    os.preadv(file, [place], draw.randrange(int(sys.argv[5]) // size) * size)
    if gap > 0:
        time.sleep(gap)
    elif gap < 0:
        until = time.thread_time() - gap
        while time.thread_time() < until:
            pass
"""

_HEAD: Final = struct.Struct("<IIQQIIII")
_OUT: Final = struct.Struct("<IiQ")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _INIT = 1, 2, 3, 14, 15, 18, 26
_OPENDIR, _READDIR, _RELEASEDIR, _STATFS, _FLUSH, _BATCH_FORGET = 27, 28, 29, 17, 25, 42
_MAX_PAGES: Final = 1 << 22
_ASYNC_READ: Final = 1
_DIRECT_IO: Final = 1
_ENOSYS: Final = 38


def serve_file(folder: str, bytes_per_s: float) -> None:
    """Serve one file in ``folder`` at a rate until unmounted; runs in a process of its own."""
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,max_read={REQUEST_MOST}"
    if libc.mount(b"fuse", folder.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    print("ready", flush=True)
    free_at = time.monotonic()
    while True:
        try:
            message = os.read(descriptor, REQUEST_MOST + (1 << 16))
        except OSError:
            return
        _, code, unique, node, *_ = _HEAD.unpack_from(message)
        body = message[_HEAD.size :]
        error, answer = 0, b""
        if code == _INIT:
            _, minor = struct.unpack_from("<II", body)
            answer = struct.pack(
                "<IIIIHHIIHH32x",
                7,
                min(minor, 31),
                1 << 20,
                _ASYNC_READ | _MAX_PAGES,
                64,
                64,
                REQUEST_MOST,
                1,
                REQUEST_MOST // 4096,
                0,
            )
        elif code == _LOOKUP:
            answer = struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + _attributes(2)
        elif code == _GETATTR:
            answer = struct.pack("<QII", 3600, 0, 0) + _attributes(node)
        elif code in (_OPEN, _OPENDIR):
            answer = struct.pack("<QII", 0, _DIRECT_IO if code == _OPEN else 0, 0)
        elif code == _READ:
            size = struct.unpack_from("<QQI", body)[2]
            free_at = max(free_at, time.monotonic() - 0.02) + OVERHEAD_S + size / bytes_per_s
            time.sleep(max(0.0, free_at - time.monotonic()))
            answer = bytes(size)
        elif code in (_FORGET, _BATCH_FORGET):
            continue
        elif code == _STATFS:
            answer = struct.pack("<QQQQQIIII24x", 1, 0, 0, 2, 0, 4096, 255, 4096, 0)
        elif code not in (_RELEASE, _RELEASEDIR, _FLUSH, _READDIR):
            error = -_ENOSYS
        with contextlib.suppress(FileNotFoundError):  # the request was interrupted
            os.write(descriptor, _OUT.pack(_OUT.size + len(answer), error, unique) + answer)


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    size = 0 if node == 1 else SIZE
    return struct.pack(
        "<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0
    )


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """The device's path and its major:minor number."""

    path: str
    number: str


@contextlib.contextmanager
def slow_device(bytes_per_s: float) -> Iterator[SlowDevice]:
    """A loop device of so many bytes per second.

    Raises:
        OSError, subprocess.CalledProcessError: this machine cannot make one.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        server = subprocess.Popen(
            [sys.executable, "-m", "bench.dataio_volume", folder, str(bytes_per_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        assert server.stdout is not None
        if server.stdout.readline() != "ready\n":
            raise OSError("no FUSE file system on this machine")
        stack.callback(subprocess.run, ["umount", "-l", folder], check=False)
        made = subprocess.run(
            ["losetup", "--find", "--show", "--read-only", "--direct-io=on", f"{folder}/disk"],
            capture_output=True,
            text=True,
            check=True,
        )
        path = made.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "--detach", path], check=False)
        queue = Path("/sys/block", Path(path).name, "queue")
        with contextlib.suppress(OSError):
            (queue / "max_sectors_kb").write_text(str(REQUEST_MOST // 1024))
        numbers = os.stat(path).st_rdev
        yield SlowDevice(path, f"{os.major(numbers)}:{os.minor(numbers)}")


@dataclass(slots=True)
class Tenant:
    """A container of a pod of its own: control groups, and readers in them.

    Attributes:
        name: Of its pod.
        cpu: Cores that it may use; 0 = all.
    """

    name: str
    cpu: float = 0.0
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    _readers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def key(self) -> IoCgroup:
        """Its container."""
        return IoCgroup(self.uid, "container")

    def folder(self, controller: str) -> Path:
        """Its control group."""
        return CGROUPS / controller / NAME / f"pod{self.uid}" / "container"

    def begin(self, device: str, *, size: int, count: int, gap_s: float, seed: int) -> None:
        """Start readers.

        Args:
            device: Path of the device.
            size: Bytes of a request.
            count: Number of readers, each with one request at a time.
            gap_s: Pause after each request; negative = so much CPU time instead.
            seed: Of the places that are read.
        """
        for controller in ("blkio", "cpu"):
            self.folder(controller).mkdir(parents=True, exist_ok=True)
        if self.cpu:
            (self.folder("cpu") / "cpu.cfs_quota_us").write_text(str(int(self.cpu * 100_000)))

        def join() -> None:
            for controller in ("blkio", "cpu"):
                (self.folder(controller) / "cgroup.procs").write_text(str(os.getpid()))

        for at in range(count):
            command = [
                sys.executable,
                "-S",
                "-c",
                READER,
                device,
                str(size),
                str(gap_s),
                str(seed + at),
                str(SIZE),
            ]
            self._readers.append(subprocess.Popen(command, preexec_fn=join))

    def end(self) -> None:
        """End the readers and remove the control groups."""
        for reader in self._readers:
            reader.send_signal(signal.SIGKILL)
        for reader in self._readers:
            reader.wait()
        self._readers.clear()
        for controller in ("blkio", "cpu"):
            for folder in (self.folder(controller), self.folder(controller).parent):
                for _ in range(50):
                    try:
                        folder.rmdir()
                        break
                    except FileNotFoundError:
                        break
                    except OSError:  # its processes are still ending
                        time.sleep(0.02)


if __name__ == "__main__":
    serve_file(sys.argv[1], float(sys.argv[2]))
