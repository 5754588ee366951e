# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The name of a neighbour in observations."""

from __future__ import annotations


def class_seen_from(namespace: str, other: str, workload_class: str) -> str:
    """The class of a neighbour as a row of ``namespace`` names it.

    Classes are told apart by namespace: one of another namespace has that namespace as prefix.

    Args:
        namespace: of the class that the row is about.
        other: of the neighbour.
        workload_class: of the neighbour, "" = it has none.
    """
    if other == namespace or not workload_class:
        return workload_class
    return f"{other}/{workload_class}"
