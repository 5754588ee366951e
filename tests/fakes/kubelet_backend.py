# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices for tests of the agent core: a backend whose processes and faults the test decides."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.api.checks import NodeCheck
from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.reasons import Reason
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    BackendUnavailable,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    DeviceBackend,
    DeviceReading,
    FaultEvent,
    FaultReading,
    PrepareRefused,
    StepProgress,
)


def a_device(number: int = 0, *, memory_mib: int = 16_384, contexts: int = 8) -> ObservedDevice:
    """A healthy device called ``gpu-<number>``."""
    return ObservedDevice(
        uuid=f"gpu-{number}",
        model="emulated",
        product_name="emulated",
        memory_mib=memory_mib,
        contexts=contexts,
        modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
        health=Health.HEALTHY,
        backend=Backend.EMULATED,
    )


@dataclass(slots=True)
class FakeDevices:
    """Probe, driver and progress source in one; everything settable."""

    devices: list[ObservedDevice] = field(default_factory=lambda: [a_device()])
    unavailable: str = ""
    faults: dict[str, DeviceReading] = field(default_factory=dict)
    told: list[FaultEvent] = field(default_factory=list)
    pids: dict[ContainerKey, tuple[int, ...]] = field(default_factory=dict)
    enforced: dict[ContainerKey, Attachment] = field(default_factory=dict)
    refuse: PrepareRefused | None = None
    prepared: list[ContainerBinding] = field(default_factory=list)
    released: list[ContainerBinding] = field(default_factory=list)
    detached: list[ContainerBinding] = field(default_factory=list)
    stuck: dict[ContainerKey, str] = field(default_factory=dict)
    unshared: dict[str, str] = field(default_factory=dict)
    progress: dict[ContainerKey, StepProgress] = field(default_factory=dict)
    cleaned: int = 0
    started: int = 0
    invalid_total: int = 0
    overhead_mib: int = 0

    @property
    def backend(self) -> DeviceBackend:
        return DeviceBackend(probe=self, driver=self)

    @property
    def version(self) -> str:
        return "fake 1"

    async def start(self) -> None:
        self.started += 1
        if self.unavailable:
            raise BackendUnavailable(Reason.DEVICE_CONFIG_MISSING, self.unavailable)

    async def discover(self) -> tuple[ObservedDevice, ...]:
        if self.unavailable:
            raise BackendUnavailable(Reason.DEVICE_CONFIG_MISSING, self.unavailable)
        return tuple(self.devices)

    async def health(self) -> tuple[DeviceReading, ...]:
        return tuple(
            self.faults.get(device.uuid, DeviceReading(uuid=device.uuid, healthy=True))
            for device in self.devices
        )

    def take_faults(self) -> FaultReading:
        events, self.told = tuple(self.told), []
        return FaultReading(events=events, settled_at=time.monotonic())

    def problems(self) -> Mapping[str, str]:
        return self.unshared

    async def close(self) -> None:
        return None

    def checks(self) -> tuple[NodeCheck, ...]:
        return ()

    def context_overhead_mib(self, gpu: str) -> int:
        return self.overhead_mib

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        if self.refuse is not None:
            raise self.refuse
        self.prepared.append(binding)
        gpus = ",".join(part.gpu for part in binding.slices)
        shares = ",".join(str(part.percent) for part in binding.slices)
        return ContainerEdits(env={"FAKE_GPUS": gpus, "FAKE_SHARES": shares})

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        return {binding.key: self._reading(binding.key) for binding in bindings}

    def _reading(self, key: ContainerKey) -> Attachment:
        pids = self.pids.get(key, ())
        state = AttachState.ENFORCED if pids else AttachState.ABSENT
        return replace(self.enforced.get(key, Attachment(state=state)), pids=pids)

    async def detach(self, binding: ContainerBinding) -> str:
        self.detached.append(binding)
        return self.stuck.get(binding.key, "")

    async def release(self, binding: ContainerBinding) -> None:
        self.released.append(binding)

    async def cleanup_all(self) -> None:
        self.cleaned += 1

    @property
    def refused(self) -> Mapping[ContainerKey, str]:
        return {}

    def sample(
        self,
        bindings: Sequence[ContainerBinding],
        attachments: Mapping[ContainerKey, Attachment],
        now: float,
    ) -> Mapping[ContainerKey, StepProgress]:
        return {
            binding.key: self.progress[binding.key]
            for binding in bindings
            if binding.key in self.progress
        }
