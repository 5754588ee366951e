# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A taint on Nodes while a notice to terminate is in force.

It keeps other schedulers away and marks that the Events about the notice were emitted. It is the
only field of a Node that the operator writes; taints of others are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.interruptions import Interruption
from ullage.api.readers import JsonObject, objects, section
from ullage.api.reasons import Reason
from ullage.cluster.projection.notice import TAINT_KEY
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import Snapshot
from ullage.ports import JsonPatch
from ullage.scheduling.inventory.interruptions import words
from ullage.scheduling.model.plan import Emit, TaintNode
from ullage.scheduling.model.view import View

_EFFECT: Final = "NoSchedule"


def node_taints(
    snapshot: Snapshot, notices: Mapping[str, Interruption], epoch: int
) -> tuple[TaintNode, ...]:
    """Taints to set, and those to remove because the notice was withdrawn.

    A node without a GPUNode keeps its taint: the state of its notice is unknown.
    """
    steps: list[TaintNode] = []
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        notice = notices.get(name)
        if notice is None and not node.taints:
            continue
        tainted = any(taint.key == TAINT_KEY for taint in node.taints)
        if notice is not None and not tainted:
            steps.append(_taint(node, notice.kind.value, epoch, words(notice)))
        elif notice is None and tainted and not (node.managed and name not in snapshot.gpu_nodes):
            steps.append(_taint(node, "", epoch, "the notice was withdrawn"))
    return tuple(steps)


def _taint(node: NodeRecord, value: str, epoch: int, text: str) -> TaintNode:
    return TaintNode(
        node=ObjectRef(kind="Node", namespace="", name=node.name, uid=node.uid),
        value=value,
        epoch=epoch,
        reason=Reason.EVICTION_NOTICE,
        text=text,
    )


def eviction_notices(
    view: View, notices: Mapping[str, Interruption], taints: Sequence[TaintNode]
) -> list[Emit]:
    """Events for the owners of pods on nodes that get a taint in this cycle."""
    news: list[Emit] = []
    for step in taints:
        record = view.snapshot.gpu_nodes.get(step.node.name)
        if not step.value or record is None:
            continue
        pods_by_owner: dict[str, list[str]] = {}
        for wanted in record.desired:
            pod = view.snapshot.pods.get(wanted.key.pod_uid)
            if pod is not None and not pod.stage.finished:
                names = pods_by_owner.setdefault(pod.owner.uid, [])
                names.extend((pod.name,) if pod.name not in names else ())
        for uid in sorted(pods_by_owner):
            owner = view.snapshot.workloads.get(uid)
            if owner is not None:
                where = f"{step.node.name}, the node of {', '.join(sorted(pods_by_owner[uid]))}"
                news.append(
                    Emit(
                        target=owner.ref,
                        warning=True,
                        epoch=view.settings.epoch,
                        reason=Reason.EVICTION_NOTICE,
                        text=f"{where}: {words(notices[step.node.name])}",
                    )
                )
    return news


def taint_patch(node: JsonObject, value: str, key: str = TAINT_KEY) -> JsonPatch | None:
    """The patch that sets or removes our taint on a Node, for the version just read.

    It applies only to this version of the Node, because taints have many writers.

    Args:
        node: The Node.
        value: Value of the taint; empty = remove it.
        key: Key of the taint.

    Returns:
        ``None`` when the Node needs no change.
    """
    before = [dict(taint) for taint in objects(section(node, "spec"), "taints")]
    others = [taint for taint in before if taint.get("key") != key]
    ours = {"key": key, "value": value, "effect": _EFFECT}
    if (ours in before) if value else (others == before):
        return None
    after = [*others, ours] if value else others
    version = section(node, "metadata").get("resourceVersion", "")
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    if "spec" not in node:
        return [unchanged, {"op": "add", "path": "/spec", "value": {"taints": after}}]
    return [unchanged, {"op": "add", "path": "/spec/taints", "value": after}]
