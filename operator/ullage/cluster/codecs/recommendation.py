# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Recommended accelerators of a job as JSON, both ways; what was written reads back equal.

The list is bounded: the best come first, so what does not fit is what matters least.
"""

from __future__ import annotations

from typing import Final

from ullage.api.contract import Reason, WireError, text, whole
from ullage.cluster.codecs.objects import optional_text
from ullage.cluster.records.status import Recommended
from ullage.ports import JsonObject

MOST_ROWS: Final = 20
MOST_TYPES: Final = 8
"""Rows of types among them; the others are other numbers of devices."""
MESSAGE_LIMIT: Final = 1024


def recommendation_to_wire(rows: tuple[Recommended, ...]) -> list[dict[str, object]]:
    """``status.recommendation`` as the API stores it."""
    return [_to_wire(rank, row) for rank, row in enumerate(rows[:MOST_ROWS])]


def _to_wire(rank: int, row: Recommended) -> dict[str, object]:
    numbers = {
        "seconds": row.total_s,
        "lowSeconds": row.low_s,
        "highSeconds": row.high_s,
        "memoryNeedMiB": row.need_mib,
    }
    words = {
        "cost": row.cost,
        "source": row.source,
        "confidence": row.confidence,
        "message": row.message[:MESSAGE_LIMIT],
    }
    body: dict[str, object] = {
        "accelerator": row.accelerator,
        "rank": rank,
        "devices": row.devices,
        "reason": row.reason.value,
    }
    body |= {name: value for name, value in numbers.items() if value is not None}
    return body | {name: value for name, value in words.items() if value}


def recommendation_from_wire(raw: list[JsonObject]) -> tuple[Recommended, ...]:
    """The list that was read back, by rank; one with words of another version counts as none.

    Raises:
        WireError: a field is missing or of the wrong type.
    """
    try:
        return tuple(_from_wire(one) for one in sorted(raw, key=lambda one: whole(one, "rank")))
    except _UnknownWord:
        return ()


class _UnknownWord(Exception):
    """A reason that this version does not know."""


def _from_wire(raw: JsonObject) -> Recommended:
    word = text(raw, "reason")
    if word not in _REASONS:
        raise _UnknownWord(word)
    return Recommended(
        accelerator=text(raw, "accelerator"),
        devices=whole(raw, "devices"),
        reason=Reason(word),
        total_s=_number(raw, "seconds"),
        low_s=_number(raw, "lowSeconds"),
        high_s=_number(raw, "highSeconds"),
        cost=optional_text(raw, "cost"),
        source=optional_text(raw, "source"),
        confidence=optional_text(raw, "confidence"),
        need_mib=_number(raw, "memoryNeedMiB"),
        message=optional_text(raw, "message"),
    )


def _number(raw: JsonObject, field: str) -> int | None:
    if raw.get(field) is None:
        return None
    value = whole(raw, field)
    if value < 0:
        raise WireError(f"{field}: {value} must be at least 0")
    return value


_REASONS: Final = frozenset(one.value for one in Reason)
