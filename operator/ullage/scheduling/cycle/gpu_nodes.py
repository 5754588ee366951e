# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUNodes: each managed Node gets one; others remove it.

``spec.retire`` belongs to the actor that retires the node. An object whose Node lost our label is
left unchanged: nothing new is placed there, and running work continues.
"""

from __future__ import annotations

from ullage.cluster.records.snapshot import Snapshot


def missing_gpu_nodes(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of our Nodes that have no GPUNode yet."""
    return tuple(
        sorted(
            name
            for name, node in snapshot.nodes.items()
            if node.managed and name not in snapshot.gpu_nodes
        )
    )
