# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps one reading of all devices to each container's use of them. Pure.

Containers of one pod are distinguished by their devices: a cgroup names the pod only.

A client's initial variables are compared with those of its share: CUDA reads them when a process
starts, and the kernel keeps the initial copy, so an image does not need our library to prove its
share. A program that removes a variable before CUDA starts is not detected: protocol 2 itself
trusts its clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from ullage.api.devices import Backend
from ullage.api.reasons import Reason
from ullage_node.devices.nvidia.choice import MPS_BACKENDS, WHOLE_PERCENT, SharingChoice
from ullage_node.devices.nvidia.proof import (
    ShareEvidence,
    ShareVerdict,
    judge_share,
    judge_turns,
    sms_of,
)
from ullage_node.devices.nvidia.read import GpuProcess, NvidiaDevice
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    BoundSlice,
    ContainerBinding,
    ContainerKey,
)
from ullage_node.mps.control import ORDINAL
from ullage_node.mps.records import MEMORY, PIPE, SHARE, ClientEnvironment, MpsServer
from ullage_node.times import CLIENTS_AGE_S

_PERCENT: Final = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_MIB: Final = re.compile(r"(\d{1,9})([MG])", re.ASCII)
_MIB_OF: Final = {"M": 1, "G": 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedShare:
    """The share that a client's variables must match.

    ``pipe`` is the directory of the slice's namespace, which holds the limits under protocol 3; ""
    under protocol 2, where the variables do.
    """

    uuid: str
    percent: int
    cap_mib: int
    pipe: str = ""


def departure(decided: DecidedShare, seen: ClientEnvironment) -> str:
    """The variable of a client that exceeds its share, as text; "" = none.

    A program may tighten its own limits.
    """
    if decided.pipe:
        return "" if seen.pipe == decided.pipe else _differs(seen.pid, PIPE, seen.pipe)
    percent = float(seen.share) if _PERCENT.fullmatch(seen.share) else 0.0
    if not 0 < percent <= decided.percent:
        return _differs(seen.pid, SHARE, seen.share)
    if not 0 < _cap_mib(seen.memory, decided.uuid) <= decided.cap_mib:
        return _differs(seen.pid, MEMORY, seen.memory)
    return ""


def _cap_mib(value: str, uuid: str) -> int:
    """The memory limit in a variable that names only this device, by ordinal or uuid, else 0.

    An entry for a device that the client cannot see makes it drop every limit.
    """
    name, _, size = value.partition("=")
    match = _MIB.fullmatch(size)
    return int(match[1]) * _MIB_OF[match[2]] if match and name in (ORDINAL, uuid) else 0


def _differs(pid: int, name: str, value: str) -> str:
    setting = f"with {name}={value!r}" if value else f"without {name}"
    return (
        f"process {pid} began {setting}, which is wider than its share; does the image or its "
        "command change the variable or drop its environment?"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Observations of all devices at one moment.

    ``owners`` maps processes to pods, ``blind`` lists unreadable devices, ``clients`` the clients
    of each shared device's server, ``sm_counts`` each container's reported count, ``pipes`` the
    directory of its namespace under protocol 3, ``unlisted`` the seconds for which a process has
    used a device without being a client of its server, ``once_listed`` processes that once were
    clients.
    """

    processes: Sequence[GpuProcess]
    owners: Mapping[int, str | None]
    blind: Mapping[str, str]
    clients: Mapping[str, Sequence[int]]
    servers: Mapping[str, MpsServer | None]
    server_problem: str
    devices: Mapping[str, NvidiaDevice]
    choices: Mapping[str, SharingChoice]
    overhead_mib: int
    sm_counts: Mapping[ContainerKey, int]
    pipes: Mapping[ContainerKey, str]
    unlisted: Mapping[tuple[str, int], float]
    once_listed: Set[tuple[str, int]]


def attachment_of(
    binding: ContainerBinding, bindings: Sequence[ContainerBinding], sight: Sight
) -> Attachment:
    """Attachment of one container to the devices."""
    pod_uid = binding.key.pod_uid
    own = {part.gpu for part in binding.slices}
    granted = {p.gpu for other in bindings if other.key.pod_uid == pod_uid for p in other.slices}
    theirs = [process for process in sight.processes if sight.owners[process.pid] == pod_uid]
    used = [process for process in theirs if process.gpu in own or process.gpu not in granted]
    listed = _listed(binding, sight)
    memory_mib = sum(process.memory_mib for process in used)
    verdict = _astray({process.gpu for process in used}, own, sight.blind) or (
        _judge(binding, used, listed, sight)
    )
    pids = tuple(sorted({process.pid for process in used} | set(listed)))
    return Attachment(
        state=verdict.state,
        pids=pids,
        memory_used_mib=memory_mib,
        sm_count=sight.sm_counts.get(binding.key, 0) if pids else 0,
        proof=verdict.proof,
        reason=verdict.reason,
        message=verdict.message,
    )


def _listed(binding: ContainerBinding, sight: Sight) -> tuple[int, ...]:
    """The container's processes that its server lists; one may hold no memory yet."""
    pids = {
        pid
        for part in binding.slices
        for pid in sight.clients.get(part.gpu, ())
        if sight.owners.get(pid) == binding.key.pod_uid
    }
    return tuple(sorted(pids))


def _astray(used: Set[str], own: Set[str], blind: Mapping[str, str]) -> ShareVerdict | None:
    """A verdict on the use of devices not granted, or on an unreadable device."""
    if astray := sorted(used - own):
        text = (
            f"uses {', '.join(astray)}, which the pod was not given; is it privileged, or does it "
            "set NVIDIA_VISIBLE_DEVICES?"
        )
        return ShareVerdict(AttachState.UNENFORCED, Reason.UNENFORCED, text)
    if unseen := sorted(own & blind.keys()):
        return ShareVerdict(AttachState.UNVERIFIED, Reason.DEVICE_LOST, blind[unseen[0]])
    return None


def _judge(
    binding: ContainerBinding,
    used: Sequence[GpuProcess],
    listed: tuple[int, ...],
    sight: Sight,
) -> ShareVerdict:
    part = binding.slices[0]
    choice = sight.choices.get(part.gpu)
    if part.percent == WHOLE_PERCENT or choice is None:
        return ShareVerdict(AttachState.ENFORCED if used else AttachState.ABSENT)
    if choice.backend is Backend.TIME_SLICE:
        return judge_turns(
            pids=tuple(process.pid for process in used),
            memory_mib=sum(process.memory_mib for process in used),
            cap_mib=part.cap_mib(sight.overhead_mib),
        )
    if choice.backend not in MPS_BACKENDS:
        return _unshared(part, used, choice)
    return judge_share(_evidence(binding, part, used, listed, sight))


def _decided(binding: ContainerBinding, part: BoundSlice, sight: Sight) -> DecidedShare:
    """The environment with which the container's clients must have started."""
    three = sight.choices[part.gpu].backend is Backend.MPS3
    return DecidedShare(
        uuid=part.gpu,
        percent=part.percent,
        cap_mib=part.cap_mib(sight.overhead_mib),
        pipe=sight.pipes[binding.key] if three else "",
    )


def _evidence(
    binding: ContainerBinding,
    part: BoundSlice,
    used: Sequence[GpuProcess],
    listed: tuple[int, ...],
    sight: Sight,
) -> ShareEvidence:
    unlisted = tuple(sorted({process.pid for process in used} - set(listed)))
    server = sight.servers.get(part.gpu)
    shown = {environment.pid: environment for environment in server.environments} if server else {}
    decided = _decided(binding, part, sight)
    departures = [departure(decided, shown[pid]) for pid in listed if pid in shown]
    return ShareEvidence(
        clients=listed,
        unlisted=unlisted,
        unlisted_seconds=max(
            (sight.unlisted.get((part.gpu, pid), 0) for pid in unlisted), default=0
        ),
        orphaned=any((part.gpu, pid) in sight.once_listed for pid in unlisted),
        list_problem=_list_problem(server, sight.server_problem),
        departure=next(filter(None, departures), ""),
        unread=tuple(pid for pid in listed if pid not in shown),
        memory_mib=sum(process.memory_mib for process in used),
        cap_mib=part.cap_mib(sight.overhead_mib),
        sm_seen=sight.sm_counts.get(binding.key, 0),
        sm_allowed=sms_of(sight.devices[part.gpu].sm_count, part.percent),
    )


def _list_problem(server: MpsServer | None, problem: str) -> str:
    """The reason why the server's list of clients is no proof; empty = none."""
    if server is None:
        return problem or "no MPS server is known for its device"
    if server.clients is None or server.age_ms > CLIENTS_AGE_S * 1000:
        return f"the MPS server is {server.state.value}: {server.why or 'its list is old'}"
    return ""


def _unshared(part: BoundSlice, used: Sequence[GpuProcess], choice: SharingChoice) -> ShareVerdict:
    """The verdict on a share of a device that is no longer shared (MPS was removed)."""
    if not used:
        return ShareVerdict(AttachState.ABSENT)
    text = f"{part.percent} % cannot be held: {choice.problem}"
    return ShareVerdict(AttachState.UNENFORCED, Reason.UNENFORCED, text)
