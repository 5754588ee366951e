# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The contract between a device backend and the agent.

A backend has two parts: a :class:`DeviceProbe` that reports devices and their health, and a
:class:`ShareDriver` that enforces a decided share on a container. The agent core knows no device
library and no cgroup; a backend knows no Kubernetes object, no epoch and no phase. Nothing here may
import a device library, grpc or aiohttp.

Order of calls for one container, which a backend may rely on::

    start() -> discover() ... health() every 5 s, for ever
    prepare(binding)    inside PreStartContainer: before EACH start of the container, so again
                        after a crash, and again when the runtime never created the container.
                        The container's cgroup does not exist yet.
    observe(bindings)   every second, one call for all prepared containers of the node
    detach(binding)     before its processes are killed, when its pod is being deleted
    release(binding)    once its pod is terminal or gone and observe showed no process of it
    cleanup_all()       only when the node is taken out for good; close() at every stop

Any process may be killed between two calls: every call is idempotent, a binding may come again
after a restart of the agent (from its checkpoint) without a ``prepare`` in this process, and
``release`` may come for a binding that was never prepared. All paths in edits are paths on the
host; the agent sees the host's directories at the same paths.

The agent gets a backend from ``ullage_node.devices.backend.BACKENDS``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Protocol, TypeAlias

from ullage.api.checks import NodeCheck
from ullage.api.codec import Wire
from ullage.api.devices import ObservedDevice
from ullage.api.readers import JsonObject, WireError, bounded, quoted, text
from ullage.api.reasons import Reason
from ullage.api.slices import ObservedRank, Proof, SliceKey
from ullage.api.wire_fields import (
    KEPT,
    NEEDED,
    Flag,
    Kind,
    Text,
    Whole,
    between,
    known_word,
    strings,
)
from ullage_node.model.samples import DeviceSampler


class BackendUnavailable(Exception):
    """The backend cannot work on this node now; the agent reports ``Degraded`` and retries.

    Attributes:
        reason: reason of the condition (``DEVICE_CONFIG_MISSING``, ``DEVICE_LOST``, ...).
        message: what is missing and what an administrator can do about it.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message


class PrepareRefused(Exception):
    """The container must not start now; the text reaches the pod's event.

    Attributes:
        reason: ``MPS_NOT_READY``, ``DEVICE_LOST``, ``CAPACITY_EXCEEDED``, ...
        message: the violated limit and by how much, one line.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPaths:
    """Paths that a backend may read and write; the defaults are those of a node."""

    state_dir: Path = Path("/var/lib/ullage")
    """Survives reboots: ``emulated.json`` (read), ``bin/slice-hook``, ``slots/<slot>``."""
    run_dir: Path = Path("/run/ullage")
    """Gone after a reboot: MPS pipes."""
    cdi_dirs: tuple[Path, ...] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    """Directories searched for other vendors' CDI specifications (read only)."""
    cgroup_root: Path = Path("/sys/fs/cgroup")
    proc_root: Path = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ContainerKey:
    """One container of one pod: an owner of slots."""

    pod_uid: str
    container: str

    @property
    def directory(self) -> str:
        """Name of the container's step-record directory, also ``ULLAGE_SLICE``."""
        return SliceKey(pod_uid=self.pod_uid, container=self.container).directory


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSlice:
    """One slice and the slot bound to it.

    ``memory_mib`` is what the container may allocate, without context overhead; ``protected`` means
    that the workload has an objective (MPS client priority 0, else 1), ``probation`` that little is
    known of it, ``context_overhead_mib`` the operator's allowance for each context (0 = not given).
    """

    slot: str
    index: int
    gpu: str
    percent: int
    memory_mib: int
    protected: bool = False
    probation: bool = False
    context_overhead_mib: int = 0
    lane: int = 0
    """Lane in which it takes turns; 0 = none."""
    ephemeral_mib: int = 0
    """Part of its memory that it has only during its turn."""
    suspendable: bool = False
    """All its memory may leave the device between steps."""

    def cap_mib(self, overhead_mib: int) -> int:
        """Memory limit of a process, its context included.

        Args:
            overhead_mib: the node's setting of the context overhead, used where the slice gives
                none.
        """
        return self.memory_mib + (self.context_overhead_mib or overhead_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerBinding:
    """All slices of one container in index order; several only for whole devices."""

    key: ContainerKey
    pod_namespace: str
    pod_name: str
    slices: tuple[BoundSlice, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """The slot ids, in the order of the slices."""
        return tuple(part.slot for part in self.slices)


READ_WRITE: Final = ("bind", "nosuid", "nodev", "rw")
READ_ONLY: Final = ("bind", "nosuid", "nodev", "ro")
"""Options of a mount."""
_UINT32_MAX: Final = 2**32 - 1
_STRINGS: Final = Kind(strings, list, ())


def _matching(pattern: str, words: str) -> Kind:
    """A string of this form, described by ``words`` in an error."""
    form = re.compile(pattern)

    def read(raw: JsonObject, field: str) -> str:
        stated = text(raw, field)
        if not form.fullmatch(stated):
            raise WireError(f"{field}: {quoted(stated)} is no {words}")
        return stated

    return Kind(read, absent="")


def _group_ids(raw: JsonObject, field: str) -> tuple[int, ...]:
    """Group ids; 0 is ignored, as by the runtime."""
    stated = raw[field]
    if not isinstance(stated, list):
        raise WireError(f"{field}: expected a list of group ids")
    return tuple(gid for item in stated if (gid := bounded({field: item}, field, 0, _UINT32_MAX)))


_Path: TypeAlias = Annotated[str, _matching(r"[^\0]+", "path"), NEEDED]
_Id: TypeAlias = Annotated[int, between(0, _UINT32_MAX)]
"""Id of a user or a group; also a device number, or a file's mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode(Wire):
    """A device file of the host that the container gets.

    The runtime takes missing values from the file on the host. Empty permissions mean ``rwm``.
    """

    path: _Path
    host_path: Text = ""
    kind: Annotated[str, _matching("[bcup]?", "type of a device file"), "type"] = ""
    major: _Id = 0
    minor: _Id = 0
    file_mode: _Id | None = None
    permissions: Annotated[str, _matching("[rwm]*|none", "permission of a device file")] = ""
    uid: _Id | None = None
    gid: _Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount(Wire):
    """A host path that the container gets; ``kind`` is the file system's type, "" = a bind."""

    host_path: _Path
    container_path: _Path
    options: Annotated[tuple[str, ...], _STRINGS] = READ_WRITE
    kind: Annotated[Text, "type"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice(Wire):
    """A network interface that moves from the host into the container."""

    host_interface_name: _Path
    name: _Path


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt(Wire):
    """Shares of the CPU's cache and memory bandwidth, as in the OCI runtime specification."""

    class_id: Annotated[Text, "closID"] = ""
    l3_cache: Annotated[Text, "l3CacheSchema"] = ""
    bandwidth: Annotated[Text, "memBwSchema"] = ""
    schemata: Annotated[tuple[str, ...], _STRINGS] = ()
    enable_monitoring: Flag = False


class HookStage(StrEnum):
    """Stages at which the runtime calls a hook (names of the OCI runtime specification)."""

    PRESTART = "prestart"
    CREATE_RUNTIME = "createRuntime"
    CREATE_CONTAINER = "createContainer"
    START_CONTAINER = "startContainer"
    POSTSTART = "poststart"
    POSTSTOP = "poststop"


def _assignments(raw: JsonObject, field: str) -> tuple[str, ...]:
    """Lines NAME=VALUE; a runtime refuses a file with any other line."""
    for line in strings(raw, field):
        if line.find("=") < 1:
            raise WireError(f"{field}: {quoted(line)} is no NAME=VALUE")
    return strings(raw, field)


def _variables(raw: JsonObject, field: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in _assignments(raw, field))
    return {name: value for name, _, value in pairs}


_ENV: Final = Kind(
    _variables, lambda env: [f"{name}={value}" for name, value in sorted(env.items())], {}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook(Wire):
    """A program of the host that the runtime calls; ``args`` starts with the program's name."""

    stage: Annotated[HookStage, known_word(HookStage), "hookName", NEEDED]
    path: _Path
    args: Annotated[tuple[str, ...], _STRINGS] = ()
    env: Annotated[tuple[str, ...], Kind(_assignments, list, ())] = ()
    timeout_seconds: Annotated[Whole, "timeout", KEPT] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits(Wire):
    """Changes by the runtime to one container, as CDI's ``containerEdits`` hold them.

    The agent adds ``ULLAGE_SLICE``, ``ULLAGE_STEPS``, ``ULLAGE_PERCENT`` and the mount of the step
    record itself.
    """

    env: Annotated[Mapping[str, str], _ENV] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[BindMount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: Annotated[tuple[int, ...], Kind(_group_ids, list, ())] = ()
    """Groups of the container's processes beside their own, such as that of a device file."""
    intel_rdt: IntelRdt | None = None


class AttachState(StrEnum):
    """Observed attachment of one container to its devices."""

    ABSENT = "Absent"
    """No process of the container uses a device (not created, not started, or ended)."""
    UNVERIFIED = "Unverified"
    """Processes exist; their limits are not verified yet."""
    ENFORCED = "Enforced"
    """Processes exist and the limits were read back as decided."""
    UNENFORCED = "Unenforced"
    """Processes exist and run outside their limits; ``message`` says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One reading of one container.

    ``pids`` are host PIDs and must be empty exactly when no process of the container is left: only
    then are the slots reused. ``cpu_time_ns`` is the CPU time that the container has used since it
    started, 0 = unknown. ``solo_time_ns`` is how long the work done since then would have taken
    alone on the whole device, 0 = the backend has no such reference. ``proof`` names the evidence
    of an ``ENFORCED`` share. ``reason`` and ``message`` explain ``UNENFORCED``, and may carry a
    warning beside ``ENFORCED`` (``CPU_LIMIT_BELOW_SHARE``).
    """

    state: AttachState
    pids: tuple[int, ...] = ()
    memory_used_mib: int = 0
    sm_count: int = 0
    proof: Proof | None = None
    cpu_time_ns: int = 0
    solo_time_ns: int = 0
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One raw health probe of one device; hysteresis is the agent's, never the backend's.

    A ``hard`` fault (device lost, fatal error event) makes the device unhealthy at once, a soft one
    only when it repeats. A failed reading is a soft fault with the error's text.
    """

    uuid: str
    healthy: bool
    hard: bool = False
    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """A fault reported by the driver: its Xid, the device, and every device possibly affected.

    ``gpus`` are several for a GPU whose parts are devices; ``gpu`` is then its own uuid.
    """

    gpu: str
    gpus: tuple[str, ...]
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReading:
    """The faults reported since the last reading, oldest first.

    Later faults happened after ``settled_at`` (monotonic, seconds).
    """

    events: tuple[FaultEvent, ...] = ()
    settled_at: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """Progress of one container from step records and CPU counters; 0 = unknown.

    ``steps`` and ``items`` count since the container's last start. ``step_micros`` is the recent
    time of one step, ``solo_step_micros`` the time of the same step alone on the whole device.
    ``busy_ns`` is the sum of all step times and ``last_step_ns`` the time of the last step
    (CLOCK_MONOTONIC), both from the record. ``checkpoint_age_s`` is how long ago work was saved,
    ``resumed_at`` the step from which the start resumed. ``ranks`` are those of its programs whose
    steps are timed.
    """

    steps: int = 0
    items: int = 0
    step_micros: int = 0
    solo_step_micros: int = 0
    sm_count: int = 0
    busy_ns: int = 0
    last_step_ns: int = 0
    checkpoint_age_s: int = 0
    resumed_at: int = 0
    ranks: tuple[ObservedRank, ...] = ()

    def solo_micros(self, decided: int) -> int:
        """Reference step time of a slowdown, microseconds; 0 = unknown.

        The container's own time takes precedence over that of its class, which may come from
        another or a faster machine.

        Args:
            decided: Time alone by the class's profile, from the decision; 0 = unknown.
        """
        return self.solo_step_micros or decided


class DeviceProbe(Protocol):
    """Reports devices and their health. Never waits longer than 2 s."""

    async def start(self) -> None:
        """Open the device library; also called again after :class:`BackendUnavailable`.

        Raises:
            BackendUnavailable: library, configuration or devices are missing.
        """
        ...

    async def discover(self) -> tuple[ObservedDevice, ...]:
        """All devices, sorted by uuid, with current ``health`` (called every 60 s).

        Raises:
            BackendUnavailable: there is nothing to offer, with the reason why.
        """
        ...

    async def health(self) -> tuple[DeviceReading, ...]:
        """One reading per device ever discovered; a vanished one is a hard fault."""
        ...

    def take_faults(self) -> FaultReading:
        """The faults that :meth:`health` and :meth:`discover` have read, each once."""
        ...

    def problems(self) -> Mapping[str, str]:
        """Obstacles to the best way of sharing, by uuid; devices without any are omitted."""
        ...

    async def close(self) -> None:
        """Close the device library; nothing on the node changes."""
        ...


class ShareDriver(Protocol):
    """Enforces shares. ``prepare`` answers within 2 s and never waits for a server."""

    @property
    def version(self) -> str:
        """Version of the driver in force, for ``GPUNode.status.agent.driver``; "" = none."""
        ...

    def checks(self) -> Sequence[NodeCheck]:
        """Checks that were made on this node, with their results; may be empty."""
        ...

    def context_overhead_mib(self, gpu: str) -> int:
        """Memory of a context on this device, where its slice does not give it."""
        ...

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        """Prepare one start of the container and return its edits.

        Raises:
            PrepareRefused: the container must not start now.
        """
        ...

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        """One reading for every binding; an unreadable one is ``UNVERIFIED``."""
        ...

    async def detach(self, binding: ContainerBinding) -> str:
        """Detach the container's processes from its devices, so that they can be killed safely.

        May take long: 10 s for each process. "" = they may be killed, else the obstacle.
        """
        ...

    async def release(self, binding: ContainerBinding) -> None:
        """Forget the container: remove the files of ``prepare`` and its hook for its slots."""
        ...

    async def cleanup_all(self) -> None:
        """Remove everything that this backend ever put on the node (hook, slot files)."""
        ...


class ProgressSource(Protocol):
    """Reads the containers' step records; the agent calls it every second."""

    @property
    def invalid_total(self) -> int:
        """Number of invalid step records read since the agent started."""
        ...

    @property
    def refused(self) -> Mapping[ContainerKey, str]:
        """Reasons why containers' records are ignored; no entry = they are used."""
        ...

    def sample(
        self,
        bindings: Sequence[ContainerBinding],
        attachments: Mapping[ContainerKey, Attachment],
        now: float,
    ) -> Mapping[ContainerKey, StepProgress]:
        """Progress of every container that reports any; ``now`` is monotonic, seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBackend:
    """A probe and a driver that belong together."""

    probe: DeviceProbe
    driver: ShareDriver
    sampler: DeviceSampler | None = None
    """Counters of the devices, where they have any."""
