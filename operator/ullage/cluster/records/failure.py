# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The last failure that was counted of a gang: ``status.lastFailure``, as a record and as JSON.

A lost node often makes other members fail first. When the loss is seen shortly afterwards, by this
leader or the next, this record says which counted failures to take back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.contract import JsonObject, WireError, section
from ullage.api.readers import count_of
from ullage.cluster.values.quantity import rfc3339, seconds

MOST_NODES: Final = 256
"""Nodes that one record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """Failures that were counted and may turn out to be the doing of a lost node.

    ``time`` is when the last of them was counted, ``count`` how many of ``restarts`` they are,
    ``nodes`` where the other members were, all of them well then; sorted.
    """

    time: float
    count: int
    nodes: tuple[str, ...]


def failure_to_wire(failure: FailureRecord | None) -> dict[str, object] | None:
    """``status.lastFailure`` as the API stores it; ``None`` = it is left out."""
    if failure is None:
        return None
    return {
        "time": rfc3339(failure.time),
        "count": failure.count,
        "nodes": list(failure.nodes[:MOST_NODES]),
    }


def failure_of(status: JsonObject) -> FailureRecord | None:
    """``lastFailure`` of a status as it was read back; ``None`` = none stands there.

    Raises:
        WireError: a field is missing or malformed.
    """
    if not status.get("lastFailure"):
        return None
    raw = section(status, "lastFailure")
    nodes = raw.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(one, str) for one in nodes):
        raise WireError(f"lastFailure.nodes: {nodes!r} is no list of names")
    return FailureRecord(
        time=seconds(raw.get("time"), "lastFailure.time"),
        count=min(count_of(raw, "count", None), 2**31 - 1),
        nodes=tuple(sorted(nodes)),
    )
