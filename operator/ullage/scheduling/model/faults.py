# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose data made a decision fail: the object that the failing code was looking at.

The traceback knows it: the innermost function that was given a record of one object. So no loop of
a decision has to guard against every object, and one that no test thought of is found as well. No
exception is swallowed here: every one of them ends its pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from traceback import format_exception
from types import FrameType
from typing import Final, Self

from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.snapshot import (
    GPUNodeRecord,
    ObjectRef,
    PodRecord,
    Snapshot,
    WorkloadRecord,
)
from ullage.process.faults import fault_text

WORKLOADS: Final = "workloads"
PODS: Final = "pods"
TENANTS: Final = (WORKLOADS, PODS, "profiles")
"""Tables of the snapshot that hold what tenants write."""
_HOLDERS: Final = ("workload", "job", "service", "pod", "member")
"""Fields by which the values of a decision hold the object that they are about."""
_MOST_FRAMES: Final = 8
_MOST_TRACE: Final = 4_096
_TENANTS_FIRST: Final = (WORKLOADS, PODS, "profiles", "gpu_nodes", "pools", "device_profiles")

Subject = tuple[str, str]
"""A table of the snapshot, and the key of one record there as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An object that is left out of a decision.

    Attributes:
        table: Of the snapshot.
        key: Of the record in the table; namespace and name as ``namespace/name``.
        text: What failed; empty = it is only left out while another one is searched for.
        trace: Where it failed, for the log.
        late: It took too long, which may be no one's fault but its own.
    """

    table: str
    key: str
    text: str = ""
    trace: str = field(default="", compare=False)
    late: bool = False

    @property
    def subject(self) -> Subject:
        """Which object it is."""
        return self.table, self.key


class AtFault(Exception):
    """Decisions about some objects failed; the others may be decided without them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        """``faults`` names at least one."""
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        """The first of them."""
        return ", ".join(f"{fault.table} {fault.key}: {fault.text}" for fault in self.faults[:3])


class Late(Exception):
    """One object alone took so long that all others would wait for it."""


class Blames:
    """Goes through many workloads, none of which changes what the next one finds.

    All that are at fault are named together at the end, so that one more pass does for them. One
    object for all of them, because a cycle goes through thousands several times.
    """

    __slots__ = ("_at", "_first", "_found", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        """No workload was looked at yet."""
        self._snapshot = snapshot
        self._at: ObjectRef | None = None
        self._first: Exception | None = None
        self._found: dict[Subject, Fault] = {}

    def of(self, workload: ObjectRef) -> Self:
        """Look at one workload; what it raises is noted."""
        self._at = workload
        return self

    def __enter__(self) -> None:
        """Look at the workload."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Note what it raised; the next one is looked at."""
        if not isinstance(error, Exception) or self._at is None:
            return False
        own = (WORKLOADS, self._at.uid)
        for fault in faults_of(error, self._snapshot) or (_fault(own, error),):
            self._found.setdefault(fault.subject, fault)
        self._first = self._first or error
        if isinstance(error, Late):
            self.settle()  # another one like it may come, and no pass has time for many
        return True

    def settle(self) -> None:
        """All were looked at.

        Raises:
            AtFault: some are at fault.
        """
        if self._found:
            raise AtFault(tuple(self._found.values())) from self._first


def faults_of(error: Exception, snapshot: Snapshot) -> tuple[Fault, ...]:
    """The objects that made a pass fail; none where it was no object alone."""
    if isinstance(error, AtFault):
        return error.faults
    frames: list[FrameType] = []
    at = error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    subject = looked_at(reversed(frames), snapshot)
    return () if subject is None else (_fault(subject, error),)


def looked_at(
    frames: Iterable[FrameType], snapshot: Snapshot, *, given_alone: bool = False
) -> Subject | None:
    """The object that some frames, the innermost first, look at; ``None`` = none alone.

    What a function was given counts before what it goes through (with ``given_alone`` nothing
    else does), and work of tenants before what administrators and agents write.
    """
    for frame in frames:
        code, here = frame.f_code, frame.f_locals
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = [here[name] for name in given if name in here]
        others = [] if given_alone else [one for name, one in here.items() if name not in given]
        for values in (arguments, others):
            found = [one for value in values if (one := _subject_of(value, snapshot)) is not None]
            if found:
                return min(found, key=lambda one: _TENANTS_FIRST.index(one[0]))
    return None


def _fault(subject: Subject, error: Exception) -> Fault:
    trace = "".join(format_exception(error, limit=-_MOST_FRAMES))[-_MOST_TRACE:]
    late = isinstance(error, Late)
    return Fault(table=subject[0], key=subject[1], text=fault_text(error), trace=trace, late=late)


def _subject_of(value: object, snapshot: Snapshot) -> Subject | None:
    """The object that a value is, names, or is about; a pod stands for its workload."""
    match value:
        case str():
            return (WORKLOADS, value) if value in snapshot.workloads else None
        case WorkloadRecord():
            return WORKLOADS, value.ref.uid
        case PodRecord():
            owned = value.owner.uid in snapshot.workloads
            return (WORKLOADS, value.owner.uid) if owned else (PODS, value.uid)
        case GPUNodeRecord():
            return "gpu_nodes", value.name
        case ProfileRecord():
            return "profiles", f"{value.namespace}/{value.name}"
        case DeviceProfileRecord():
            return "device_profiles", value.name
        case PoolRecord():
            return "pools", value.name
    if not is_dataclass(value):
        return None
    held = (getattr(value, one.name, None) for one in fields(value) if one.name in _HOLDERS)
    return next((found for one in held if (found := _subject_of(one, snapshot)) is not None), None)
