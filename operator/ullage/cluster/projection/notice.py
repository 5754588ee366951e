# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Notices on a Node as taints of the actor that will remove the machine.

The operator's own taint is never read as a notice: it follows from one, and would keep itself
alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ullage.api.interruptions import Interruption, InterruptionKind, sooner
from ullage.cluster.records.pod_shape import Taint

TAINT_KEY: Final = "ullage.dev/interruption"
"""Our own taint, which marks a termination notice in force."""
DRAIN_KEY: Final = "ullage.dev/drain"
"""A taint set by users: work should leave the node as before a termination without a time."""
NOTICE_TAINTS: Final[Mapping[str, InterruptionKind]] = {
    # Karpenter: voluntary disruption and interruptions alike; see PLANNED_TAINTS
    "karpenter.sh/disrupted": InterruptionKind.TERMINATE,
    "karpenter.sh/disruption": InterruptionKind.TERMINATE,
    # aws-node-termination-handler, with taints enabled
    "aws-node-termination-handler/spot-itn": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/scheduled-maintenance": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/asg-lifecycle-termination": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/rebalance-recommendation": InterruptionKind.REBALANCE,
    # Google Kubernetes Engine: about to stop the machine
    "cloud.google.com/impending-node-termination": InterruptionKind.TERMINATE,
    # cluster-autoscaler: it drains the node from this moment on
    "ToBeDeletedByClusterAutoscaler": InterruptionKind.TERMINATE,
    # kubectl ullage drain
    DRAIN_KEY: InterruptionKind.TERMINATE,
}
"""Notice of each taint, by its key. None of them has a time."""
PLANNED_TAINTS: Final = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""Taints set before the removal is certain: Karpenter sets its own, creates the replacement, and
removes the taint if none arrives; only then it deletes the node. The second key is that of
Karpenter before 1.0."""
CHOSEN_TAINTS: Final = frozenset(
    {
        *PLANNED_TAINTS,
        DRAIN_KEY,
        "ToBeDeletedByClusterAutoscaler",
        "aws-node-termination-handler/asg-lifecycle-termination",
    }
)
"""Taints of a voluntary removal. A provider's reclaim may be the cause of Karpenter's too, but
nothing on the node shows it."""


def notice_of_taints(taints: Iterable[Taint], *, deleting: bool = False) -> Interruption | None:
    """The most severe notice among a node's taints; ``None`` without one.

    Ties go to the provider's notice, which is used for learning.

    Args:
        taints: Taints of the node.
        deleting: The Node object is being deleted: planned removals are executed.
    """
    interruption: Interruption | None = None
    for taint in sorted(taints, key=lambda taint: taint.key in CHOSEN_TAINTS):
        kind = NOTICE_TAINTS.get(taint.key)
        if kind is None:
            continue
        if taint.key in PLANNED_TAINTS and not deleting:
            kind = InterruptionKind.REBALANCE
        interruption = sooner(interruption, Interruption(kind=kind, source=taint.key))
    return interruption
