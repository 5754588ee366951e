# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The owner claimed by a pod, and contradictions to the claim.

Labels, ownerReferences and names are untrusted: any user with permission to create pods writes
them. So a claim is valid only inside its own namespace, and only for a pod as the operator would
have created it. ``ClusterState`` checks that the workload of the claimed uid is the named one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.adoption import asks_to_share
from ullage.api.labels import LABEL_KIND, LABEL_LEAD, LABEL_ORDER, LABEL_OWNER, LABEL_RANK
from ullage.api.readers import JsonObject
from ullage.cluster.codecs.objects import Meta
from ullage.cluster.projection.adopted import scheduling_group, unit_of
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.names import (
    MAX_RANK,
    coordinator_name,
    is_order_name,
    number_of,
    pod_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claimed owner of a pod with our label.

    Attributes:
        owner: The named workload, always in the pod's own namespace. The uid is the controller's
            for a job's pod; for a replica it is empty, since a ReplicaSet controls it. Adopted pods
            belong to themselves, or to their gang.
        replica: It belongs to an InferenceDeployment, through a ReplicaSet.
        group: PodGroup of Kubernetes that an adopted pod names beside that.
        against: Reason why the operator cannot have created this pod; empty = it is consistent.
    """

    owner: ObjectRef
    replica: bool = False
    group: str = ""
    against: str = ""


def read_claim(meta: Meta, spec: JsonObject) -> Claim:
    """Read the claimed owner from labels, controller and name.

    Raises:
        WireError: the scheduling group is malformed.
    """
    kind, name = meta.labels.get(LABEL_KIND, ""), meta.labels.get(LABEL_OWNER, "")
    replica = kind == WorkloadKind.INFERENCE_DEPLOYMENT
    if replica:
        against = _against_replica(meta, name)
    elif kind == WorkloadKind.POD:
        against = "" if asks_to_share(meta.labels) else "no label of it asks for a device"
        group = scheduling_group(meta, spec)
        return Claim(owner=unit_of(meta), group=group, against=against)
    elif kind == WorkloadKind.TRAINING_JOB:
        against = _against_child(meta, name)
    else:
        against = f"its label {LABEL_KIND} names no kind that has pods"
    proven = not (against or replica) and meta.controller is not None
    uid = meta.controller.uid if proven and meta.controller is not None else ""
    owner = ObjectRef(kind=kind, namespace=meta.namespace, name=name, uid=uid)
    return Claim(owner=owner, replica=replica, against=against)


def _against_child(meta: Meta, job: str) -> str:
    """Reason why the pod was not made for the job; empty = it may have been."""
    holder = meta.controller
    if holder is None:
        return "no controller owns it"
    if not holder.names(WorkloadKind.TRAINING_JOB, job):
        return f"its controller is {holder.described}, not the TrainingJob {job}"
    if not holder.uid:
        return "its controller has no uid"
    if meta.labels.get(LABEL_LEAD) == "true":
        fits = meta.name == coordinator_name(job)
    elif meta.labels.get(LABEL_ORDER):
        fits = is_order_name(job, meta.name)
    else:
        rank = number_of(meta.labels.get(LABEL_RANK, ""))
        fits = 0 <= rank <= MAX_RANK and meta.name == pod_name(job, rank)
    return "" if fits else "its name is not the one that its part in the job has"


def _against_replica(meta: Meta, service: str) -> str:
    """Reason why the pod is no replica of the service; empty = it may be one.

    Labels alone prove nothing: the controller must be a ReplicaSet of the Deployment with the
    service's name. The pod's own name proves nothing: a ReplicaSet adopts pods by label.
    """
    holder = meta.controller
    if holder is None:
        return "no controller owns it"
    is_set = (holder.group, holder.kind) == ("apps", "ReplicaSet")
    if not is_set or holder.name.rpartition("-")[0] != service:
        return f"its controller is {holder.described}, not a ReplicaSet of the Deployment {service}"
    return ""
