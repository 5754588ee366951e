# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine that a run happens on: the real one, or the fakes. One seam for both.

The dry rig has the fake of MPS as real processes, an NVML in memory, and workers that sleep. It
names itself in every output; it must never pass for a measurement.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from bench.gpu import planted
from bench.gpu.device import Device, Gauge
from bench.gpu.mps import Mps, Transcript
from bench.gpu.plan import Window
from ullage_node.devices.nvidia.read import read_processes
from ullage_node.mps.control import DaemonDirectories
from ullage_node.mps.programs import ProgramCall

_ROOT = Path(__file__).resolve().parents[2]
_FAKE_MPS = _ROOT / "tests" / "fakes" / "mps" / "bin"
_PROBE = _ROOT / "tests" / "contract" / "mps" / "cuda_probe.py"
DRY_SCALE = 0.02
"""Real seconds per second of a dry window."""
MPS_LIMIT = 48
"""Contexts of one server (drivers up to CUDA 13.0)."""


@dataclass(slots=True, kw_only=True)
class Rig:
    """Everything outside the runner that it touches."""

    device: Device
    mps: Mps
    client: tuple[str, ...]
    """A program that makes one CUDA context, says so, and holds it."""
    sm_count: int
    staged: tuple[str, ...] = ()
    """The same, waiting for a line between connection and context; empty = there is none."""
    scale: float = 0.0
    """0 = a real GPU; else real seconds per second of sleep."""
    api: Any = None
    programs: Path | None = None
    """Folder of stand-in programs; ``None`` = the machine's own."""
    contained: Any = None
    """A fake's library as a container without the host's PIDs gets it."""

    @property
    def dry(self) -> bool:
        """Whether no GPU is used."""
        return self.scale > 0

    def before(self, window: Window) -> None:
        """A fake device shows what these members make it show; a real one does it itself."""
        if self.dry:
            members = [(one.tenant, one.percent) for one in window.members]
            shown = planted.counters(members)
            self.api.gpus[0].gpm = {
                pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: shown["gpm_gfx"],
                pynvml.NVML_GPM_METRIC_SM_UTIL: shown["gpm_sm"],
                pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: shown["gpm_tensor"],
                pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: shown["gpm_dram"],
            }

    def shows(self, pid: int, *, client: bool) -> None:
        """A fake device shows a process, of MPS or without; a real one does it itself."""
        if self.dry:
            gpu = self.api.gpus[0]
            (gpu.mps_processes if client else gpu.processes)[pid] = 64

    def forgets(self, pid: int) -> None:
        """The process has ended."""
        if self.dry:
            gpu = self.api.gpus[0]
            gpu.processes.pop(pid, None)
            gpu.mps_processes.pop(pid, None)

    def seen_from_a_container(self) -> tuple[int, ...]:
        """Processes that a fake driver names to a container without the host's PIDs."""
        uuids = [gpu.uuid for gpu in self.api.gpus]
        return tuple(one.pid for one in read_processes(self.contained, uuids).processes)

    def client_of(self, uid: int) -> tuple[str, ...] | None:
        """The client program under another uid; ``None`` = not possible here."""
        if self.dry:
            return self.client  # the fake's takes the uid from a variable
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            return None
        return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *self.client)

    def launched(self, place: DaemonDirectories, call: ProgramCall) -> ProgramCall:
        """A daemon's call; the fake takes its shared memory from a variable."""
        env = {**call.env, **self.shared_memory(place.shm)}
        return ProgramCall(words=call.words, stdin=call.stdin, env=env)

    def shared_memory(self, shm: Path) -> dict[str, str]:
        """Variables that name the fake's shared memory; a real program needs none."""
        return {"FAKE_MPS_SHM_DIRECTORY": str(shm)} if self.dry else {}

    def seconds(self, planned_s: float) -> float:
        """Real seconds of a planned time."""
        return planned_s * (self.scale or 1.0)

    def close(self) -> None:
        """End MPS and let the library go."""
        self.mps.close()
        self.device.close()


def real_rig(transcript: Transcript) -> Rig:
    """The machine's own first GPU.

    Raises:
        NoDevice: there is none.
    """
    device = Device()
    cores = pynvml.nvmlDeviceGetNumGpuCores(device.handle)
    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(device.handle))
    return Rig(
        device=device,
        mps=Mps(gpu_uuid=device.facts.gpu_uuid, transcript=transcript),
        client=(sys.executable, str(_PROBE)),
        staged=(sys.executable, "-m", "bench.gpu.staged_client"),
        sm_count=cores // (64 if capability in ((7, 0), (7, 5), (8, 0)) else 128),
    )


def dry_rig(transcript: Transcript, *, scale: float = DRY_SCALE, gpm: bool = True) -> Rig:
    """The fakes: no GPU is used, and every output says so."""
    sys.path[:0] = [one for one in (str(_ROOT / "tests"),) if one not in sys.path]
    fake_nvml = importlib.import_module("fakes.nvml")
    fake_mps = importlib.import_module("fakes.mps")
    api = _nvml(fake_nvml, fake_mps.DEFAULT_UUID, gpm=gpm)
    device = Device(api, fake=True)
    python: Sequence[str] = (sys.executable, "-IS")
    mps = Mps(
        gpu_uuid=fake_mps.DEFAULT_UUID,
        transcript=transcript,
        command=(*python, str(_FAKE_MPS / "nvidia-cuda-mps-control")),
    )
    client = (*python, str(_FAKE_MPS / "fake_cuda_client"))
    return Rig(
        device=device, mps=mps, client=client, sm_count=planted.SM_COUNT, scale=scale, api=api,
        programs=_FAKE_MPS, contained=api.seen_from(fake_nvml.PidNamespace()),
    )  # fmt: skip


def _nvml(fakes: Any, uuid: str, *, gpm: bool) -> Any:
    class DryNvml(fakes.FakeNvml):  # type: ignore[misc]
        """With the readings that only a measurement asks for."""

        def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int:
            return 1755 if type == pynvml.NVML_CLOCK_SM else 2619

        def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
            return 45

        def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    gpu = fakes.FakeGpu(
        uuid=uuid, minor=0, name="fake H100 (no GPU was used)", power_milliwatts=420_000,
        gpm={} if gpm else None,
    )  # fmt: skip
    return DryNvml(gpu, driver_version="580.159.04 (fake)")


__all__ = ["Gauge", "Rig", "dry_rig", "real_rig"]
