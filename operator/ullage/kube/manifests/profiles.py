# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Apply bodies of profiles: what was learned of classes of work and of types of devices.

A body holds every field that the operator owns on that object, so that nothing it wrote before is
lost. No I/O.
"""

from __future__ import annotations

from ullage.api.contract import API_VERSION
from ullage.cluster.codecs.objects import condition_to_wire
from ullage.cluster.codecs.profile import device_model_to_wire, profile_status_to_wire
from ullage.cluster.records.snapshot import ObjectRef
from ullage.scheduling.model.plan import (
    CreateDeviceProfile,
    CreateProfile,
    SetDeviceModel,
    SetProfile,
)

Body = dict[str, object]


def profile_body(action: CreateProfile) -> Body:
    """A WorkloadProfile of a class that no one declared anything about."""
    return _headed(action.target) | {"spec": {"class": action.workload_class}}


def device_profile_body(action: CreateDeviceProfile) -> Body:
    """A DeviceProfile that says of a type what its nodes report."""
    return _headed(action.target) | {"spec": {"memory": f"{action.memory_mib}Mi"}}


def status_body(action: SetProfile | SetDeviceModel) -> Body:
    """The whole status of a profile, for server-side apply to ``/status``."""
    match action:
        case SetProfile():
            status = profile_status_to_wire(action.status)
        case SetDeviceModel():
            status = {"observedGeneration": action.generation}
            if action.model is not None:
                status["model"] = device_model_to_wire(action.model)
            if action.conditions:
                status["conditions"] = [
                    condition_to_wire(condition) for condition in action.conditions
                ]
    return _headed(action.target) | {"status": status}


def _headed(target: ObjectRef) -> Body:
    metadata: Body = {"name": target.name}
    metadata |= {"namespace": target.namespace} if target.namespace else {}
    metadata |= {"uid": target.uid} if target.uid else {}
    return {"apiVersion": API_VERSION, "kind": target.kind, "metadata": metadata}
