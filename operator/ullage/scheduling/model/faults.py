# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a decision, and the object charged with each.

Loops over many workloads name the workload that they decide (``Blames.of``). Any other exception is
attributed by the types of the values in the failing functions: the innermost with a record of a
single object. So an object that no loop guards against is found as well, and names of variables or
fields do not matter. Every exception ends its pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from traceback import format_exception
from types import FrameType
from typing import Final, Self

from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.process.faults import fault_text

WORKLOADS: Final = "workloads"
PODS: Final = "pods"
TENANTS: Final = (WORKLOADS, PODS, "profiles")
"""Tables of the snapshot with data written by tenants."""
_DEPTH: Final = 2
"""Depth of records in the fields of a value: a place has a member, which has its pod."""
_MOST_FRAMES: Final = 8
_MOST_TRACE: Final = 4_096
_TENANTS_FIRST: Final = (WORKLOADS, PODS, "profiles", "gpu_nodes", "pools", "device_profiles")

Subject = tuple[str, str]
"""A table of the snapshot, and the key of one record there as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An object that is left out of a decision.

    Attributes:
        table: Table of the snapshot.
        key: Key of the record in the table; namespace and name as ``namespace/name``.
        text: The failure; empty = left out only during the search for the culprit.
        trace: Stack trace, for the log.
        late: It took too long.
    """

    table: str
    key: str
    text: str = ""
    trace: str = field(default="", compare=False)
    late: bool = False

    @property
    def subject(self) -> Subject:
        """The table and the key."""
        return self.table, self.key


class AtFault(Exception):
    """Decisions about some objects failed; the others may be decided without them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        """``faults`` names at least one."""
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        """The first fault."""
        return ", ".join(f"{fault.table} {fault.key}: {fault.text}" for fault in self.faults[:3])


class Late(Exception):
    """A single object took so long that it would delay all others."""


class Blames:
    """Collects the faults of a loop over workloads whose decisions do not depend on each other.

    All faults are raised together at the end, so that a single further pass leaves them all out. It
    is reused for all workloads, because a cycle visits thousands several times.
    """

    __slots__ = ("_faults", "_first", "_snapshot", "_workload")

    def __init__(self, snapshot: Snapshot) -> None:
        """Start without faults."""
        self._snapshot = snapshot
        self._workload: ObjectRef | None = None
        self._first: Exception | None = None
        self._faults: dict[Subject, Fault] = {}

    def of(self, workload: ObjectRef) -> Self:
        """Charge an exception in the ``with`` block to a workload."""
        self._workload = workload
        return self

    def __enter__(self) -> None:
        """Enter the block of the workload."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Record an exception; the loop continues with the next workload."""
        if not isinstance(error, Exception) or self._workload is None:
            return False
        subject = (WORKLOADS, self._workload.uid)
        for fault in faults_of(error, self._snapshot) or (_fault(subject, error),):
            self._faults.setdefault(fault.subject, fault)
        self._first = self._first or error
        if isinstance(error, Late):
            self.settle()  # others may take as long, and a pass has no time for many of them
        return True

    def settle(self) -> None:
        """End the loop.

        Raises:
            AtFault: some workloads are at fault.
        """
        if self._faults:
            raise AtFault(tuple(self._faults.values())) from self._first


def faults_of(error: Exception, snapshot: Snapshot) -> tuple[Fault, ...]:
    """The objects that made a pass fail; empty if no single object did."""
    if isinstance(error, AtFault):
        return error.faults
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    subject = subject_of_frames(reversed(frames), snapshot)
    return () if subject is None else (_fault(subject, error),)


def subject_of_frames(
    frames: Iterable[FrameType], snapshot: Snapshot, *, arguments_only: bool = False
) -> Subject | None:
    """The object that some frames, the innermost first, process; ``None`` = no single object.

    Arguments of a function count before its other variables (with ``arguments_only`` nothing else
    counts), and objects of tenants before those of administrators and agents.
    """
    for frame in frames:
        code, variables = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = [variables[name] for name in names if name in variables]
        others = [value for name, value in variables.items() if name not in names]
        for values in (arguments,) if arguments_only else (arguments, others):
            subjects = list(filter(None, (_subject_of(value, snapshot) for value in values)))
            if subjects:
                return min(subjects, key=_tenants_first)
    return None


def _tenants_first(subject: Subject) -> tuple[int, str]:
    return _TENANTS_FIRST.index(subject[0]), subject[1]


def _fault(subject: Subject, error: Exception) -> Fault:
    trace = "".join(format_exception(error, limit=-_MOST_FRAMES))[-_MOST_TRACE:]
    late = isinstance(error, Late)
    return Fault(table=subject[0], key=subject[1], text=fault_text(error), trace=trace, late=late)


def _subject_of(value: object, snapshot: Snapshot, depth: int = _DEPTH) -> Subject | None:
    """The object that a value is, names or is about; a pod stands for its workload.

    A value with fields is about an object if all records in its fields are of that object alone.
    """
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
    if not depth or not is_dataclass(value):
        return None
    parts = (getattr(value, part.name, None) for part in fields(value))
    subjects = {
        _subject_of(part, snapshot, depth - 1) for part in parts if not isinstance(part, str)
    } - {None}
    return subjects.pop() if len(subjects) == 1 else None
