# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cgroups of this machine's own kernel for tests that need its refusals and its scheduler.

Everything is made below one directory with a name of its own and taken away again, with the
processes in it. Needs root and a writable tree; :func:`what_is_missing` says what is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ullage_node.devices.cgroups import CgroupVersion, detect_version, machine_cores

ROOT = Path("/sys/fs/cgroup")
_V1 = ("cpu", "cpuset", "cpuacct", "pids", "memory")
_V2 = ("cpu", "cpuset", "pids", "memory")
_SPIN = [sys.executable, "-S", "-c", "while True: pass"]
_IDLE = ["sleep", "300"]


def what_is_missing() -> str:
    """Why the tests cannot run here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root: cgroups are made and limits written"
    version = detect_version(ROOT)
    if version is CgroupVersion.V1:
        absent = [name for name in _V1 if not (ROOT / name / "cgroup.procs").exists()]
        if absent:
            return f"needs the cgroup v1 controllers {', '.join(absent)} below {ROOT}"
        places = [ROOT / name for name in _V1]
    else:
        named = (ROOT / "cgroup.subtree_control").read_text().split()
        absent = [name for name in _V2 if name not in named]
        if absent:
            return f"needs {', '.join(absent)} in {ROOT}/cgroup.subtree_control"
        places = [ROOT]
    probe = f"ullage-probe-{os.getpid()}"
    for place in places:
        try:
            (place / probe).mkdir()
            (place / probe).rmdir()
        except OSError as error:
            return f"needs a writable cgroup tree: {place}: {error.strerror}"
    return ""


@dataclass
class RealTree:
    """Cgroups below ``/<name>`` in every controller, and the processes put there."""

    name: str = field(default_factory=lambda: f"ullage-test-{os.getpid()}")
    version: CgroupVersion = field(default_factory=lambda: detect_version(ROOT))
    made: list[Path] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def core(self) -> int:
        """The last core of the machine: the first one serves interrupts."""
        cores = machine_cores(ROOT)
        assert cores
        return max(cores)

    def group(self, path: str) -> str:
        """Make a cgroup and all above it; our own tree outweighs whatever else runs here."""
        parts = [self.name, *path.strip("/").split("/")]
        for depth in range(1, len(parts) + 1):
            self._make("/".join(parts[:depth]), leaf=depth == len(parts))
        return "/" + "/".join(parts)

    def run(self, path: str, *, spin: bool = False) -> int:
        """A process in this cgroup; one that spins uses all the CPU it gets."""
        process = subprocess.Popen(_SPIN if spin else _IDLE, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        for place in self._places(path):
            (place / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def write(self, controller: str, path: str, name: str, value: str) -> None:
        (self._place(controller, path) / name).write_text(value)

    def read(self, controller: str, path: str, name: str) -> str:
        return (self._place(controller, path) / name).read_text().strip()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for place in reversed(self.made):
            for _ in range(100):
                try:
                    place.rmdir()
                    break
                except OSError:
                    time.sleep(0.01)  # the kernel lets go of a dead process a moment later
            else:
                place.rmdir()

    def _make(self, path: str, *, leaf: bool) -> None:
        for controller in _V1 if self.version is CgroupVersion.V1 else ("",):
            place = self._place(controller, path)
            if place.exists():
                continue
            place.mkdir()
            self.made.append(place)
            if controller == "cpuset":
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (place / name).write_text((place.parent / name).read_text())
            if controller == "cpu":
                (place / "cpu.shares").write_text("262144")
            if controller == "":
                (place / "cpu.weight").write_text("10000")
                if not leaf:
                    (place / "cgroup.subtree_control").write_text(
                        " ".join(f"+{name}" for name in _V2)
                    )

    def _place(self, controller: str, path: str) -> Path:
        base = ROOT if self.version is CgroupVersion.V2 else ROOT / controller
        return base / path.lstrip("/")

    def _places(self, path: str) -> list[Path]:
        names = _V1 if self.version is CgroupVersion.V1 else ("",)
        return [self._place(name, path) for name in names]
