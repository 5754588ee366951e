# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Interruption notices on the wire: a provider says that it is about to take a node back.

Standard library only. A notice is told apart by its node and its deadline: the same one, heard
twice, is one notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.api.readers import JsonObject, WireError, text
from ullage.api.times import moment_of, rfc3339


class InterruptionKind(StrEnum):
    """What a provider says of a node."""

    TERMINATE = "Terminate"
    """The node goes: whatever is on it must leave before the deadline."""
    REBALANCE = "Rebalance"
    """The node is more likely to go than before: nothing new belongs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A notice about one node.

    ``deadline_s`` is when the node goes, seconds since the epoch in whole seconds, ``None`` where
    no one said; ``source`` is who gave the notice: a provider or the key of a taint.
    """

    kind: InterruptionKind
    deadline_s: float | None = None
    source: str = ""

    def to_wire(self) -> dict[str, object]:
        """The notice as the API stores it; what is not known is left out."""
        body: dict[str, object] = {"kind": self.kind.value}
        if self.deadline_s is not None:
            body["deadline"] = rfc3339(self.deadline_s)
        if self.source:
            body["source"] = self.source
        return body

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Interruption:
        """Read a notice.

        Raises:
            WireError: the kind is missing or unknown, or the deadline is no RFC 3339 time.
        """
        try:
            kind = InterruptionKind(text(raw, "kind"))
        except ValueError as error:
            raise WireError(f"kind: {error}") from error
        said = text(raw, "deadline", "")
        return cls(
            kind=kind,
            deadline_s=moment_of(said, "deadline") if said else None,
            source=text(raw, "source", ""),
        )


def sooner(one: Interruption | None, other: Interruption | None) -> Interruption | None:
    """Of two notices about one node the one to act on: the graver, then the earlier deadline."""
    if one is None or other is None:
        return one or other
    if one.kind is not other.kind:
        return one if one.kind is InterruptionKind.TERMINATE else other
    if other.deadline_s is None:
        return one
    return other if one.deadline_s is None or other.deadline_s < one.deadline_s else one
