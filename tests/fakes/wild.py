# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes JSON objects wild: right in shape here and there, and wrong in type, size, depth and time.

One seed gives one object, so a failure is found again by its number.
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Iterator
from typing import Any, Final

WORDS: Final = (
    "",
    "²",
    "٣",
    "-1",
    "1e400",
    "9" * 5000,
    "0x10",
    "NaN",
    "a\nb\r\x1b[31m",
    "\x00",
    "../../etc/passwd",
    "/",
    ".",
    "..",
    "%s%n",
    "é" * 300,
    "x" * 100_000,
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30T25:61:61Z",
    "1970-01-01T00:00:00",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 99 Foo 99999 99:99:99 GMT",
)
NUMBERS: Final = (
    0,
    -1,
    1,
    100,
    101,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**400,
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e18,
    1e308,
    1e-320,
    float("inf"),
    float("-inf"),
    float("nan"),
)


def seeds(usual: int) -> Iterator[int]:
    """Numbers of what one test tries: few, or its part of ``ULLAGE_WILD_OBJECTS``.

    The same every time, but for ``ULLAGE_EXAMPLES=explore``; a failure names its number.
    """
    total = os.environ.get("ULLAGE_WILD_OBJECTS")
    explores = os.environ.get("ULLAGE_EXAMPLES") == "explore"
    first = time.time_ns() if explores else 0
    return iter(range(first, first + (int(total) // PARTS if total else usual)))


PARTS: Final = 40
"""A test tries several objects with each number."""


def deep(dice: random.Random) -> Any:
    """Lists or objects in one another, deeper than any reader should follow."""
    value: Any = 1
    for _ in range(dice.choice((40, 300, 2000))):
        value = [value] if dice.random() < 0.5 else {"a": value}
    return value


def value(dice: random.Random, depth: int = 2) -> Any:
    """Any JSON value."""
    kind = dice.randrange(12)
    if kind < 4:
        return dice.choice(WORDS)
    if kind < 8:
        return dice.choice(NUMBERS)
    if kind == 8:
        return dice.choice((None, True, False, [], {}, [None], [[]], {"": None}))
    if kind == 9 and dice.random() < 0.05:
        return deep(dice)
    if depth <= 0:
        return None
    if kind == 10:
        return [value(dice, depth - 1) for _ in range(dice.randrange(5))]
    return {dice.choice(WORDS)[:50]: value(dice, depth - 1) for _ in range(dice.randrange(5))}


def wild(dice: random.Random, good: Any, changes: int = 3) -> Any:
    """A copy of a good object with up to ``changes`` places changed."""
    made = {"root": copy.deepcopy(good)}
    for _ in range(dice.randint(1, changes)):
        holder, key = dice.choice(list(_places(made)))
        _change(dice, holder, key)
    return made["root"]


def _places(node: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every place of an object: its holder, and its key or index there."""
    if depth > 12:
        return
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key], depth + 1)


def _change(dice: random.Random, holder: Any, key: Any) -> None:
    how = dice.randrange(8)
    if how == 0 and isinstance(holder, dict) and "root" not in holder:
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.extend([holder[key]] * dice.choice((1, 3, 50)))
    elif how == 2 and isinstance(holder[key], list):
        holder[key].insert(dice.randint(0, len(holder[key])), value(dice))
    elif how == 3 and isinstance(holder[key], dict):
        holder[key][dice.choice(WORDS)[:100]] = value(dice)
    elif how == 4 and isinstance(holder[key], str):
        holder[key] += dice.choice(WORDS)
    elif how == 5 and isinstance(holder[key], int):
        holder[key] = holder[key] * dice.choice((-1, 2**32, 10**18))
    else:
        holder[key] = value(dice)
