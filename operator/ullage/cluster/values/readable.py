# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects unreadable objects, with the reason.

The decoder marks an incompletely decoded object with ``UNREADABLE``: the API server never sends
that field, because it drops unknown fields.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ullage.api.readers import WireError, quoted
from ullage.ports import JsonObject

UNREADABLE: Final = "ullage.dev/unreadable"
"""Field of an object with undecodable parts; its text has the problem and the place."""
MOST_LEVELS: Final = 64
"""Maximum nesting of objects and lists; a pod template needs less than 20."""
MOST_PARTS: Final = 16_384
"""Maximum objects and lists in one value: each costs time, however few bytes it has."""
TOO_MANY: Final = f"more than {MOST_PARTS} objects and lists"
TOO_DEEP: Final = f"nested more than {MOST_LEVELS} levels deep"


def outsized(value: object) -> str:
    """Reason not to traverse a value: too deep, or too many parts; empty = none."""
    level = [value] if isinstance(value, (dict, list)) else []
    room = MOST_PARTS
    for _ in range(MOST_LEVELS):
        contents = (part.values() if isinstance(part, dict) else part for part in level)
        inside = (
            inner
            for values in contents
            if not {dict, list}.isdisjoint(map(type, values))
            for inner in values
            if isinstance(inner, (dict, list))
        )
        level = list(islice(inside, room + 1))
        room -= len(level)
        if room < 0:
            return TOO_MANY
        if not level:
            return ""
    return TOO_DEEP


def complete(raw: JsonObject) -> None:
    """Check that an object was decoded completely.

    Raises:
        WireError: it was not; the text has the problem and the place.
    """
    fault = raw.get(UNREADABLE)
    if fault is not None:
        raise WireError(str(fault))


def complaint(error: Exception) -> str:
    """Text of an error about an object, for any kind of error; at most a line."""
    line = str(error) if isinstance(error, WireError) else f"{type(error).__name__}: {error}"
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


def called(raw: JsonObject) -> str:
    """Namespace and name of an object, as far as available."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    named = metadata if isinstance(metadata, dict) else {}
    words = [str(named.get(field) or "")[:_PATH] for field in ("namespace", "name")]
    return "/".join(word for word in words if word)


def shown(field: str) -> str:
    """A path for an error text, with untrusted parts sanitised."""
    plain = field.encode(errors="replace").decode()
    return plain if len(plain) <= _PATH else quoted(plain)


_LINE: Final = 1024
_PATH: Final = 128
