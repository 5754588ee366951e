# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Emulated devices: a device is one CPU core or a named part of one, a share a CPU quota on it.

A real backend, not a mock: containers are limited and slices of one core contend. It is used only
by explicit configuration, and every report carries its name, so that it is not mistaken for a GPU.
The hook on the host writes the cgroups; this module only checks every second that the hook's limits
are still in place.

The memory of an emulated device is the machine's own, and is only counted: suspending and resuming
subtract and add it. Each time all processes of the container stop for as long as a GPU would take
to copy that much, so that the cost is real. Afterwards they continue, as the CPU threads of a GPU
program do: without a step they do nothing on the device, and one of them must be able to request
the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.checks import NodeCheck
from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.reasons import Reason
from ullage.api.slices import EMULATED_MODEL, SLOT_PATTERN, Proof
from ullage_node.devices.cgroups import (
    PERIOD_US,
    QUOTA_MIN_US,
    CgroupUnreadable,
    CpuLimits,
    detect_version,
    format_cores,
    is_populated,
    machine_cores,
    parse_cores,
    pod_uid_of,
    read_cpu_time_ns,
    read_limits,
    read_memory_mib,
    read_pids,
)
from ullage_node.devices.emulated_config import (
    CONFIG_FILE,
    ConfigInvalid,
    EmulatedDevice,
    check_cores,
    load_config,
)
from ullage_node.devices.emulated_hook import HookScript, SlotRecord
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    BackendPaths,
    BackendUnavailable,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    DeviceReading,
    FaultReading,
    PrepareRefused,
)
from ullage_node.model.switching import Program, StandStill, SwitchFailed
from ullage_node.times import EMULATED_MOVE_MOST_S

MIB_PER_SECOND: Final = 12 * 1024
"""Copy rate of PCIe 4.0 with 16 lanes, less protocol overhead, to a power of two (derived)."""


class EmulatedSwitch:
    """Stops a container while its memory moves.

    Args:
        stand_still: Stops all its processes for a given time.
    """

    def __init__(self, stand_still: StandStill) -> None:
        self._stand_still = stand_still

    async def suspend(self, program: Program) -> None:
        """See :class:`~ullage_node.model.switching.ProcessSwitch`."""
        await self._move(program)

    async def resume(self, program: Program) -> None:
        """See :class:`~ullage_node.model.switching.ProcessSwitch`."""
        await self._move(program)

    async def _move(self, program: Program) -> None:
        seconds = min(program.memory_mib / MIB_PER_SECOND, EMULATED_MOVE_MOST_S)
        pids = tuple(process.pid for process in program.processes)
        problem = await self._stand_still(program.key, pids, seconds)
        if problem:
            raise SwitchFailed(f"it could not be stopped: {problem}")


_US_PER_SQUARE_PERCENT: Final = PERIOD_US // 10_000
"""Quota of 1 % of a device of 1 % of a core, microseconds per period."""


def least_percent(core_percent: int) -> int:
    """Smallest share of a device whose quota the kernel takes, percent (derived).

    Args:
        core_percent: The part of a core that the device is made of.
    """
    return -(-QUOTA_MIN_US // (core_percent * _US_PER_SQUARE_PERCENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedShare:
    """The sum of a container's slices: a quota per period on these cores.

    ``core_percent`` is the sum of the whole devices' parts of a core.
    """

    quota_us: int
    cores: frozenset[int]
    core_percent: int


class EmulatedDevices:
    """The devices that the node offers; the probe finds them, the driver looks them up."""

    def __init__(self, node_name: str, paths: BackendPaths) -> None:
        self._node_name = node_name
        self._paths = paths
        self.known: dict[str, EmulatedDevice] = {}

    def load(self) -> dict[str, EmulatedDevice]:
        """Reads the file's devices, by uuid; new ones are remembered.

        Raises:
            BackendUnavailable: the file is missing or wrong.
        """
        path = self._paths.state_dir / CONFIG_FILE
        devices = load_config(path)
        try:
            check_cores(devices, machine_cores(self._paths.cgroup_root))
        except (ConfigInvalid, CgroupUnreadable) as error:
            raise BackendUnavailable(Reason.DEVICE_CONFIG_MISSING, f"{path}: {error}") from error
        named = {
            f"{EMULATED_MODEL}-{self._node_name}-{number}": device
            for number, device in enumerate(devices)
        }
        self.known = named | self.known
        return named

    def share_of(self, binding: ContainerBinding) -> EmulatedShare:
        """Sums a container's slices.

        Raises:
            KeyError: a slice lies on a device that was never seen; the argument is its uuid.
        """
        parts = [(part.percent, self.known[part.gpu]) for part in binding.slices]
        return EmulatedShare(
            quota_us=sum(percent * d.percent * _US_PER_SQUARE_PERCENT for percent, d in parts),
            cores=frozenset(d.core for _, d in parts),
            core_percent=sum(d.percent for _, d in parts),
        )


class EmulatedProbe:
    """Reports which cores are devices and their health."""

    def __init__(
        self,
        devices: EmulatedDevices,
        hook: HookScript,
        *,
        contexts: int,
        suspends: bool = False,
    ) -> None:
        self._devices = devices
        self._hook = hook
        self._contexts = contexts
        self._suspends = suspends

    async def start(self) -> None:
        """Read the file and put the hook in its place.

        Raises:
            BackendUnavailable: the file is missing or wrong, or the hook cannot be written.
        """
        self._devices.load()
        try:
            self._hook.install()
        except OSError as error:
            raise BackendUnavailable(
                Reason.DEVICE_CONFIG_MISSING,
                f"the hook {self._hook.path} cannot be written: {error.strerror}; "
                "mount the state directory writable",
            ) from error

    async def discover(self) -> tuple[ObservedDevice, ...]:
        """The devices of the file, each as healthy as :meth:`health` says.

        Raises:
            BackendUnavailable: the file is missing or wrong.
        """
        self._devices.load()
        healthy = {reading.uuid: reading.healthy for reading in await self.health()}
        return tuple(
            ObservedDevice(
                uuid=uuid,
                model=device.model,
                product_name=f"emulated: {device.percent} % of CPU core {device.core}",
                memory_mib=device.memory_mib,
                contexts=self._contexts,
                modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
                health=Health.HEALTHY if healthy[uuid] else Health.UNHEALTHY,
                backend=Backend.EMULATED,
                index=int(uuid.rpartition("-")[2]),
                suspends=self._suspends,
                least_percent=least_percent(device.percent),
            )
            for uuid, device in sorted(self._devices.known.items())
        )

    async def health(self) -> tuple[DeviceReading, ...]:
        """Devices are healthy while the file still lists every device it ever listed, unchanged."""
        try:
            now: Mapping[str, EmulatedDevice] = self._devices.load()
        except BackendUnavailable as error:
            return tuple(
                DeviceReading(uuid=uuid, healthy=False, reason=error.reason, message=error.message)
                for uuid in sorted(self._devices.known)
            )
        return tuple(
            _compare(uuid, device, now.get(uuid))
            for uuid, device in sorted(self._devices.known.items())
        )

    def take_faults(self) -> FaultReading:
        """None: an emulated device has no driver that reports faults."""
        return FaultReading()

    def problems(self) -> Mapping[str, str]:
        """None: every device is shared in the best way."""
        return {}

    async def close(self) -> None:
        """Do nothing: nothing is held open."""


class EmulatedDriver:
    """Turns shares into hook calls and checks that the limits are in force."""

    def __init__(self, devices: EmulatedDevices, hook: HookScript, paths: BackendPaths) -> None:
        self._devices = devices
        self._hook = hook
        self._root = paths.cgroup_root

    @property
    def version(self) -> str:
        """The hierarchy that enforces: ``cgroup v1`` or ``cgroup v2``."""
        return f"cgroup v{detect_version(self._root).value}"

    def checks(self) -> tuple[NodeCheck, ...]:
        """None beyond the check of the devices."""
        return ()

    def context_overhead_mib(self, gpu: str) -> int:
        """Zero: a container costs an emulated device only what it allocates."""
        return 0

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        """The hook call for one start of the container; the last start's record is removed.

        Raises:
            PrepareRefused: an unknown device, a share too small for the kernel, or a hook that
                cannot be written.
        """
        try:
            share = self._devices.share_of(binding)
        except KeyError as error:
            raise PrepareRefused(
                Reason.DEVICE_LOST, f"{error.args[0]} is not in {CONFIG_FILE} of this node"
            ) from error
        if share.quota_us < QUOTA_MIN_US:
            raise PrepareRefused(
                Reason.CAPACITY_EXCEEDED,
                f"a share of {share.quota_us} us per {PERIOD_US} us is below the kernel's least, "
                f"{QUOTA_MIN_US} us; ask for a larger percent",
            )
        slot = binding.slots[0]
        try:
            self._hook.install()
            call = self._hook.call(slot, share.quota_us, share.cores)
            await self.release(binding)
            return ContainerEdits(hooks=(call,))
        except (OSError, ValueError) as error:
            raise PrepareRefused(Reason.UNENFORCED, f"no hook for {slot}: {error}") from error

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        """Read limits, processes, CPU time and memory of each container."""
        return {binding.key: self._observe_one(binding) for binding in bindings}

    async def detach(self, binding: ContainerBinding) -> str:
        """Do nothing: killing a process disturbs no other on its core."""
        return ""

    async def release(self, binding: ContainerBinding) -> None:
        """Remove the records that the hook left for the container's slots."""
        for slot in filter(SLOT_PATTERN.fullmatch, binding.slots):
            self._hook.forget(slot)

    async def cleanup_all(self) -> None:
        """Take the hook and every record off the node; the administrator's file stays."""
        self._hook.remove()

    def _observe_one(self, binding: ContainerBinding) -> Attachment:
        seen: tuple[int, ...] = ()
        try:
            record = self._hook.read_record(binding.slots[0])
            if record is None or not self._is_theirs(record, binding):
                return Attachment(state=AttachState.ABSENT)
            seen = (record.pid,)
            if not is_populated(self._root, record.cgroup):
                return Attachment(state=AttachState.ABSENT)
            seen = read_pids(self._root, record.cgroup) or seen
            return self._read(record, self._devices.share_of(binding), seen)
        except CgroupUnreadable as error:
            return Attachment(state=AttachState.UNVERIFIED, pids=seen, message=str(error))
        except KeyError as error:
            text = f"{error.args[0]} is not in {CONFIG_FILE} of this node"
            return Attachment(
                state=AttachState.UNVERIFIED, pids=seen, reason=Reason.DEVICE_LOST, message=text
            )

    def _is_theirs(self, record: SlotRecord, binding: ContainerBinding) -> bool:
        """True if a record is this pod's: the slot's last owner may have left one behind."""
        return pod_uid_of(record.cgroup.cpu_path) in (None, binding.key.pod_uid)

    def _read(self, record: SlotRecord, share: EmulatedShare, pids: tuple[int, ...]) -> Attachment:
        limits = read_limits(self._root, record.cgroup)
        if limits is None:
            return Attachment(state=AttachState.ABSENT)
        cpu_ns = read_cpu_time_ns(self._root, record.cgroup)
        state, reason, message = judge(limits, share)
        return Attachment(
            state=state,
            pids=pids,
            memory_used_mib=read_memory_mib(self._root, record.cgroup),
            proof=Proof.CGROUP if state is AttachState.ENFORCED else None,
            cpu_time_ns=cpu_ns,
            solo_time_ns=cpu_ns * 100 // share.core_percent,
            reason=reason,
            message=message,
        )


def judge(limits: CpuLimits, share: EmulatedShare) -> tuple[AttachState, Reason | None, str]:
    """Compare the limits in force with those decided.

    A lower limit than decided is the pod's own: enforced, with a warning.
    """
    quota, wanted = limits.quota_us, share.quota_us
    if quota is None or quota > wanted:
        quota_text = "no CPU quota" if quota is None else f"a CPU quota of {quota} us"
        text = f"{quota_text} per {PERIOD_US} us stands where {wanted} us was decided"
        return AttachState.UNENFORCED, Reason.UNENFORCED, text
    if parse_cores(limits.cores) != share.cores:
        text = f"runs on cores '{limits.cores}' where '{format_cores(share.cores)}' was decided"
        return AttachState.UNENFORCED, Reason.UNENFORCED, text
    if limits.effective_us is not None and limits.effective_us < wanted:
        text = (
            f"a CPU limit of {limits.effective_us // 100}m stands below the slice's "
            f"{wanted // 100}m; raise resources.limits.cpu to {wanted // 100}m or leave it out"
        )
        return AttachState.ENFORCED, Reason.CPU_LIMIT_BELOW_SHARE, text
    return AttachState.ENFORCED, None, ""


def _compare(uuid: str, device: EmulatedDevice, now: EmulatedDevice | None) -> DeviceReading:
    """Health of one device: healthy if the file's entry equals the device."""
    if now == device:
        return DeviceReading(uuid=uuid, healthy=True)
    if now is None:
        text = f"{CONFIG_FILE} no longer names it; put it back or restart the agent"
        return DeviceReading(
            uuid=uuid, healthy=False, hard=True, reason=Reason.DEVICE_LOST, message=text
        )
    text = (
        f"{CONFIG_FILE} now says {now.percent} % of core {now.core}, {now.memory_mib} MiB, "
        f"{now.model}; restart the agent to use that"
    )
    return DeviceReading(
        uuid=uuid, healthy=False, hard=True, reason=Reason.DEVICE_LOST, message=text
    )
