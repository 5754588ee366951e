# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The Node says it too: a taint of ours while a notice to terminate is in force.

Other schedulers stay away by it, and it marks that the notice was told. It is the only thing of a
Node that the operator ever writes; taints of others are left exactly as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ullage.api.interruptions import Interruption
from ullage.api.readers import JsonObject, objects, section
from ullage.api.reasons import Reason
from ullage.cluster.projection.notice import TAINT_KEY
from ullage.cluster.records.snapshot import NodeRecord, ObjectRef, Snapshot
from ullage.ports import JsonPatch
from ullage.scheduling.inventory.interruptions import words
from ullage.scheduling.model.plan import Emit, TaintNode
from ullage.scheduling.model.view import View

_EFFECT: Final = "NoSchedule"


def node_taints(
    snapshot: Snapshot, notices: Mapping[str, Interruption], epoch: int
) -> tuple[TaintNode, ...]:
    """Taints to set, and those to lift because the notice was withdrawn.

    A node without a GPUNode keeps its taint: no one knows what its agent would say.
    """
    found: list[TaintNode] = []
    for name in sorted(snapshot.nodes):
        node = snapshot.nodes[name]
        notice = notices.get(name)
        if notice is None and not node.taints:
            continue
        tainted = any(taint.key == TAINT_KEY for taint in node.taints)
        if notice is not None and not tainted:
            found.append(_taint(node, notice.kind.value, epoch, words(notice)))
        elif notice is None and tainted and not (node.managed and name not in snapshot.gpu_nodes):
            found.append(_taint(node, "", epoch, "the notice was withdrawn"))
    return tuple(found)


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
    """The news for owners of pods on a node whose notice is just being told."""
    news: list[Emit] = []
    for step in taints:
        record = view.snapshot.gpu_nodes.get(step.node.name)
        if not step.value or record is None:
            continue
        told: dict[str, list[str]] = {}
        for wanted in record.desired:
            pod = view.snapshot.pods.get(wanted.key.pod_uid)
            if pod is not None and not pod.stage.finished:
                names = told.setdefault(pod.owner.uid, [])
                names.extend((pod.name,) if pod.name not in names else ())
        for uid in sorted(told):
            owner = view.snapshot.workloads.get(uid)
            if owner is not None:
                where = f"{step.node.name}, the node of {', '.join(sorted(told[uid]))}"
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


def taint_patch(held: JsonObject, value: str, key: str = TAINT_KEY) -> JsonPatch | None:
    """The patch that sets or lifts a taint of ours on a Node as it was just read.

    It holds for this version of the Node only, because the list of taints has many writers.

    Args:
        held: the Node.
        value: value of ours; empty = lift it.
        key: key of ours.

    Returns:
        ``None`` where the Node is as it should be.
    """
    before = [dict(one) for one in objects(section(held, "spec"), "taints")]
    others = [one for one in before if one.get("key") != key]
    ours = {"key": key, "value": value, "effect": _EFFECT}
    if (ours in before) if value else (others == before):
        return None
    after = [*others, ours] if value else others
    version = section(held, "metadata").get("resourceVersion", "")
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    if "spec" not in held:
        return [unchanged, {"op": "add", "path": "/spec", "value": {"taints": after}}]
    return [unchanged, {"op": "add", "path": "/spec/taints", "value": after}]
