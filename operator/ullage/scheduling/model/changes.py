# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What changed between two snapshots; a record that did not is the very same object in both."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from operator import is_not
from typing import TypeVar

Key = TypeVar("Key")


def changed(old: Mapping[Key, object], new: Mapping[Key, object]) -> list[Key]:
    """Keys whose record is another one, new or gone."""
    if old is new:
        return []
    others = list(compress(new, map(is_not, map(old.get, new), new.values())))
    if len(old) + sum(key not in old for key in others) > len(new):
        others.extend(key for key in old if key not in new)
    return others
