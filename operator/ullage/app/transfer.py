# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots on their way to the deciding process, as what changed since the last one.

A large snapshot costs more to pickle than to decide on, and from one decision to the next little of
it changes. The sender compares by identity, because the snapshot shares what did not change; the
receiver keeps the last snapshot and patches it. Of a record that is another one, only the fields
that are others travel: the rest stays the very object that the receiver holds. Bytes in, bytes out;
no processes here.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from ullage.app.pickling import dumps, made, values_of
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import Action, ApplyGPUNode, DecideSettings, Plan

_TABLES: Final = (
    "nodes",
    "gpu_nodes",
    "pods",
    "foreign_use",
    "workloads",
    "deployments",
    "services",
    "profiles",
    "device_profiles",
    "pools",
    "models",
)
"""Fields of a snapshot that are large and change piece by piece."""
_REST: Final = tuple(one.name for one in fields(Snapshot) if one.name not in _TABLES)


class LostBase(Exception):
    """The delta builds on a snapshot that this receiver does not hold: send a full one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What leads from the snapshot ``base`` (0 = from nothing) to the snapshot ``number``."""

    base: int
    number: int
    rest: Mapping[str, object]
    """Fields of the snapshot that are no tables, where they are others."""
    changed: Mapping[str, Mapping[object, object]]
    """By table: records that are new; of those that are others, :class:`Patch`."""
    removed: Mapping[str, tuple[object, ...]]
    """By table: keys that are gone."""


@dataclass(frozen=True, slots=True)
class New:
    """An item that the receiver does not hold."""

    value: object


@dataclass(frozen=True, slots=True)
class Splice:
    """A tuple that shares items with one that the receiver holds."""

    items: tuple[int | New, ...]
    """Places in the tuple held, and, as :class:`New`, what is not there."""

    @classmethod
    def of(cls, held: tuple[object, ...], items: tuple[object, ...]) -> Splice:
        """What leads from the tuple that is held to the new one."""
        places = {id(one): at for at, one in enumerate(held)}
        return cls(
            tuple([New(one) if (at := places.get(id(one))) is None else at for one in items])
        )

    def on(self, held: tuple[object, ...]) -> tuple[object, ...]:
        """The new tuple."""
        return tuple([one.value if isinstance(one, New) else held[one] for one in self.items])


@dataclass(frozen=True, slots=True)
class Patch:
    """What of a record is another one: values by place of their field."""

    values: tuple[tuple[int, object], ...]


class Packer:
    """The sending side; one per receiver."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._number = 0

    def pack(self, snapshot: Snapshot, now: float, settings: DecideSettings) -> bytes:
        """What the receiver needs to decide on this snapshot."""
        base = self._number if self._last is not None else 0
        self._number += 1
        delta = _delta(self._last, snapshot, base, self._number)
        self._last = snapshot
        return dumps((delta, now, settings))

    def reset(self) -> None:
        """The receiver is a new one, or may have missed something: the next pack is whole."""
        self._last = None


class Unpacker:
    """The receiving side."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._number = 0

    def unpack(self, payload: bytes) -> tuple[Snapshot, float, DecideSettings]:
        """The snapshot to decide on; a payload that holds a plain snapshot is taken as it is.

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
    """A plan on its way back, less what already is as planned, and what to do about it."""
    held = {name: record.desired for name, record in snapshot.gpu_nodes.items()}
    slices = {
        name: Splice.of(held.get(name, ()), wanted)
        for name, wanted in plan.slices.items()
        if held.get(name) is not wanted
    }
    statuses = {
        uid: status
        for uid, status in plan.statuses.items()
        if uid not in snapshot.workloads or snapshot.workloads[uid].status is not status
    }
    brief = replace(plan, slices={}, statuses=statuses)
    # what a node is to hold travels once, with the plan
    acts = [
        replace(act, slices=()) if isinstance(act, ApplyGPUNode) and act.name in slices else act
        for act in actions
    ]
    return dumps((brief, slices, acts))


def unpack_answer(payload: bytes, snapshot: Snapshot) -> tuple[Plan, tuple[Action, ...]]:
    """The plan's changes and the actions; ``snapshot`` is the one that was packed."""
    brief, splices, acts = pickle.loads(payload)
    slices = {
        name: splice.on(record.desired if (record := snapshot.gpu_nodes.get(name)) else ())
        for name, splice in splices.items()
    }
    actions = tuple(
        replace(act, slices=slices[act.name])
        if isinstance(act, ApplyGPUNode) and act.name in slices
        else act
        for act in acts
    )
    return replace(brief, slices=slices), actions


def _delta(last: Snapshot | None, snapshot: Snapshot, base: int, number: int) -> Delta:
    changed: dict[str, Mapping[object, object]] = {}
    removed: dict[str, tuple[object, ...]] = {}
    for table in _TABLES:
        new: Mapping[object, object] = getattr(snapshot, table)
        old: Mapping[object, object] = getattr(last, table) if last is not None else {}
        if new is old:
            continue
        different = {
            key: _difference(old.get(key), one)
            for key, one in new.items()
            if old.get(key) is not one
        }
        if different:
            changed[table] = different
        if len(new) - len(different) < len(old):
            gone = tuple(key for key in old if key not in new)
            if gone:
                removed[table] = gone
    rest = {
        name: getattr(snapshot, name)
        for name in _REST
        if last is None or getattr(last, name) is not getattr(snapshot, name)
    }
    return Delta(base=base, number=number, rest=rest, changed=changed, removed=removed)


def _difference(old: object, new: object) -> object:
    """What leads from a record to another one of its kind."""
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
    """The value of a field on its way; of a tuple, only items that the receiver lacks."""
    if type(held) is tuple and type(value) is tuple and held and value:
        return Splice.of(held, value)
    return value


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
        for key, one in (changed or {}).items():
            merged[key] = _renewed(merged[key], one) if isinstance(one, Patch) else one
        parts[table] = merged
    return replace(base, **parts) if base is not None else Snapshot(**parts)  # type: ignore[arg-type]


def _renewed(old: object, patch: Patch) -> object:
    values = list(values_of(old) or ())
    for at, value in patch.values:
        held = values[at]
        values[at] = (
            value.on(held) if isinstance(value, Splice) and isinstance(held, tuple) else value
        )
    return made(type(old), tuple(values))
