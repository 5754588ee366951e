# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA devices, whole devices only: found and watched through NVML.

Shares need MPS and an enforcement that is verified; until that is there this backend offers the
mode Exclusive alone and refuses every other percent. A missing or broken driver is an answer
(:class:`BackendUnavailable`, an unhealthy reading), never a crash. It decides nothing about
hysteresis and writes nothing on the node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from ullage.api.contract import (
    Backend,
    GPUMode,
    Health,
    ObservedDevice,
    Reason,
    accelerator_key,
)
from ullage_node.devices.cgroups import CgroupUnreadable, controller_paths, pod_uid_of, read_text
from ullage_node.devices.nvidia_cdi import CdiUnusable, ToolkitSpecifications, plain_edits
from ullage_node.devices.nvidia_nvml import NvmlApi, NvmlError, NvmlStuck, NvmlThread
from ullage_node.devices.nvidia_read import (
    DeviceState,
    Fault,
    GpuProcess,
    NvidiaDevice,
    drain_events,
    explain,
    open_events,
    read_inventory,
    read_processes,
    read_state,
)
from ullage_node.devices.protocol import (
    Attachment,
    AttachState,
    BackendPaths,
    BackendUnavailable,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    DeviceReading,
    PrepareRefused,
)

THROTTLED_SECONDS: Final = 60.0
"""How long heat or power may hold a device's clocks down before it counts as a fault."""


class NvidiaDevices:
    """The devices ever found, and the thread that talks to them; probe and driver share it."""

    def __init__(self, api: NvmlApi) -> None:
        self.thread = NvmlThread(api)
        self.known: dict[str, NvidiaDevice] = {}
        self.driver_version = ""


class NvidiaProbe:
    """Says which GPUs are there and how they are."""

    def __init__(
        self, devices: NvidiaDevices, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._devices = devices
        self._clock = clock
        self._open = False
        self._events: object | None = None
        self._watched: frozenset[str] = frozenset()
        self._reported: dict[str, Fault] = {}
        self._slowed_since: dict[str, float] = {}

    async def start(self) -> None:
        """Open the library, again when it was open.

        Raises:
            BackendUnavailable: no library, no driver, or no permission.
        """
        await self.close()
        try:
            self._devices.driver_version = await self._devices.thread.call(_open)
        except (NvmlError, NvmlStuck) as error:
            raise _unavailable(Reason.DRIVER_MISSING, error) from error
        self._open = True

    async def discover(self) -> tuple[ObservedDevice, ...]:
        """Every GPU ever found; one that is gone or not well is ``Unhealthy``.

        Raises:
            BackendUnavailable: the driver does not answer, or never showed a GPU.
        """
        try:
            found = await self._devices.thread.call(read_inventory)
            self._devices.known |= {device.uuid: device for device in found}
            await self._watch(found)
            faults = await self._faults()
        except (NvmlError, NvmlStuck) as error:
            raise _unavailable(Reason.DEVICE_LOST, error) from error
        if not self._devices.known:
            raise BackendUnavailable(
                Reason.DEVICE_LOST,
                "NVML sees no GPU on this node: compare with nvidia-smi -L on the host, and check "
                "that /dev/nvidia* are in the agent's container",
            )
        return tuple(
            _observed(device, healthy=uuid not in faults)
            for uuid, device in sorted(self._devices.known.items())
        )

    async def health(self) -> tuple[DeviceReading, ...]:
        """One reading per GPU ever found; an error event is reported once."""
        try:
            faults = await self._faults()
        except (NvmlError, NvmlStuck) as error:
            text = _said(error)
            soft = Fault(hard=False, reason=Reason.DEVICE_UNHEALTHY, message=text)
            faults = dict.fromkeys(self._devices.known, soft)
        else:
            self._reported.clear()
        return tuple(_reading(uuid, faults.get(uuid)) for uuid in sorted(self._devices.known))

    async def close(self) -> None:
        """Let go of the library; a driver that hangs is left to its thread."""
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

    async def _watch(self, found: Sequence[NvidiaDevice]) -> None:
        """Register for error events whenever the set of GPUs has changed."""
        uuids = frozenset(device.uuid for device in found)
        if uuids == self._watched:
            return
        old = self._events

        def reopen(api: NvmlApi) -> object | None:
            if old is not None:
                self._reported |= drain_events(api, old)
                api.nvmlEventSetFree(old)
            return open_events(api, sorted(uuids))

        self._events = await self._devices.thread.call(reopen)
        self._watched = uuids

    async def _faults(self) -> dict[str, Fault]:
        """What is wrong now, by device. Events stay in it until :meth:`health` has told them.

        Raises:
            NvmlError: the driver itself does not answer.
            NvmlStuck: it hangs.
        """
        uuids, events = sorted(self._devices.known), self._events

        def look(api: NvmlApi) -> tuple[dict[str, DeviceState], dict[str, Fault]]:
            seen = {} if events is None else drain_events(api, events)
            return {uuid: read_state(api, uuid) for uuid in uuids}, seen

        states, seen = await self._devices.thread.call(look)
        self._reported |= seen
        faults = {uuid: fault for uuid, s in states.items() if (fault := self._judge(uuid, s))}
        return faults | self._reported

    def _judge(self, uuid: str, state: DeviceState) -> Fault | None:
        """A device's fault: its own, or clocks held down for too long."""
        if not state.slowed:
            self._slowed_since.pop(uuid, None)
            return state.fault
        since = self._slowed_since.setdefault(uuid, self._clock())
        seconds = self._clock() - since
        if state.fault is not None or seconds < THROTTLED_SECONDS:
            return state.fault
        text = f"heat or power has held its clocks down for {seconds:.0f} s"
        return Fault(hard=False, reason=Reason.DEVICE_UNHEALTHY, message=text)


class NvidiaDriver:
    """Hands whole GPUs to containers and sees who uses them."""

    def __init__(self, devices: NvidiaDevices, paths: BackendPaths) -> None:
        self._devices = devices
        self._proc_root = paths.proc_root
        self._toolkit = ToolkitSpecifications(paths.cdi_dirs)
        self._last_seen: dict[ContainerKey, tuple[int, ...]] = {}

    @property
    def version(self) -> str:
        """Version of the kernel driver, as NVML says it."""
        return self._devices.driver_version

    def context_overhead_mib(self, gpu: str) -> int:
        """Nothing is set aside: a whole device has one tenant, who sees all of its memory."""
        return 0

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        """Device files and libraries for one start of the container.

        Raises:
            PrepareRefused: an unknown device, a share of one, or a broken toolkit specification.
        """
        for part in binding.slices:
            if part.percent != 100:
                raise PrepareRefused(
                    Reason.MODE_UNSUPPORTED,
                    f"{part.percent} % of {part.gpu}: shares need MPS, which this agent does not "
                    "drive yet; ask for mode Exclusive",
                )
            if part.gpu not in self._devices.known:
                raise PrepareRefused(Reason.DEVICE_LOST, f"{part.gpu} was never seen on this node")
        devices = [self._devices.known[part.gpu] for part in binding.slices]
        try:
            return self._toolkit.edits(devices) or plain_edits(devices)
        except CdiUnusable as error:
            raise PrepareRefused(Reason.CDI_UNAVAILABLE, str(error)) from error

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        """Who uses which GPU, by NVML's list of processes and their cgroups."""
        uuids = sorted(self._devices.known)
        try:
            usage = await self._devices.thread.call(lambda api: read_processes(api, uuids))
            owners = {pid: self._pod_of(pid) for pid in {p.pid for p in usage.processes}}
        except (NvmlError, NvmlStuck, CgroupUnreadable) as error:
            unread = Attachment(state=AttachState.UNVERIFIED, message=_said(error))
            found = {binding.key: unread for binding in bindings}
            return {key: self._remember(key, attachment) for key, attachment in found.items()}
        never_seen = {
            part.gpu: f"{part.gpu} was never seen on this node"
            for binding in bindings
            for part in binding.slices
            if part.gpu not in self._devices.known
        }
        blind = never_seen | dict(usage.unread)
        found = {
            binding.key: _attachment(
                binding, bindings, processes=usage.processes, owners=owners, blind=blind
            )
            for binding in bindings
        }
        return {key: self._remember(key, attachment) for key, attachment in found.items()}

    async def release(self, binding: ContainerBinding) -> None:
        """Forget who was seen; nothing else of a container is kept."""
        self._last_seen.pop(binding.key, None)

    async def cleanup_all(self) -> None:
        """Nothing was put on the node."""

    def _remember(self, key: ContainerKey, now: Attachment) -> Attachment:
        """Keep who was seen. What cannot be read now is not gone: who still lives is added."""
        if now.state is AttachState.UNVERIFIED:
            before = self._last_seen.get(key, ())
            alive = {pid for pid in before if self._may_live(pid, key.pod_uid)}
            now = replace(now, pids=tuple(sorted(alive | set(now.pids))))
        self._last_seen[key] = now.pids
        return now

    def _may_live(self, pid: int, pod_uid: str) -> bool:
        """Whether a process of a pod cannot be ruled out to be still there."""
        try:
            return self._pod_of(pid) == pod_uid
        except CgroupUnreadable:
            return True

    def _pod_of(self, pid: int) -> str | None:
        """UID of the pod that a process of the host belongs to."""
        paths = controller_paths(read_text(self._proc_root / str(pid) / "cgroup") or "")
        return next((uid for path in paths.values() if (uid := pod_uid_of(path))), None)


def _attachment(
    binding: ContainerBinding,
    bindings: Sequence[ContainerBinding],
    *,
    processes: Sequence[GpuProcess],
    owners: Mapping[int, str | None],
    blind: Mapping[str, str],
) -> Attachment:
    """What one container does on the GPUs: containers of one pod are told apart by their GPUs."""
    pod_uid = binding.key.pod_uid
    own = {part.gpu for part in binding.slices}
    granted = {p.gpu for other in bindings if other.key.pod_uid == pod_uid for p in other.slices}
    theirs = [process for process in processes if owners[process.pid] == pod_uid]
    used = [process for process in theirs if process.gpu in own or process.gpu not in granted]
    state, reason, message = _judge_use({process.gpu for process in used}, own, blind)
    return Attachment(
        state=state,
        pids=tuple(sorted({process.pid for process in used})),
        memory_used_mib=sum(process.memory_mib for process in used),
        reason=reason,
        message=message,
    )


def _judge_use(
    used: Set[str], own: Set[str], blind: Mapping[str, str]
) -> tuple[AttachState, Reason | None, str]:
    """What the use of these GPUs means for a container that was given ``own``."""
    if astray := sorted(used - own):
        text = (
            f"uses {', '.join(astray)}, which the pod was not given; is it privileged, or does it "
            "set NVIDIA_VISIBLE_DEVICES?"
        )
        return AttachState.UNENFORCED, Reason.UNENFORCED, text
    if unseen := sorted(own & blind.keys()):
        return AttachState.UNVERIFIED, Reason.DEVICE_LOST, blind[unseen[0]]
    return (AttachState.ENFORCED if used else AttachState.ABSENT), None, ""


def _observed(device: NvidiaDevice, *, healthy: bool) -> ObservedDevice:
    return ObservedDevice(
        uuid=device.uuid,
        model=accelerator_key(device.product_name),
        product_name=device.product_name,
        memory_mib=device.memory_mib,
        contexts=1,
        # A device in MIG mode is no whole device: it is shown, and offers nothing.
        modes=() if device.mig else (GPUMode.EXCLUSIVE,),
        health=Health.HEALTHY if healthy else Health.UNHEALTHY,
        backend=Backend.EXCLUSIVE,
    )


def _reading(uuid: str, fault: Fault | None) -> DeviceReading:
    if fault is None:
        return DeviceReading(uuid=uuid, healthy=True)
    return DeviceReading(
        uuid=uuid, healthy=False, hard=fault.hard, reason=fault.reason, message=fault.message
    )


def _open(api: NvmlApi) -> str:
    api.nvmlInit()
    return api.nvmlSystemGetDriverVersion()


def _close(api: NvmlApi, events: object | None) -> None:
    if events is not None:
        api.nvmlEventSetFree(events)
    api.nvmlShutdown()


def _said(error: Exception) -> str:
    return explain(error) if isinstance(error, NvmlError) else str(error)


def _unavailable(reason: Reason, error: Exception) -> BackendUnavailable:
    return BackendUnavailable(reason, _said(error))
