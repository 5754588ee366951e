# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cgroup tree with I/O counters in the kernel's formats, of either version.

The formats are those of ``Documentation/admin-guide/cgroup-v2.rst`` (io.stat, io.pressure, io.max)
and of ``cgroup-v1/blkio-controller.rst``; a test compares them with this machine's own kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ullage_node.devices.cgroup_io import IoCgroup


@dataclass(slots=True)
class IoTree:
    """Files of containers below a root; nothing enforces what stands in them."""

    root: Path
    version: int = 2
    pressure: bool = True

    def __post_init__(self) -> None:
        if self.version == 2:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        else:
            for name in ("blkio", "cpu"):
                (self.root / name).mkdir(parents=True)

    def folder(self, container: IoCgroup, controller: str = "blkio") -> Path:
        """Directory of a container."""
        base = self.root if self.version == 2 else self.root / controller
        return base / "kubepods" / f"pod{container.pod_uid}" / container.name

    def write(
        self,
        container: IoCgroup,
        devices: dict[str, tuple[int, int]],
        *,
        stalled_us: int = 0,
        throttled_us: int = 0,
    ) -> None:
        """State the counters of a container: bytes read and requests of each device."""
        folder = self.folder(container)
        folder.mkdir(parents=True, exist_ok=True)
        psi = (
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        )
        if self.version == 2:
            lines = (
                f"{device} rbytes={count} wbytes=0 rios={requests} wios=0 dbytes=0 dios=0\n"
                for device, (count, requests) in devices.items()
            )
            (folder / "io.stat").write_text("".join(lines))
            (folder / "cpu.stat").write_text(
                f"usage_usec 1\nuser_usec 1\nnr_throttled 1\nthrottled_usec {throttled_us}\n"
            )
            if not (folder / "io.max").exists():
                (folder / "io.max").write_text("")
            if self.pressure:
                (folder / "io.pressure").write_text(psi)
            return
        for name, at in (("service_bytes", 0), ("serviced", 1)):
            lines = (
                f"{device} Read {counts[at]}\n{device} Write 0\n{device} Sync {counts[at]}\n"
                f"{device} Async 0\n{device} Discard 0\n{device} Total {counts[at]}\n"
                for device, counts in devices.items()
            )
            total = sum(counts[at] for counts in devices.values())
            text = "".join(lines) + f"Total {total}\n"
            (folder / f"blkio.throttle.io_{name}_recursive").write_text(text)
        for kind in ("read", "write"):
            limits = folder / f"blkio.throttle.{kind}_bps_device"
            if not limits.exists():
                limits.write_text("")
        cpu = self.folder(container, "cpu")
        cpu.mkdir(parents=True, exist_ok=True)
        (cpu / "cpu.stat").write_text(
            f"nr_periods 1\nnr_throttled 1\nthrottled_time {1000 * throttled_us}\n"
        )
        if self.pressure:
            beside = self.folder(container, "unified")
            beside.mkdir(parents=True, exist_ok=True)
            (beside / "io.pressure").write_text(psi)
