# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Interruption notices on the wire: a provider says that it is about to take a node back.

Standard library only. A notice is told apart by its node and its deadline: the same one, heard
twice, is one notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ullage.api.codec import Wire
from ullage.api.readers import JsonObject, text
from ullage.api.times import moment_of, rfc3339
from ullage.api.wire_fields import NEEDED, TIME, Kind, Word, known_word


class InterruptionKind(StrEnum):
    """Notices of a provider about a node."""

    TERMINATE = "Terminate"
    """The node goes: whatever is on it must leave before the deadline."""
    REBALANCE = "Rebalance"
    """The node is more likely to go than before: nothing new belongs there."""


def _deadline(raw: JsonObject, field: str) -> float | None:
    stated = text(raw, field)
    return moment_of(stated, field) if stated else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(Wire):
    """The provider's interruption notice for the machine."""

    kind: Annotated[InterruptionKind, known_word(InterruptionKind), NEEDED]
    """`Terminate`: the provider takes the machine back. `Rebalance`: an interruption has become
    more likely."""
    deadline_s: Annotated[float | None, Kind(_deadline, rfc3339, schema=TIME), "deadline"] = None
    """Time at which the machine goes; absent if the provider did not say."""
    source: Word = ""
    """Source of the notice: EC2, GCE or Azure."""


def sooner(notice: Interruption | None, other: Interruption | None) -> Interruption | None:
    """Of two notices about one node the one to act on: the graver, then the earlier deadline."""
    if notice is None or other is None:
        return notice or other
    if notice.kind is not other.kind:
        return notice if notice.kind is InterruptionKind.TERMINATE else other
    if other.deadline_s is None:
        return notice
    return other if notice.deadline_s is None or other.deadline_s < notice.deadline_s else notice
