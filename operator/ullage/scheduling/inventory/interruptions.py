# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The notice in force on a node, from any source, and its text.

Texts have no remaining time: they are stored in statuses, and a steady state writes nothing.
"""

from __future__ import annotations

from ullage.api.interruptions import Interruption, InterruptionKind, sooner
from ullage.api.times import rfc3339
from ullage.cluster.projection.notice import CHOSEN_TAINTS, DRAIN_KEY
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.snapshot import Snapshot


def notice_on(node: NodeRecord, record: GPUNodeRecord | None) -> Interruption | None:
    """The earlier of the agent's notice and that of the node's taints."""
    notice = record.interruption if record is not None else None
    return sooner(notice, node.interruption) if notice is not None else node.interruption


def terminations(snapshot: Snapshot) -> dict[str, Interruption]:
    """The managed nodes under notice, by name, with the notice of each."""
    notices: dict[str, Interruption] = {}
    for name, node in snapshot.nodes.items():
        if not node.managed:
            continue
        notice = notice_on(node, snapshot.gpu_nodes.get(name))
        if notice is not None and notice.kind is InterruptionKind.TERMINATE:
            notices[name] = notice
    return notices


def words(notice: Interruption) -> str:
    """The text of a notice: the machine's or node's removal, its source, and its time."""
    who = notice.source or "the provider"
    if notice.source == DRAIN_KEY:
        return f"the node is being drained (taint {who})"
    if notice.source in CHOSEN_TAINTS:
        if notice.kind is InterruptionKind.REBALANCE:
            return f"the node is to be removed when its replacement is there (taint {who})"
        return f"the node is being removed (taint {who})"
    if notice.kind is InterruptionKind.REBALANCE:
        return f"the machine is likely to be taken away soon (notice of {who})"
    if notice.deadline_s is None:
        return f"the machine is about to be taken away (notice of {who})"
    return f"the machine is taken away at {rfc3339(notice.deadline_s)} (notice of {who})"


def termination(snapshot: Snapshot, name: str) -> Interruption | None:
    """The notice by which a node terminates; ``None`` = it stays."""
    node = snapshot.nodes.get(name)
    notice = notice_on(node, snapshot.gpu_nodes.get(name)) if node is not None else None
    return notice if notice is not None and notice.kind is InterruptionKind.TERMINATE else None


def left_s(snapshot: Snapshot, name: str, now: float) -> float | None:
    """Seconds until a node terminates; ``None`` = it stays, or there is no deadline."""
    notice = termination(snapshot, name)
    if notice is None or notice.deadline_s is None:
        return None
    return notice.deadline_s - now
