# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects of ours, other than workloads, whose newest version cannot be read.

A workload has a record of its own for that; these have the last good one, or none, and are told by
a condition. What is kept is bounded by the objects that exist.
"""

from __future__ import annotations

from collections.abc import Hashable, Set

from ullage.api.contract import section
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.objects import identity, read_conditions
from ullage.cluster.records.snapshot import ObjectRef, Unread
from ullage.cluster.records.status import Condition
from ullage.ports import JsonObject


class UnreadBook:
    """Problems of unreadable objects, and the conditions that the objects show."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Hashable], Unread] = {}

    def note(self, kind: str, key: Hashable, raw: JsonObject, text: str) -> bool:
        """An object as it is now, ``text`` empty where it can be read; says whether that is new."""
        found = _entry(kind, raw, text)
        if found is None or not (found.text or found.told):
            return self.forget(kind, key)
        if self._entries.get((kind, key)) == found:
            return False
        self._entries[kind, key] = found
        return True

    def forget(self, kind: str, key: Hashable) -> bool:
        """The object is gone, or all is well with it; says whether it was noted."""
        return self._entries.pop((kind, key), None) is not None

    def keep(self, kind: str, keys: Set[Hashable]) -> bool:
        """These are all objects of the kind that there are; says whether another was noted."""
        gone = [entry for entry in self._entries if entry[0] == kind and entry[1] not in keys]
        for one in gone:
            del self._entries[one]
        return bool(gone)

    def shown(self) -> tuple[Unread, ...]:
        """Every entry, in one order."""
        entries = self._entries.values()
        return tuple(
            sorted(entries, key=lambda entry: (entry.ref.kind, entry.ref.namespace, entry.ref.name))
        )


def _entry(kind: str, raw: JsonObject, text: str) -> Unread | None:
    try:
        meta = identity(raw)
        told = _told(raw)
    except Exception:  # counted already where it could not be read: there is nothing to tell
        return None
    ref = ObjectRef(kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)
    return Unread(ref=ref, generation=meta.generation, text=text, told=told)


def _told(raw: JsonObject) -> Condition | None:
    shown = read_conditions(section(raw, "status"))
    return next((condition for condition in shown if condition.type == ConditionType.INVALID), None)
