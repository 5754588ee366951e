# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots sent to the deciding process, as changes since the last one.

A large snapshot costs more to pickle than to decide on, and little of it changes from one decision
to the next. The sender compares by identity, because snapshots share unchanged objects; the
receiver keeps the last snapshot and patches it. Of a changed record only the changed fields are
sent: the rest stays the receiver's object. Bytes in, bytes out; no processes here.

Frozen records are pickled at half the usual cost. Python's own way queries every single record for
its fields, on both sides; slots are read and written directly here. Everything but frozen slotted
dataclasses is pickled as usual.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from io import BytesIO
from operator import attrgetter
from typing import Final, TypeVar

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.model.changes import changed as changed_keys
from ullage.scheduling.model.plan import Action, ApplyGPUNode, DecideSettings, Plan, SetStatus

Item = TypeVar("Item")
Reduced = tuple[Callable[[type, tuple[object, ...]], object], tuple[type, tuple[object, ...]]]

_TABLES: Final = (
    "nodes",
    "gpu_nodes",
    "pods",
    "foreign_use",
    "pods_around",
    "namespaces",
    "claims",
    "workloads",
    "deployments",
    "services",
    "profiles",
    "device_profiles",
    "pools",
    "models",
)
"""Fields of a snapshot that are large and change piece by piece."""
_NO_STATUS: Final = WorkloadStatus()
_REST: Final = tuple(field.name for field in fields(Snapshot) if field.name not in _TABLES)


class LostBase(Exception):
    """The delta builds on a snapshot that this receiver does not have: send a full one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Changes from the snapshot ``base`` (0 = nothing) to the snapshot ``number``."""

    base: int
    number: int
    rest: Mapping[str, object]
    """Changed fields of the snapshot other than tables."""
    changed: Mapping[str, Mapping[object, object]]
    """By table: new records, and a :class:`Patch` for each changed one."""
    removed: Mapping[str, tuple[object, ...]]
    """By table: deleted keys."""


@dataclass(frozen=True, slots=True)
class Splice:
    """A tuple that shares items with the receiver's."""

    places: tuple[int, ...]
    """In order: indices in the receiver's tuple; -1 = the next of the new items."""
    new: tuple[object, ...]

    @classmethod
    def of(cls, held: tuple[object, ...], items: tuple[object, ...]) -> Splice:
        """The splice from the receiver's tuple to ``items``."""
        at = {id(item): place for place, item in enumerate(held)}
        places = tuple([at.get(id(item), -1) for item in items])
        return cls(places, tuple(_new(places, items)))

    def on(self, held: tuple[object, ...]) -> tuple[object, ...]:
        """The new tuple."""
        new = iter(self.new)
        return tuple([next(new) if place < 0 else held[place] for place in self.places])


@dataclass(frozen=True, slots=True)
class Merge:
    """A mapping that shares entries with the receiver's."""

    places: tuple[int, ...]
    """In order: indices in the receiver's mapping; -1 = the next of the new entries."""
    new: tuple[tuple[object, object], ...]

    @classmethod
    def of(cls, held: dict[object, object], new: dict[object, object]) -> Merge:
        """The merge from the receiver's mapping to ``new``."""
        at = {key: place for place, key in enumerate(held)}
        places = tuple(
            [at[key] if key in at and held[key] is value else -1 for key, value in new.items()]
        )
        return cls(places, tuple(_new(places, new.items())))

    def on(self, held: dict[object, object]) -> dict[object, object]:
        """The new mapping."""
        entries, new = list(held.items()), iter(self.new)
        return dict([next(new) if place < 0 else entries[place] for place in self.places])


def _new(places: Iterable[int], items: Iterable[Item]) -> Iterator[Item]:
    """The items that the receiver lacks."""
    return (item for place, item in zip(places, items, strict=True) if place < 0)


@dataclass(frozen=True, slots=True)
class Patch:
    """Changed fields of a record: values by index of their field."""

    values: tuple[tuple[int, object], ...]


class Packer:
    """The sending side; one per receiver."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._number = 0

    def pack(self, snapshot: Snapshot, now: float, settings: DecideSettings) -> bytes:
        """Bytes from which the receiver builds this snapshot, and its time and settings."""
        base = self._number if self._last is not None else 0
        self._number += 1
        delta = _delta(self._last, snapshot, base, self._number)
        self._last = snapshot
        return dumps((delta, now, settings))

    def reset(self) -> None:
        """Send the next snapshot whole: the receiver is new, or may have missed one."""
        self._last = None


class Unpacker:
    """The receiving side."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._number = 0

    def unpack(self, payload: bytes) -> tuple[Snapshot, float, DecideSettings]:
        """The snapshot to decide on; a plain snapshot in the payload is used unchanged.

        Raises:
            LostBase: an earlier pack was missed.
        """
        delta, now, settings = pickle.loads(payload)
        if isinstance(delta, Snapshot):
            delta = _delta(None, delta, 0, 0)
        if delta.base and delta.base != self._number:
            raise LostBase(f"have snapshot {self._number}, the delta builds on {delta.base}")
        base = self._last if delta.base else None
        self._last = _patched(base, delta)
        self._number = delta.number
        return self._last, now, settings


def pack_answer(plan: Plan, actions: tuple[Action, ...], snapshot: Snapshot) -> bytes:
    """Bytes of a plan, without unchanged slices, and of its actions."""
    nodes, workloads = snapshot.gpu_nodes, snapshot.workloads
    slices = {
        name: Splice.of(nodes[name].desired if name in nodes else (), wanted)
        for name, wanted in plan.slices.items()
        if name not in nodes or nodes[name].desired is not wanted
    }
    statuses = {
        uid: _difference(workloads[uid].status if uid in workloads else None, status)
        for uid, status in plan.statuses.items()
    }
    acts = tuple(_less(act, slices, statuses) for act in actions)
    return dumps((replace(plan, slices={}, statuses={}), slices, statuses, acts))


def unpack_answer(payload: bytes, snapshot: Snapshot) -> tuple[Plan, tuple[Action, ...]]:
    """The plan's changes and the actions; ``snapshot`` is the one that was packed."""
    brief, splices, differences, acts = pickle.loads(payload)
    nodes, workloads = snapshot.gpu_nodes, snapshot.workloads
    slices = {
        name: splice.on(nodes[name].desired if name in nodes else ())
        for name, splice in splices.items()
    }
    statuses = {
        uid: _renewed(workloads[uid].status if uid in workloads else None, difference)
        for uid, difference in differences.items()
    }
    plan = replace(brief, slices=slices, statuses=statuses)
    return plan, tuple(_more(act, plan) for act in acts)


def _less(act: Action, slices: Container[str], statuses: Container[str]) -> Action:
    """An action without the parts that are sent with the plan."""
    if isinstance(act, ApplyGPUNode) and act.name in slices:
        return replace(act, slices=())
    if isinstance(act, SetStatus) and act.owner.uid in statuses:
        return replace(act, status=_NO_STATUS)
    return act


def _more(act: Action, plan: Plan) -> Action:
    """The action with these parts restored."""
    if isinstance(act, ApplyGPUNode) and act.name in plan.slices:
        return replace(act, slices=plan.slices[act.name])
    if isinstance(act, SetStatus) and act.owner.uid in plan.statuses:
        return replace(act, status=plan.statuses[act.owner.uid])
    return act


def _delta(last: Snapshot | None, snapshot: Snapshot, base: int, number: int) -> Delta:
    changed: dict[str, Mapping[object, object]] = {}
    removed: dict[str, tuple[object, ...]] = {}
    for table in _TABLES:
        new: Mapping[object, object] = getattr(snapshot, table)
        old: Mapping[object, object] = getattr(last, table) if last is not None else {}
        if new is old:
            continue
        keys = changed_keys(old, new)
        different = {key: _difference(old.get(key), new[key]) for key in keys if key in new}
        if different:
            changed[table] = different
        if len(different) < len(keys):
            removed[table] = tuple(key for key in keys if key not in new)
    rest = {
        name: getattr(snapshot, name)
        for name in _REST
        if last is None or getattr(last, name) is not getattr(snapshot, name)
    }
    return Delta(base=base, number=number, rest=rest, changed=changed, removed=removed)


def _difference(old: object, new: object) -> object:
    """The change from one record to another of its kind."""
    if type(old) is not type(new):
        return new
    before, after = values_of(old), values_of(new)
    if before is None or after is None:
        return new
    pairs = enumerate(zip(before, after, strict=True))
    return Patch(
        tuple((at, _value(held, value)) for at, (held, value) in pairs if held is not value)
    )


def _value(held: object, value: object) -> object:
    """The change of a field: of tuples and dicts only the items that the receiver lacks."""
    if type(held) is tuple and type(value) is tuple and held and value:
        return Splice.of(held, value)
    if type(held) is dict and type(value) is dict and held and value:
        return Merge.of(held, value)
    return _difference(held, value)


def _patched(base: Snapshot | None, delta: Delta) -> Snapshot:
    parts = dict(delta.rest)
    for table in _TABLES:
        changed = delta.changed.get(table)
        removed = delta.removed.get(table, ())
        if not changed and not removed:
            continue
        old: Mapping[object, object] = getattr(base, table) if base is not None else {}
        merged = dict(old)
        for key in removed:
            merged.pop(key, None)
        for key, change in (changed or {}).items():
            merged[key] = _renewed(merged.get(key), change)
        parts[table] = merged
    return replace(base, **parts) if base is not None else Snapshot(**parts)  # type: ignore[arg-type]


def _renewed(old: object, change: object) -> object:
    """The result of applying a change to the old value."""
    if isinstance(change, Splice):
        assert isinstance(old, tuple)  # as the sender found it
        return change.on(old)
    if isinstance(change, Merge):
        assert isinstance(old, dict)  # as the sender found it
        return change.on(old)
    if not isinstance(change, Patch):
        return change
    values = list(values_of(old) or ())
    for at, value in change.values:
        values[at] = _renewed(values[at], value)
    return made(type(old), tuple(values))


def dumps(value: object) -> bytes:
    """The pickle of a value; ``pickle.loads`` reads it."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _RECORDS
    pickler.dump(value)
    return buffer.getvalue()


def made(kind: type, values: tuple[object, ...]) -> object:
    """A record from the values of its fields, without validation."""
    record: object = object.__new__(kind)
    for put, value in zip(_writers(kind), values, strict=True):
        put(record, value)
    return record


def values_of(record: object) -> tuple[object, ...] | None:
    """The values of a record's fields; ``None`` for anything but a record with slots."""
    kind: type = type(record)
    taken_apart = _reader(kind)
    return taken_apart(record)[1][1] if taken_apart is not None else None


@cache  # bounded by the number of classes
def _reader(kind: type) -> Callable[[object], Reduced] | None:
    try:
        return _RECORDS[kind]
    except KeyError:
        return None


@cache  # bounded by the number of record classes, as is _RECORDS
def _writers(kind: type) -> tuple[Callable[[object, object], None], ...]:
    return tuple(getattr(kind, name).__set__ for name in _names(kind))


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _alone(name: str) -> Callable[[object], tuple[object, ...]]:
    """Reads a single field, as a tuple."""
    read = attrgetter(name)
    return lambda record: (read(record),)


class _Records(dict[type, Callable[[object], Reduced]]):
    """Functions that decompose records, by class; created for the first record of it."""

    def __missing__(self, kind: type) -> Callable[[object], Reduced]:
        names = _names(kind)
        if not names or any(not hasattr(getattr(kind, name, None), "__set__") for name in names):
            raise KeyError(kind)  # the pickler then uses its default
        # a getter of several names reads them all in one call, and gives a tuple
        read = attrgetter(*names) if len(names) > 1 else _alone(names[0])

        def taken_apart(record: object) -> Reduced:
            return made, (kind, read(record))

        self[kind] = taken_apart
        return taken_apart


_RECORDS = _Records()
