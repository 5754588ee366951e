# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What changed between two snapshots; a record that did not is the very same object in both."""

from __future__ import annotations

from collections.abc import Mapping


def changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Keys whose record is another one, new or gone."""
    if old is new:
        return []
    return [
        *(key for key, one in new.items() if old.get(key) is not one),
        *(key for key in old if key not in new),
    ]
