# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bodies of what is applied as a whole: specs of GPUNodes, statuses, conditions.

Pure functions from actions to JSON. A body holds every field that we own and none that we do not,
because a field left out is a field given up.
"""

from __future__ import annotations

from ullage.api.contract import API_VERSION
from ullage.cluster.codecs.objects import condition_to_wire
from ullage.cluster.codecs.status import solve_to_wire, status_to_wire
from ullage.cluster.records.snapshot import WorkloadKind
from ullage.scheduling.model.plan import ApplyGPUNode, SetConditions, SetStatus

Body = dict[str, object]


def gpunode_body(action: ApplyGPUNode) -> Body:
    """A GPUNode's slice list and epoch, for server-side apply.

    ``spec.retire`` is not ours to own: the one that takes the node out writes it, and an apply
    that named it would take it back.
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
        | ({"observationsRead": action.observations_read} if action.observations_read else {}),
    }


def status_body(action: SetStatus, resource_version: str) -> Body:
    """A workload's whole status, for server-side apply to ``/status``."""
    return {
        "apiVersion": API_VERSION,
        "kind": action.owner.kind,
        "metadata": {
            "name": action.owner.name,
            "namespace": action.owner.namespace,
            "uid": action.owner.uid,
        }
        | ({"resourceVersion": resource_version} if resource_version else {}),
        "status": status_to_wire(WorkloadKind(action.owner.kind), action.status),
    }


def conditions_body(action: SetConditions) -> Body:
    """Our conditions on an object that is no workload, for server-side apply to ``/status``."""
    namespace = {"namespace": action.target.namespace} if action.target.namespace else {}
    seen = {} if action.reading else {"observedGeneration": action.generation}
    return {
        "apiVersion": API_VERSION,
        "kind": action.target.kind,
        "metadata": {"name": action.target.name, "uid": action.target.uid, **namespace},
        "status": {
            **seen,
            "conditions": [condition_to_wire(item) for item in action.conditions],
        }
        | ({"lastSolve": solve_to_wire(action.last_solve)} if action.last_solve else {}),
    }
