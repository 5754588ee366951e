# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots sent to the deciding process, as changes since the last one.

A large snapshot costs more to pickle than to decide on, and little of it changes from one decision
to the next. The sender compares by identity, because snapshots share unchanged objects; the
receiver keeps the last snapshot and patches it. Of a changed record only the changed fields are
sent: the rest stays the receiver's object. Bytes in, bytes out; no processes here.

Frozen records are pickled by their slots, at half the usual cost; everything else as usual.
"""

from __future__ import annotations

import pickle
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields, replace
from io import BytesIO
from itertools import compress, count
from operator import is_not
from typing import Any, Final

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.values.slots import RECORDS, made, values_of, with_fields
from ullage.scheduling.model.changes import changed as changed_keys
from ullage.scheduling.model.plan import Action, ApplyGPUNode, DecideSettings, Plan, SetStatus

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
_IS_NEW: Final = (-1).__eq__
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
    changed: Mapping[str, Mapping[object, Change]]
    """By table: the change of each new and each changed record."""
    removed: Mapping[str, tuple[object, ...]]
    """By table: deleted keys."""


Change = tuple[int, object] | tuple[int, tuple[int, ...], tuple[Any, ...]]
"""The way from the receiver's value to the new one: a plain tuple, because one is sent for every
changed field and pickles of tuples need no Python. Its first item is one of these:"""
_VALUE: Final = 0
"""The new value follows."""
_PATCH: Final = 1
"""Of a record: places of its changed fields, and the change of each."""
_SPLICE: Final = 2
"""Of a tuple: in order, the place of each item in the receiver's, -1 = the next of the new ones;
and the new items."""
_MERGE: Final = 3
"""Of a mapping: the same for its entries."""


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
        name: _change(nodes[name].desired if name in nodes else (), wanted)
        for name, wanted in plan.slices.items()
        if name not in nodes or nodes[name].desired is not wanted
    }
    statuses = {
        uid: _change(workloads[uid].status if uid in workloads else None, status)
        for uid, status in plan.statuses.items()
    }
    acts = tuple([_less(act, slices, statuses) for act in actions])
    return dumps((replace(plan, slices={}, statuses={}), slices, statuses, acts))


def unpack_answer(payload: bytes, snapshot: Snapshot) -> tuple[Plan, tuple[Action, ...]]:
    """The plan's changes and the actions; ``snapshot`` is the one that was packed."""
    brief, spliced, changed, acts = pickle.loads(payload)
    nodes, workloads = snapshot.gpu_nodes, snapshot.workloads
    slices = {
        name: _renewed(nodes[name].desired if name in nodes else (), change)
        for name, change in spliced.items()
    }
    statuses = {
        uid: _renewed(workloads[uid].status if uid in workloads else None, change)
        for uid, change in changed.items()
    }
    plan = replace(brief, slices=slices, statuses=statuses)
    return plan, tuple([_more(act, plan) for act in acts])


def _less(act: Action, slices: Container[str], statuses: Container[str]) -> Action:
    """An action without the parts that are sent with the plan."""
    if isinstance(act, ApplyGPUNode) and act.name in slices:
        return with_fields(act, {"slices": ()})
    if isinstance(act, SetStatus) and act.owner.uid in statuses:
        return with_fields(act, {"status": _NO_STATUS})
    return act


def _more(act: Action, plan: Plan) -> Action:
    """The action with these parts restored."""
    if isinstance(act, ApplyGPUNode) and act.name in plan.slices:
        return with_fields(act, {"slices": plan.slices[act.name]})
    if isinstance(act, SetStatus) and act.owner.uid in plan.statuses:
        return with_fields(act, {"status": plan.statuses[act.owner.uid]})
    return act


def _delta(last: Snapshot | None, snapshot: Snapshot, base: int, number: int) -> Delta:
    changed: dict[str, Mapping[object, Change]] = {}
    removed: dict[str, tuple[object, ...]] = {}
    for table in _TABLES:
        new: Mapping[object, object] = getattr(snapshot, table)
        old: Mapping[object, object] = getattr(last, table) if last is not None else {}
        if new is old:
            continue
        keys = changed_keys(old, new)
        different = {key: _change(old.get(key), new[key]) for key in keys if key in new}
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


def _change(old: object, new: object) -> Change:
    """The change from one value to another: only the parts that the receiver lacks."""
    kind = type(new)
    if type(old) is not kind:
        return _VALUE, new
    if isinstance(old, tuple) and isinstance(new, tuple):
        if kind is not tuple or not old or not new:
            return _VALUE, new
        at = dict(zip(map(id, old), count()))
        places = tuple([at.get(id(item), -1) for item in new])
        return _SPLICE, places, tuple(compress(new, map(_IS_NEW, places)))
    if isinstance(old, dict) and isinstance(new, dict):
        if kind is not dict or not old or not new:
            return _VALUE, new
        at = dict(zip(old, count()))
        places = tuple(
            [at[key] if key in at and old[key] is value else -1 for key, value in new.items()]
        )
        return _MERGE, places, tuple(compress(new.items(), map(_IS_NEW, places)))
    before, after = values_of(old), values_of(new)
    if before is None or after is None:
        return _VALUE, new
    places = tuple(compress(count(), map(is_not, before, after)))
    return _PATCH, places, tuple([_change(before[at], after[at]) for at in places])


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


def _renewed(old: object, change: Change) -> object:
    """The result of applying a change to the old value."""
    if len(change) == 2:
        return change[1]
    what, places, new = change
    fresh = iter(new)
    if what == _SPLICE:
        assert isinstance(old, tuple)  # as the sender found it
        return tuple([next(fresh) if place < 0 else old[place] for place in places])
    if what == _MERGE:
        assert isinstance(old, dict)  # as the sender found it
        entries = list(old.items())
        return dict([next(fresh) if place < 0 else entries[place] for place in places])
    values = list(values_of(old) or ())
    for place, part in zip(places, new, strict=True):
        values[place] = _renewed(values[place], part)
    return made(type(old), values)


def dumps(value: object) -> bytes:
    """The pickle of a value; ``pickle.loads`` reads it."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = RECORDS
    pickler.dump(value)
    return buffer.getvalue()
