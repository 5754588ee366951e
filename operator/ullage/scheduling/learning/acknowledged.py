# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells nodes which of their observations they need not report again.

A node repeats an observation in every write of its status until it is acknowledged in
``GPUNode.spec.observationsRead``. An acknowledgement is a write of its own, so it waits until it
takes many observations or an old one away. Pure; the snapshot is all the memory there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from ullage.cluster.records.snapshot import GPUNodeRecord

ENOUGH_ROWS: Final = 8
"""Observations that are worth an acknowledgement at once."""
EVERY_S: Final = 300.0
"""How long fewer wait for one; carrying them that long costs less than the write."""
GIVE_UP_S: Final = 3600.0
"""An observation that no profile takes holds up those behind it for so long."""
NODES_MOST: Final = 20
"""Acknowledgements of one cycle, so that they never crowd out placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """Newest settled observation by node, and when the next acknowledgement is due (0 = none)."""

    up_to: dict[str, str] = field(default_factory=dict)
    wake_at: float = 0.0


def taken_in(nodes: Iterable[GPUNodeRecord], unsettled: Set[str], now: float) -> TakenIn:
    """The acknowledgements that are due.

    Args:
        nodes: all GPUNodes.
        unsettled: ids of observations that a profile will still take.
        now: seconds since the epoch.
    """
    due: list[tuple[float, str, str]] = []
    later: list[float] = []
    for node in nodes:
        settled = list(
            takewhile(
                lambda observation: (
                    observation.id not in unsettled or now - observation.at_s > GIVE_UP_S
                ),
                node.observations,
            )
        )
        if not settled or settled[-1].id == node.observations_read:
            continue
        oldest_s = min(observation.at_s for observation in settled)
        if len(settled) >= ENOUGH_ROWS or now - oldest_s >= EVERY_S:
            due.append((oldest_s, node.name, settled[-1].id))
        else:
            later.append(oldest_s + EVERY_S)
    due.sort()
    return TakenIn(
        up_to={name: newest for _, name, newest in due[:NODES_MOST]},
        wake_at=now + 1.0 if len(due) > NODES_MOST else min(later, default=0.0),
    )
