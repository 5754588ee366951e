# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA devices, GPUs and MIG devices: found and watched through NVML.

A missing or broken driver is a result (:class:`BackendUnavailable`, an unhealthy reading), never a
crash. It decides nothing about hysteresis and writes nothing on the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ullage.api.devices import Health, ObservedDevice
from ullage.api.reasons import Reason
from ullage.api.slices import accelerator_key
from ullage.api.xids import MAX_XID
from ullage_node.devices.nvidia.choice import Driver, modes_of
from ullage_node.devices.nvidia.host_processes import ProcessesUnseen
from ullage_node.devices.nvidia.known import NvidiaDevices
from ullage_node.devices.nvidia.mig import MigUnseen
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlError, NvmlStuck
from ullage_node.devices.nvidia.read import (
    CriticalErrors,
    NvidiaDevice,
    NvidiaFault,
    NvidiaState,
    drain_events,
    failure_text,
    gpu_of,
    open_events,
    read_inventory,
    read_state,
)
from ullage_node.model.devices import BackendUnavailable, DeviceReading, FaultEvent, FaultReading
from ullage_node.times import MIG_READER_AWAY_S, THROTTLED_S

MODEL_MAX: Final = 63
"""Most characters of an accelerator's key, as in the CRDs."""
MIG_MARK: Final = "-mig-"
TOLD_MOST: Final = 256
"""Most queued faults, four full readings; the oldest are dropped first."""


class NvidiaProbe:
    """Reports the GPUs and their health."""

    def __init__(
        self, devices: NvidiaDevices, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._devices = devices
        self._clock = clock
        self._open = False
        self._events: object | None = None
        self._watched: frozenset[str] = frozenset()
        self._reported: dict[str, NvidiaFault] = {}
        self._told: deque[FaultEvent] = deque(maxlen=TOLD_MOST)
        self._settled_at = -math.inf
        self._slowed_since: dict[str, float] = {}
        self._part_states: Mapping[str, NvidiaState] = {}
        self._parts_read_at = -math.inf

    async def start(self) -> None:
        """Open the library, or reopen it.

        Raises:
            BackendUnavailable: no library, no driver, or no permission.
        """
        await self.close()
        try:
            self._devices.driver = await self._devices.thread.call(_open)
        except (NvmlError, NvmlStuck) as error:
            raise _unavailable(Reason.DRIVER_MISSING, error) from error
        self._open = True

    async def discover(self) -> tuple[ObservedDevice, ...]:
        """Every device ever found; a missing or faulty one is ``Unhealthy``.

        A GPU that answers lists its MIG devices: removed ones are forgotten, as is the GPU itself
        while they replace it.

        Raises:
            BackendUnavailable: the driver does not answer or never listed a GPU, or the MIG devices
                of a GPU were never read.
        """
        try:
            itself = self._devices.mig is None
            seen = await self._devices.thread.call(lambda api: read_inventory(api, parts=itself))
            devices = await self._devices.with_parts(seen)
            self._know(devices)
            await self._watch(devices)
            faults = await self._faults()
        except (NvmlError, NvmlStuck) as error:
            raise _unavailable(Reason.DEVICE_LOST, error) from error
        except MigUnseen as error:
            raise BackendUnavailable(Reason.DEVICE_UNHEALTHY, str(error)) from error
        if not self._devices.known:
            raise BackendUnavailable(
                Reason.DEVICE_LOST,
                "NVML sees no GPU on this node: compare with nvidia-smi -L on the host, and check "
                "that /dev/nvidia* are in the agent's container",
            )
        await self._ask_shares()
        await self._devices.ask_checkpoint()
        return tuple(
            self._observed(device, healthy=uuid not in faults)
            for uuid, device in sorted(self._devices.known.items())
        )

    def _know(self, devices: Sequence[NvidiaDevice]) -> None:
        answered = {device.gpu for device in devices}
        kept = {
            uuid: device
            for uuid, device in self._devices.known.items()
            if device.gpu not in answered
        }
        self._devices.known = kept | {device.uuid: device for device in devices}

    async def health(self) -> tuple[DeviceReading, ...]:
        """One reading per GPU ever found; an error event is reported once."""
        try:
            faults = await self._faults()
        except (NvmlError, NvmlStuck) as error:
            text = failure_text(error)
            soft = NvidiaFault(hard=False, reason=Reason.DEVICE_UNHEALTHY, message=text)
            faults = dict.fromkeys(self._devices.known, soft)
        else:
            self._reported.clear()
        await asyncio.gather(self._ask_shares(), self._look_at_processes())
        # From the second round on: by then the node's containers were observed once, so no server
        # is started on a device that one of them has whole.
        self._devices.shares.ordering = True
        return tuple(_reading(uuid, faults.get(uuid)) for uuid in sorted(self._devices.known))

    def problems(self) -> Mapping[str, str]:
        """Obstacles to sharing by MPS, by device."""
        problems = {uuid: self._devices.problem(uuid) for uuid in sorted(self._devices.known)}
        return {uuid: problem for uuid, problem in problems.items() if problem}

    async def close(self) -> None:
        """Close the library; a hanging driver is left to its thread."""
        events, self._events = self._events, None
        self._watched = frozenset()
        if not self._open:
            return
        self._open = False
        try:
            await self._devices.thread.call(lambda api: _close(api, events))
        except (NvmlError, NvmlStuck):
            return  # nothing is held on the node, and the process ends or opens again
        finally:
            self._devices.thread.stop()

    async def _ask_shares(self) -> None:
        """Query the state of the MPS servers; also request them while no container runs."""
        devices = self._devices
        await devices.shares.refresh(tuple(devices.known.values()), devices.driver)

    async def _look_at_processes(self) -> None:
        """Check if processes are seen, also while none of our containers runs."""
        with contextlib.suppress(ProcessesUnseen):  # the error is recorded there
            await self._devices.look()

    def _observed(self, device: NvidiaDevice, *, healthy: bool) -> ObservedDevice:
        choice = self._devices.choice(device.uuid)
        return ObservedDevice(
            uuid=device.uuid,
            model=_model(device.product_name),
            product_name=device.product_name,
            memory_mib=device.memory_mib,
            contexts=choice.contexts,
            modes=modes_of(device, choice),
            health=Health.HEALTHY if healthy else Health.UNHEALTHY,
            backend=choice.backend,
            mps=self._devices.mps_status(device.uuid),
            index=device.index,
            suspends=self._devices.suspends(device.uuid),
            alone=bool(device.parent),
        )

    async def _watch(self, devices: Sequence[NvidiaDevice]) -> None:
        """Register for error events when the set of GPUs has changed; GPUs report their parts'."""
        uuids = frozenset(device.gpu for device in devices)
        if uuids == self._watched:
            return
        old = self._events

        def reopen(api: NvmlApi) -> tuple[object | None, CriticalErrors]:
            left = CriticalErrors() if old is None else drain_events(api, old)
            if old is not None:
                api.nvmlEventSetFree(old)
            return open_events(api, sorted(uuids)), left

        begun = self._clock()
        self._events, left = await self._devices.thread.call(reopen)
        self._watched = uuids
        self._note(left, begun)

    def _note(self, read: CriticalErrors, begun: float) -> None:
        """Queue the faults that the driver reported, in a reading begun then."""
        for error in read.errors:
            if (fault := error.fault) is not None:
                self._reported[error.name] = fault
            if error.xid is not None:
                self._told.append(_event(error.name, error.xid, self._devices.known))
        if read.complete:
            self._settled_at = begun

    def take_faults(self) -> FaultReading:
        """The faults that the driver reported, each once."""
        events = tuple(self._told)
        self._told.clear()
        return FaultReading(events=events, settled_at=self._settled_at)

    async def _faults(self) -> dict[str, NvidiaFault]:
        """Present faults by device. Events stay in it until :meth:`health` has reported them.

        Raises:
            NvmlError: the driver itself does not answer.
            NvmlStuck: it hangs.
        """
        known, events = dict(self._devices.known), self._events
        names = {name for device in known.values() for name in (device.uuid, device.gpu)}
        parts = {uuid for uuid, device in known.items() if device.parent and self._devices.mig}
        uuids = sorted(names - parts)

        def look(api: NvmlApi) -> tuple[dict[str, NvidiaState], CriticalErrors]:
            seen = CriticalErrors() if events is None else drain_events(api, events)
            return {uuid: read_state(api, uuid) for uuid in uuids}, seen

        begun = self._clock()
        (states, seen), part_states = await asyncio.gather(
            self._devices.thread.call(look), self._part_states_of(sorted(parts))
        )
        self._note(seen, begun)
        states |= part_states
        faults = {uuid: fault for uuid, s in states.items() if (fault := self._judge(uuid, s))}
        faults |= self._reported
        return {
            uuid: next(faults[name] for name in device.faulty_as if name in faults)
            for uuid, device in known.items()
            if faults.keys() & set(device.faulty_as)
        }

    async def _part_states_of(self, uuids: Sequence[str]) -> Mapping[str, NvidiaState]:
        """States of MIG devices; the last ones while their reader is briefly unavailable."""
        if self._devices.mig is None or not uuids:
            return {}
        try:
            self._part_states = await self._devices.mig.states(uuids)
            self._parts_read_at = self._clock()
        except MigUnseen as error:
            if self._clock() - self._parts_read_at > MIG_READER_AWAY_S:
                soft = NvidiaFault(hard=False, reason=Reason.DEVICE_UNHEALTHY, message=str(error))
                return dict.fromkeys(uuids, NvidiaState(fault=soft))
        return {uuid: self._part_states[uuid] for uuid in uuids if uuid in self._part_states}

    def _judge(self, uuid: str, state: NvidiaState) -> NvidiaFault | None:
        """A device's fault: its own, or clocks held down for too long."""
        if not state.slowed:
            self._slowed_since.pop(uuid, None)
            return state.fault
        since = self._slowed_since.setdefault(uuid, self._clock())
        seconds = self._clock() - since
        if state.fault is not None or seconds < THROTTLED_S:
            return state.fault
        text = f"heat or power has held its clocks down for {seconds:.0f} s"
        return NvidiaFault(hard=False, reason=Reason.DEVICE_UNHEALTHY, message=text)


def _event(name: str, xid: int, known: Mapping[str, NvidiaDevice]) -> FaultEvent:
    """The fault of a GPU or a part of it, with the devices affected."""
    gpus = tuple(sorted(uuid for uuid, device in known.items() if name in device.faulty_as))
    gpu = gpus[0] if len(gpus) == 1 else gpu_of(name)
    return FaultEvent(gpu=gpu, gpus=gpus, xid=min(max(xid, 0), MAX_XID))


def _model(product_name: str) -> str:
    """The accelerator's key; a long one is truncated in the product, never in the MIG profile."""
    key = accelerator_key(product_name)
    _, mark, profile = key.rpartition(MIG_MARK)
    tail = mark + profile if mark else ""
    return key if len(key) <= MODEL_MAX else key[: MODEL_MAX - len(tail)] + tail


def _reading(uuid: str, fault: NvidiaFault | None) -> DeviceReading:
    if fault is None:
        return DeviceReading(uuid=uuid, healthy=True)
    return DeviceReading(
        uuid=uuid, healthy=False, hard=fault.hard, reason=fault.reason, message=fault.message
    )


def _open(api: NvmlApi) -> Driver:
    api.nvmlInit()
    return Driver(
        version=api.nvmlSystemGetDriverVersion(), cuda=api.nvmlSystemGetCudaDriverVersion()
    )


def _close(api: NvmlApi, events: object | None) -> None:
    if events is not None:
        api.nvmlEventSetFree(events)
    api.nvmlShutdown()


def _unavailable(reason: Reason, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(reason, failure_text(error))
