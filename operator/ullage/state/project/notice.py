# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Notices that stand on a Node as taints of whoever is about to take the machine away.

A taint of ours is never read as a notice: it follows from one, and would keep itself alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ullage.api.contract import Interruption, InterruptionKind, sooner
from ullage.state.shapes import Taint

TAINT_KEY: Final = "ullage.dev/interruption"
"""Our own taint, which says that a notice to terminate is in force."""
NOTICE_TAINTS: Final[Mapping[str, InterruptionKind]] = {
    # Karpenter: any voluntary disruption and any interruption it was told of
    "karpenter.sh/disrupted": InterruptionKind.TERMINATE,
    # aws-node-termination-handler, with taints enabled
    "aws-node-termination-handler/spot-itn": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/scheduled-maintenance": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/asg-lifecycle-termination": InterruptionKind.TERMINATE,
    "aws-node-termination-handler/rebalance-recommendation": InterruptionKind.REBALANCE,
    # Google Kubernetes Engine: about to stop the machine
    "cloud.google.com/impending-node-termination": InterruptionKind.TERMINATE,
    # cluster-autoscaler: the node is being scaled down
    "ToBeDeletedByClusterAutoscaler": InterruptionKind.TERMINATE,
}
"""What each taint says, by its key. None of them tells when the node goes."""


def notice_of_taints(taints: Iterable[Taint]) -> Interruption | None:
    """The gravest notice among a node's taints; ``None`` where there is none."""
    found: Interruption | None = None
    for taint in taints:
        kind = NOTICE_TAINTS.get(taint.key)
        if kind is not None:
            found = sooner(found, Interruption(kind=kind, source=taint.key))
    return found
