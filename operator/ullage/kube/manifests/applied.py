# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies that are applied as a whole: specs of GPUNodes, statuses, conditions, profiles.

Pure functions from actions to JSON. A body has exactly the fields that we own, because an omitted
field is released.
"""

from __future__ import annotations

from typing import Final

from ullage.api.adoption import ANNOTATION_SCHEDULING
from ullage.api.dataio import IoFairness
from ullage.api.labels import API_VERSION
from ullage.api.lanes import IterationPolicy
from ullage.cluster.codecs.objects import condition_to_wire
from ullage.cluster.codecs.pod_status import pod_conditions, scheduling_annotation
from ullage.cluster.codecs.profile import device_model_to_wire, profile_status_to_wire
from ullage.cluster.codecs.status import (
    pool_status_to_wire,
    profile_request_status_to_wire,
    quota_to_wire,
    solve_to_wire,
    status_to_wire,
    tuning_status_to_wire,
)
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.workload import WorkloadKind
from ullage.kube.manifests.tiers import child_metadata
from ullage.ports import JsonObject
from ullage.scheduling.model.plan import (
    ApplyGPUNode,
    CreateDeviceProfile,
    CreateProfile,
    CreateProfileRequest,
    OrderTraces,
    SetConditions,
    SetDeviceModel,
    SetPoolStatus,
    SetProfile,
    SetProfileRequestStatus,
    SetQuotaStatus,
    SetStatus,
    SetTuningStatus,
    TellPod,
)

Body = dict[str, object]
FAIR: Final = IterationPolicy.FAIR
OBSERVE: Final = IoFairness.OBSERVE


def gpunode_body(action: ApplyGPUNode) -> Body:
    """A GPUNode's slice list and epoch, for server-side apply.

    ``spec.retire`` is not ours: the actor that retires the node writes it, and an apply that
    included it would revert it.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUNode",
        "metadata": {
            "name": action.name,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": action.name, "uid": action.node_uid}
            ],
        }
        | ({"uid": action.uid} if action.uid else {}),
        "spec": {
            "epoch": action.epoch,
            "slices": [item.to_wire() for item in sorted(action.slices, key=lambda s: s.key)],
        }
        | ({"observationsRead": action.observations_read} if action.observations_read else {})
        | ({"lanePolicy": action.lane_policy.value} if action.lane_policy is not FAIR else {})
        | ({"ioFairness": action.io_fairness.value} if action.io_fairness is not OBSERVE else {}),
    }


def status_body(action: SetStatus, resource_version: str) -> Body:
    """A workload's whole status, for server-side apply to ``/status``."""
    if isinstance(action, TellPod):
        return _pod_status(action)
    body = _status(action.owner, status_to_wire(WorkloadKind(action.owner.kind), action.status))
    based = {"resourceVersion": resource_version} if resource_version else {}
    return body | {"metadata": _metadata(action.owner) | based}


def _pod_status(action: TellPod) -> Body:
    """Status of an adopted pod: our conditions and our state, in one apply to ``/status``.

    It depends on no version of the pod, which its kubelet writes continuously; the uid fences it.
    """
    memory = {ANNOTATION_SCHEDULING: scheduling_annotation(action.status)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(action.owner) | {"annotations": memory},
        "status": {"conditions": pod_conditions(action.status)},
    }


def conditions_body(action: SetConditions) -> Body:
    """Our conditions on an object that is no workload, for server-side apply to ``/status``."""
    status: Body = {} if action.reading else {"observedGeneration": action.generation}
    status["conditions"] = [condition_to_wire(item) for item in action.conditions]
    if action.last_solve:
        status["lastSolve"] = solve_to_wire(action.last_solve)
    return _status(action.target, status)


def quota_status_body(action: SetQuotaStatus) -> Body:
    """Status of tenants' quota, for server-side apply to ``/status``."""
    if action.status is None:
        return _status(action.target, {})
    return _status(action.target, {"quota": quota_to_wire(action.status)})


def pool_status_body(action: SetPoolStatus) -> Body:
    """The whole status of a CapacityPool; its uid fences a new object with the name."""
    return _status(action.target, pool_status_to_wire(action.status))


def tuning_status_body(action: SetTuningStatus) -> Body:
    """The whole status of a TuningJob, for the version it is based on: results are never lost."""
    return _based(action, tuning_status_to_wire(action.status))


def profile_request_status_body(action: SetProfileRequestStatus) -> Body:
    """The whole status of a ProfileRequest, for the version it is based on."""
    return _based(action, profile_request_status_to_wire(action.status))


def _based(action: SetTuningStatus | SetProfileRequestStatus, status: JsonObject) -> Body:
    based = {"resourceVersion": action.resource_version} if action.resource_version else {}
    return _status(action.target, status) | {"metadata": _metadata(action.target) | based}


def profile_request_body(action: CreateProfileRequest) -> Body:
    """A request for a trace of a job, which owns it: deleted with the job, it needs no care."""
    job = action.owner
    return {
        "apiVersion": API_VERSION,
        "kind": "ProfileRequest",
        "metadata": child_metadata(job, action.name, {}),
        "spec": {
            "jobRef": {"kind": job.kind, "name": job.name},
            "steps": action.steps,
            "ttlSecondsAfterFinished": action.ttl_s,
        },
    }


def trace_orders_body(action: OrderTraces) -> Body:
    """The orders of traces of an existing GPUNode: its uid keeps the apply from creating one.

    Without orders there is no ``spec``: it would be refused, as an empty status.
    """
    orders = [order.to_wire() for order in action.orders]
    return _headed(action.node) | ({"spec": {"traces": orders}} if orders else {})


def profile_status_body(action: SetProfile | SetDeviceModel) -> Body:
    """The whole status of a profile, for server-side apply to ``/status``."""
    if isinstance(action, SetProfile):
        return _status(action.target, profile_status_to_wire(action.status))
    status: Body = {"observedGeneration": action.generation}
    if action.model is not None:
        status["model"] = device_model_to_wire(action.model)
    if action.conditions:
        status["conditions"] = [condition_to_wire(condition) for condition in action.conditions]
    return _status(action.target, status)


def profile_body(action: CreateProfile) -> Body:
    """A WorkloadProfile of a class without declarations."""
    return _headed(action.target) | {"spec": {"class": action.workload_class}}


def device_profile_body(action: CreateDeviceProfile) -> Body:
    """A DeviceProfile with the reports of a type's nodes, and the rates of a known one."""
    body, spec = _headed(action.target), {"memory": f"{action.memory_mib}Mi"}
    if action.rates is None:
        return body | {"spec": spec}
    rates = action.rates
    annotations = {f"sources.ullage.dev/{field}": text for field, text in rates.sources}
    return body | {
        "metadata": _metadata(action.target) | {"annotations": annotations},
        "spec": {
            **spec,
            "peakFlops": {name.lower(): rate for name, rate in rates.peak_flops},
            "memoryBytesPerSecond": rates.memory_bytes_per_s,
        },
    }


def _status(target: ObjectRef, status: JsonObject) -> Body:
    """A status; an empty one is left out, since the API makes null of an object it empties."""
    return _headed(target) | ({"status": status} if status else {})


def _headed(target: ObjectRef) -> Body:
    return {"apiVersion": API_VERSION, "kind": target.kind, "metadata": _metadata(target)}


def _metadata(target: ObjectRef) -> Body:
    metadata = {"name": target.name, "namespace": target.namespace, "uid": target.uid}
    return {field: value for field, value in metadata.items() if value}
