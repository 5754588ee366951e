# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Classifies how new a co-location is on this accelerator.

A word for the mixture as a whole: its least known tenant decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ullage.engines.admission.records import Group

KNOWN_ROWS: Final = 10
"""Rows from which a class counts as known."""


def group_of(
    classes: Sequence[tuple[str, str]],
    *,
    rows: Mapping[str, int],
    families: Collection[str],
    seen: Collection[tuple[str, str]],
) -> Group:
    """Novelty group of a mixture.

    Args:
        classes: Class and family of every tenant.
        rows: Co-location rows of each class on this accelerator.
        families: Families of which some class has rows there.
        seen: Pairs of classes, each sorted, that were seen together there.
    """
    if len(classes) > 2:
        return Group.MANY
    known = [rows.get(workload_class, 0) for workload_class, _ in classes]
    if len(classes) == 2 and tuple(sorted(workload_class for workload_class, _ in classes)) in seen:
        return Group.SEEN_PAIR
    if any(
        not count and family not in families
        for (_, family), count in zip(classes, known, strict=True)
    ):
        return Group.NEW_FAMILY
    return Group.KNOWN if min(known, default=0) >= KNOWN_ROWS else Group.NEW_CONFIG
