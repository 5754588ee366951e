# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides if a share is enforced, and names the proof; missing data proves nothing. Pure.

A client whose pipe is missing runs on the whole device without any error, so a tenant counts as
enforced only when its processes are clients of our server, none started with variables wider than
the share, the SM count that it sees is not above the share's, and its memory is below the cap. The
list of clients comes from the server, the variables from the kernel. The SM count is the tenant's
claim (step record): it can hide an excess, never create one, and an image without our library
reports none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import Proof
from ullage_node.model.devices import AttachState
from ullage_node.times import UNLISTED_S

SM_STEP: Final = 2
"""Granularity to which the hardware rounds a share down; even SMs (NVIDIA's measurements on 188
SMs: 50 % gave 94, 25 % 46, 10 % 18)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEvidence:
    """Observations of one container on its device.

    ``clients`` are its processes that the server lists, ``unlisted`` those that use the device and
    are in no list, ``unlisted_seconds`` for how long the oldest has, ``orphaned`` = one of them was
    a client of a server that has ended since. ``list_problem`` says why the list proves nothing
    now, "" = it does. ``departure`` says where a client's variables are wider than the share, "" =
    nowhere; ``unread`` are clients whose variables cannot be read. ``memory_mib`` 0 = not reported
    by the driver, ``sm_seen`` 0 = not reported by the container.
    """

    clients: tuple[int, ...]
    unlisted: tuple[int, ...]
    unlisted_seconds: float
    orphaned: bool
    list_problem: str
    departure: str
    unread: tuple[int, ...]
    memory_mib: int
    cap_mib: int
    sm_seen: int
    sm_allowed: int

    @property
    def pids(self) -> tuple[int, ...]:
        """Every process of the container on the device."""
        return tuple(sorted({*self.clients, *self.unlisted}))


@dataclass(frozen=True, slots=True)
class ShareVerdict:
    """The result of the evidence; ``proof`` is set for an enforced share."""

    state: AttachState
    reason: Reason | None = None
    message: str = ""
    proof: Proof | None = None


def judge_share(seen: ShareEvidence) -> ShareVerdict:
    """Judges the evidence, worst finding first."""
    if not seen.pids:
        return ShareVerdict(AttachState.ABSENT)
    if seen.memory_mib > seen.cap_mib:
        return _escaped(f"uses {seen.memory_mib} MiB where {seen.cap_mib} MiB were decided")
    if seen.sm_seen > seen.sm_allowed:
        return _escaped(f"sees {seen.sm_seen} SMs where {seen.sm_allowed} were decided")
    if seen.list_problem:
        return _unproven(seen.list_problem)
    if seen.unlisted:
        return _judge_unlisted(seen)
    if seen.departure:
        return _escaped(seen.departure)
    return ShareVerdict(AttachState.ENFORCED, proof=_strongest(seen))


def _strongest(seen: ShareEvidence) -> Proof:
    if seen.sm_seen:
        return Proof.REPORTED
    return Proof.SERVER_LIST if seen.unread else Proof.ENVIRONMENT


def _judge_unlisted(seen: ShareEvidence) -> ShareVerdict:
    names = ", ".join(str(pid) for pid in seen.unlisted[:4])
    if seen.unlisted_seconds < UNLISTED_S:
        return _unproven(f"process {names} is no client of the MPS server yet")
    if seen.orphaned:
        return _escaped(f"the MPS server of process {names} has ended; the container must restart")
    return _escaped(
        f"process {names} uses the whole device past the MPS server; does the image or its command "
        "change CUDA_MPS_PIPE_DIRECTORY, or is the pod privileged?"
    )


def sms_of(sm_total: int, percent: int) -> int:
    """SMs of a share on a device: rounded down to the hardware's step, at least one."""
    wanted = sm_total * percent // 100
    return min(sm_total, max(SM_STEP, wanted - wanted % SM_STEP))


def judge_turns(*, pids: tuple[int, ...], memory_mib: int, cap_mib: int) -> ShareVerdict:
    """Judge a tenant on a device whose tenants take turns: only its memory can be checked."""
    if not pids:
        return ShareVerdict(AttachState.ABSENT)
    if memory_mib > cap_mib:
        return _escaped(f"uses {memory_mib} MiB where {cap_mib} MiB were decided")
    return ShareVerdict(AttachState.ENFORCED)


def _escaped(message: str) -> ShareVerdict:
    return ShareVerdict(AttachState.UNENFORCED, Reason.UNENFORCED, message)


def _unproven(message: str) -> ShareVerdict:
    return ShareVerdict(AttachState.UNVERIFIED, message=message)
