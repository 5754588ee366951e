# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Containers of this machine's own kernel that can be frozen: cgroups with a ticking process.

Everything is made below one directory with a name of its own and taken away again. Needs root and
a writable hierarchy; :func:`roots` says which kinds of freezer there are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from ullage_node.guard.finder import FreezerKind, hierarchy
from ullage_node.guard.freezer import Freezer
from ullage_node.guard.journal import Journal
from ullage_node.guard.keeper import Keeper
from ullage_node.guard.protocol import FreezeTarget
from ullage_node.model.devices import ContainerKey

CGROUP = Path("/sys/fs/cgroup")
_TICK = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
ticks = 0
while True:
    ticks += 1
    os.pwrite(file, ticks.to_bytes(8, "little"), 0)
    time.sleep(0.002)
"""


def roots(scratch: Path) -> dict[FreezerKind, Path]:
    """Roots of hierarchies on this machine that stop containers in each way."""
    found: dict[FreezerKind, Path] = {}
    for place in (CGROUP, CGROUP / "unified"):
        if (place / "cgroup.controllers").exists() and _writable(place):
            found[FreezerKind.V2] = place
    if _writable(CGROUP / "freezer"):
        found[FreezerKind.V1] = CGROUP
    for name in ("pids", "freezer"):
        if FreezerKind.SIGNAL not in found and _writable(CGROUP / name):
            # A tree that shows one hierarchy without a freezer, as an old kernel would.
            (scratch / "tree").mkdir(exist_ok=True)
            (scratch / "tree" / "pids").symlink_to(CGROUP / name)
            found[FreezerKind.SIGNAL] = scratch / "tree"
    return found


def _writable(place: Path) -> bool:
    probe = place / f"ullage-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


@dataclass
class TickingPod:
    """A pod with one container whose process counts as long as it runs."""

    base: Path
    """Folder of the hierarchy."""
    scratch: Path
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.top = self.base / f"ullage-guard-{os.getpid()}-{self.uid[:8]}"
        self.pod = self.top / "kubepods" / "besteffort" / f"pod{self.uid}"
        self.folder = self.pod / "c0ffee"
        self.sandbox = self.pod / "beef"
        self.folder.mkdir(parents=True)
        self.sandbox.mkdir()
        self.file = self.scratch / f"ticks-{self.uid}"
        self.process = subprocess.Popen([sys.executable, "-S", "-c", _TICK, str(self.file)])
        (self.folder / "cgroup.procs").write_text(str(self.process.pid))
        self.wait_for_ticks()

    @property
    def target(self) -> FreezeTarget:
        key = ContainerKey(pod_uid=self.uid, container="main")
        return FreezeTarget(key=key, pids=(self.process.pid,))

    @property
    def ticks(self) -> int:
        return int.from_bytes(self.file.read_bytes(), "little") if self.file.exists() else 0

    def wait_for_ticks(self) -> None:
        """Until it went on; fails when it never does."""
        before, deadline = self.ticks, time.monotonic() + 60
        while self.ticks == before:
            assert time.monotonic() < deadline, "it stands still"
            time.sleep(0.002)

    def stands_still(self) -> bool:
        before = self.ticks
        time.sleep(0.03)
        return self.ticks == before

    def close(self) -> None:
        for name, text in (("cgroup.freeze", "0"), ("freezer.state", "THAWED")):
            if (self.folder / name).exists():
                (self.folder / name).write_text(text)
        self.process.kill()
        self.process.wait()
        for place in (self.folder, self.sandbox, *self.pod.parents):
            if place == self.base:
                break
            self._remove(place)
            if place == self.sandbox:
                self._remove(self.pod)

    def _remove(self, place: Path) -> None:
        for _ in range(6000):
            try:
                place.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)  # the kernel lets go of a dead process a moment later
            else:
                return
        place.rmdir()


@dataclass
class FreezerBench:
    """A keeper over a real hierarchy, and pods in it."""

    root: Path
    scratch: Path
    pods: list[TickingPod] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = Keeper(
            cgroup_root=self.root,
            proc_root=Path("/proc"),
            journal=Journal(folder=self.scratch / "frozen"),
            freezer=Freezer(deadline_seconds=60.0),
        )

    def pod(self) -> TickingPod:
        base, _ = hierarchy(self.root)
        self.pods.append(TickingPod(base, self.scratch))
        return self.pods[-1]
