# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cgroup tree and a ``/proc`` made of plain files, so that the real hook script can run on them.

Plain files take every value: what only the kernel refuses is tested on a real kernel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ullage_node.model.devices import BackendPaths, Hook

CONTROLLERS_V1 = ("cpu", "cpuset", "cpuacct", "pids", "memory")


@dataclass(frozen=True, kw_only=True)
class CgroupTree:
    """The files of one node below ``base``; ``version`` says which hierarchy has the cpu."""

    base: Path
    version: int
    cores: str = "0-1"

    @cached_property
    def paths(self) -> BackendPaths:
        return BackendPaths(
            state_dir=self.base / "state dir",  # a space: quoting is part of what is tested
            run_dir=self.base / "run",
            cdi_dirs=(self.base / "etc-cdi", self.base / "run-cdi"),
            cgroup_root=self.base / "cgroup root",
            proc_root=self.base / "proc",
        )

    def build(self) -> CgroupTree:
        root = self.paths.cgroup_root
        if self.version == 2:
            _write(root / "cgroup.controllers", "cpuset cpu io memory hugetlb pids")
            _write(root / "cpuset.cpus.effective", self.cores)
        else:
            _write(root / "cpuset" / "cpuset.effective_cpus", self.cores)
            # A hybrid host: a version 2 hierarchy without the cpu controller.
            _write(root / "unified" / "cgroup.controllers", "hugetlb")
        self.paths.state_dir.mkdir(parents=True)
        return self

    def pod_path(self, pod_uid: str) -> str:
        if self.version == 2:
            return f"/kubepods.slice/kubepods-pod{pod_uid.replace('-', '_')}.slice"
        return f"/kubepods/burstable/pod{pod_uid}"

    def container_path(self, pod_uid: str, container_id: str) -> str:
        leaf = f"cri-containerd-{container_id}.scope" if self.version == 2 else container_id
        return f"{self.pod_path(pod_uid)}/{leaf}"

    def place(self, controller: str, path: str) -> Path:
        root = self.paths.cgroup_root
        return root / path[1:] if self.version == 2 else root / controller / path[1:]

    def create(self, pod_uid: str, container_id: str, pid: int, *, pod_limit_us: int = -1) -> str:
        """What the runtime makes before it calls the hook; answers the container's path."""
        path = self.container_path(pod_uid, container_id)
        self._group(self.pod_path(pod_uid), pod_limit_us)
        self._group(path, -1)
        if self.version == 2:
            text = f"0::{path}"
        else:
            lines = [f"{n}:{name}:{path}" for n, name in enumerate(CONTROLLERS_V1, start=2)]
            text = "\n".join([*lines, "1:name=systemd:/", "0::/system.slice/other.service"])
        _write(self.paths.proc_root / str(pid) / "cgroup", text)
        self.set_pids(path, (pid,))
        return path

    def set_pids(self, path: str, pids: tuple[int, ...]) -> None:
        _write(self.place("cpu", path) / "cgroup.procs", "\n".join(map(str, pids)))
        if self.version == 2:
            events = f"populated {int(bool(pids))}\nfrozen 0"
            _write(self.place("", path) / "cgroup.events", events)
        else:
            _write(self.place("pids", path) / "pids.current", str(len(pids)))

    def hide_pids(self, path: str) -> None:
        """What a reader in another process namespace sees of processes that are there."""
        _write(self.place("cpu", path) / "cgroup.procs", "0" if self.version == 2 else "")

    def set_quota(self, path: str, quota_us: int, period_us: int = 100_000) -> None:
        if self.version == 2:
            quota = "max" if quota_us < 0 else str(quota_us)
            _write(self.place("", path) / "cpu.max", f"{quota} {period_us}")
        else:
            _write(self.place("cpu", path) / "cpu.cfs_quota_us", str(quota_us))
            _write(self.place("cpu", path) / "cpu.cfs_period_us", str(period_us))

    def quota(self, path: str) -> str:
        if self.version == 2:
            return (self.place("", path) / "cpu.max").read_text().strip()
        there = self.place("cpu", path)
        return " ".join(
            (there / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )

    def set_cores(self, path: str, cores: str) -> None:
        _write(self.place("cpuset", path) / "cpuset.cpus", cores)

    def cores_of(self, path: str) -> str:
        return (self.place("cpuset", path) / "cpuset.cpus").read_text().strip()

    def set_cpu_time(self, path: str, nanoseconds: int) -> None:
        if self.version == 2:
            text = f"usage_usec {nanoseconds // 1000}\nuser_usec 0\nsystem_usec 0"
            _write(self.place("", path) / "cpu.stat", text)
        else:
            _write(self.place("cpuacct", path) / "cpuacct.usage", str(nanoseconds))

    def set_memory(self, path: str, used_bytes: int, idle_file_bytes: int) -> None:
        there = self.place("memory", path)
        if self.version == 2:
            _write(there / "memory.current", str(used_bytes))
            _write(there / "memory.stat", f"anon 1\ninactive_file {idle_file_bytes}")
        else:
            _write(there / "memory.usage_in_bytes", str(used_bytes))
            _write(there / "memory.stat", f"cache 1\ntotal_inactive_file {idle_file_bytes}")

    def destroy(self, path: str) -> None:
        """What the runtime does when the container has ended."""
        for controller in CONTROLLERS_V1 if self.version == 1 else ("",):
            shutil.rmtree(self.place(controller, path))

    def _group(self, path: str, quota_us: int) -> None:
        for controller in CONTROLLERS_V1 if self.version == 1 else ("",):
            self.place(controller, path).mkdir(parents=True, exist_ok=True)
        self.set_quota(path, quota_us)
        self.set_cores(path, self.cores)
        self.set_cpu_time(path, 0)
        self.set_memory(path, 0, 0)
        self.set_pids(path, ())


def run_hook(hook: Hook, pid: int, *, state: str | None = None) -> subprocess.CompletedProcess[str]:
    """Call a hook as the runtime does: its arguments, the container's state on standard input."""
    if state is None:
        annotations = {"pid": "7", "x": '"pid": 9', "n": "a\nb"}
        state = json.dumps(
            {"ociVersion": "1.2.0", "id": "c", "pid": pid, "annotations": annotations}
        )
    return subprocess.run(
        [hook.path, *hook.args[1:]],
        input=state,
        capture_output=True,
        text=True,
        timeout=hook.timeout_seconds * 4,
        check=False,
        env={},
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
