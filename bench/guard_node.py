# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node small enough for a benchmark: one emulated device, real control groups, real processes.

Everything below kubelet is the product's own: the hook that limits a container, the driver that
reads it, step records, the guard's task and the process that freezes. Only the pods are made here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage.api.steps import STEP_RECORD_BYTES
from ullage_node.devices.backend import BACKENDS, BackendOptions, Hardware
from ullage_node.devices.cgroups import CgroupVersion, detect_version, machine_cores
from ullage_node.guard.protocol import guard_socket
from ullage_node.model.devices import Attachment, BackendPaths, ContainerKey, Hook, StepProgress
from ullage_node.model.slices import NodeDevice, Pod, container_of
from ullage_node.slices.table import SliceTable, binding_of
from ullage_node.telemetry.progress import StepTelemetry

ROOT: Final = Path("/sys/fs/cgroup")
CONTROLLERS_V1: Final = ("cpu", "cpuset", "cpuacct", "pids", "memory", "freezer")
CONTROLLERS_V2: Final = ("cpu", "cpuset", "pids", "memory")
NODE: Final = "bench"
GPU: Final = f"emulated-{NODE}-0"
WEIGHT_V1, WEIGHT_V2 = "262144", "10000"
"""Our tree outweighs whatever else the machine does, so that only the neighbour disturbs."""
SERVE_SECONDS: Final = 20.0

WORKS: Final = """
import sys
from ullage_run.record import StepWriter
step = StepWriter(sys.argv[1]).step
while True:
    sum(i * i for i in range(100000))
    step()
"""
SPINS: Final = "while True: pass"


def what_is_missing() -> str:
    """Why it cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "it makes control groups and limits them: run it as root"
    if detect_version(ROOT) is CgroupVersion.V1:
        absent = [name for name in CONTROLLERS_V1 if not (ROOT / name / "cgroup.procs").exists()]
    else:
        named = (ROOT / "cgroup.subtree_control").read_text().split()
        absent = [name for name in CONTROLLERS_V2 if name not in named]
    return f"it needs the controllers {', '.join(absent)} below {ROOT}" if absent else ""


class Groups:
    """Control groups below one folder of our own, in every hierarchy.

    Args:
        outweighs: They go before all other work of the machine.
    """

    def __init__(self, *, outweighs: bool = True) -> None:
        self._outweighs = outweighs
        self._top = f"ullage-bench-{os.getpid()}"
        self._v2 = detect_version(ROOT) is CgroupVersion.V2
        self._bases = [ROOT] if self._v2 else [ROOT / name for name in CONTROLLERS_V1]
        self._made: list[Path] = []

    def make(self, path: str) -> None:
        """Make a cgroup and all above it."""
        parts = [self._top, *path.split("/")]
        for depth in range(1, len(parts) + 1):
            for base in self._bases:
                place = base / "/".join(parts[:depth])
                if not place.exists():
                    self._make(place, leaf=depth == len(parts))

    def _make(self, place: Path, *, leaf: bool) -> None:
        place.mkdir()
        self._made.append(place)
        if self._outweighs and (place / "cpu.shares").exists():
            (place / "cpu.shares").write_text(WEIGHT_V1)
        if self._v2:
            if self._outweighs:
                (place / "cpu.weight").write_text(WEIGHT_V2)
            if not leaf:
                wanted = " ".join(f"+{name}" for name in CONTROLLERS_V2)
                (place / "cgroup.subtree_control").write_text(wanted)
        elif (place / "cpuset.cpus").exists():
            for name in ("cpuset.cpus", "cpuset.mems"):
                (place / name).write_text((place.parent / name).read_text())

    @property
    def folders(self) -> tuple[Path, ...]:
        """Our folder in each hierarchy."""
        return tuple(base / self._top for base in self._bases)

    def limit_memory(self, path: str, mib: int) -> None:
        """Let the kernel kill who takes more than is left to a cgroup, MiB."""
        place = f"{self._top}/{path}"
        file = "memory.max" if self._v2 else "memory.limit_in_bytes"
        base = ROOT if self._v2 else ROOT / "memory"
        (base / place / file).write_text(str(mib << 20))

    def join(self, path: str, pid: int) -> None:
        """Put a process into a cgroup."""
        for base in self._bases:
            (base / self._top / path / "cgroup.procs").write_text(str(pid))

    def is_frozen(self, path: str) -> bool:
        """What the kernel says of a cgroup."""
        base = ROOT if self._v2 else ROOT / "freezer"
        place = base / self._top / path
        if self._v2:
            return "frozen 1" in (place / "cgroup.events").read_text().splitlines()
        return (place / "freezer.state").read_text().strip() == "FROZEN"

    def remove(self, path: str = "") -> None:
        """Remove a cgroup and what is below it; all of them without a path."""
        inside = f"/{self._top}/{path}".rstrip("/")
        for place in [one for one in reversed(self._made) if inside in f"{one}"]:
            deadline = time.monotonic() + 5
            while True:
                try:
                    place.rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)  # the kernel lets go of a dead process a moment later
            self._made.remove(place)


@dataclass(slots=True)
class Running:
    """One container that runs."""

    desired: DesiredSlice
    group: str
    process: subprocess.Popen[bytes]
    leaving: bool = False


@dataclass
class BenchNode:
    """The device, its containers and what the agent would know of them."""

    scratch: Path
    groups: Groups
    table: SliceTable = field(default_factory=SliceTable)
    attachments: dict[ContainerKey, Attachment] = field(default_factory=dict)
    progress: dict[ContainerKey, StepProgress] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        cores = machine_cores(ROOT)
        core = max(cores) if cores else 0
        device = {"core": core, "percent": 100, "memoryMiB": 1024, "model": "emulated"}
        (self.scratch / "emulated.json").write_text(json.dumps({"devices": [device]}))
        paths = BackendPaths(state_dir=self.scratch)
        options = BackendOptions(node_name=NODE, contexts=8, paths=paths)
        backend = BACKENDS[Hardware.EMULATED](options)
        self.probe, self.driver = backend.probe, backend.driver
        self.telemetry = StepTelemetry(self.steps_dir)
        self.table.set_devices([NodeDevice(uuid=GPU, memory_mib=1024, contexts=8)])

    @property
    def steps_dir(self) -> Path:
        """Where the step records are."""
        return self.scratch / "steps"

    @property
    def pods(self) -> dict[str, Pod]:
        """The pods, as the API server would show them."""
        return {
            one.desired.key.pod_uid: Pod(
                uid=one.desired.key.pod_uid,
                namespace=one.desired.pod_namespace,
                name=one.desired.pod_name,
                phase="Running",
                deleting=one.leaving,
            )
            for one in self.running
        }

    async def start(self, name: str, *, protected: bool, max_slowdown_percent: int = 0) -> Running:
        """Place, prepare and start a container that may use the whole device."""
        uid = str(uuid.uuid4())
        desired = DesiredSlice(
            key=SliceKey(pod_uid=uid, container="main"),
            pod_namespace="default",
            pod_name=name,
            gpu=GPU,
            percent=100,
            memory_mib=64,
            epoch=1,
            protected=protected,
            workload_class=name,
            max_slowdown_percent=max_slowdown_percent,
        )
        self.table.intake(1, [*(one.desired for one in self.running), desired])
        used = set(self.table.slots)
        slot = next(slot for n in range(100) if (slot := f"slot-{n:02d}") not in used)
        binding = binding_of([(desired, slot)])
        edits = await self.driver.prepare(binding)
        self.table.bind(binding)
        group = f"kubepods/pod{uid}/main"
        self.groups.make(group)
        process = self._process(binding.key, protected)
        self.groups.join(group, process.pid)
        for hook in edits.hooks:
            _call(hook, process.pid)
        process.send_signal(signal.SIGCONT)
        running = Running(desired, group, process)
        self.running.append(running)
        await self.observe()
        return running

    def _process(self, key: ContainerKey, works: bool) -> subprocess.Popen[bytes]:
        """The container's process; it waits, stopped, until its limits stand."""
        folder = self.steps_dir / key.directory
        folder.mkdir(parents=True)
        record = folder / "record"
        record.write_bytes(bytes(STEP_RECORD_BYTES))
        held = (
            f"import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\n{WORKS if works else SPINS}"
        )
        process = subprocess.Popen([sys.executable, "-c", held, str(record)])
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        return process

    async def observe(self) -> None:
        """What the agent reads once a second."""
        bindings = self.table.bindings
        self.attachments = dict(await self.driver.observe(bindings))
        self.progress = dict(self.telemetry.sample(bindings, self.attachments, time.monotonic()))
        for binding in bindings:
            if self.attachments[binding.key].pids:
                self.table.set_phase(binding.key, SlicePhase.ATTACHED)

    async def end(self, one: Running) -> None:
        """End a container that runs (a frozen one hears nothing) and forget it."""
        one.process.kill()
        one.process.wait()
        self.running.remove(one)
        self.table.intake(1, [other.desired for other in self.running])
        if binding := self.table.free(container_of(one.desired)):
            await self.driver.release(binding)
        self.groups.remove(one.group.rpartition("/")[0])
        await self.observe()


def _call(hook: Hook, pid: int) -> None:
    state = json.dumps({"ociVersion": "1.2.0", "id": "c", "pid": pid})
    done = subprocess.run(
        [hook.path, *hook.args[1:]],
        input=state,
        capture_output=True,
        text=True,
        env={},
        check=False,
    )
    if done.returncode:
        sys.exit(f"the hook failed: {done.stderr}")


@contextmanager
def bench_node() -> Iterator[BenchNode]:
    """A node, taken away again with everything on it."""
    scratch, groups = Path(tempfile.mkdtemp(prefix="ullage-bench-")), Groups()
    node: BenchNode | None = None
    try:
        node = BenchNode(scratch, groups)
        yield node
    finally:
        for one in node.running if node else ():
            one.process.kill()
            one.process.wait()
        groups.remove()
        shutil.rmtree(scratch)


@contextmanager
def guard_process(run_dir: Path) -> Iterator[Path]:
    """``ullage-node guard``, as the chart starts it; yields its socket."""
    environment = os.environ | {
        "ULLAGE_NODE_NAME": NODE,
        "ULLAGE_NODE_LOG_LEVEL": "error",
        "ULLAGE_NODE_PATHS_RUN_DIR": str(run_dir),
    }
    program = "from ullage_node.main import run; run(['guard'])"
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    socket, deadline = guard_socket(run_dir), time.monotonic() + SERVE_SECONDS
    try:
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the guard does not serve; its message stands above")
            time.sleep(0.02)
        yield socket
    finally:
        process.terminate()
        process.wait(SERVE_SECONDS)
