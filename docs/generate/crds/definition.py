# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions from the models, and the list of kinds."""

from __future__ import annotations

from functools import cache
from typing import Final

from docs.generate.crds.lint import faults
from docs.generate.crds.records import Described, composed, resolved, shaped
from docs.generate.crds.structural import Node, SchemaError, structural
from ullage.api.base import Column, Resource
from ullage.api.capacitypool import CapacityPool
from ullage.api.deviceprofile import DeviceProfile
from ullage.api.efficiencyreport import EfficiencyReport
from ullage.api.gpunode import GPUNode
from ullage.api.inferencedeployment import InferenceDeployment
from ullage.api.labels import GROUP, VERSION
from ullage.api.profilerequest import ProfileRequest
from ullage.api.schedulingpolicy import SchedulingPolicy
from ullage.api.trainingjob import TrainingJob
from ullage.api.tuningjob import TuningJob
from ullage.api.wire_fields import COUNT, Schema
from ullage.api.workloadprofile import WorkloadProfile
from ullage.cluster.codecs.efficiency import REPORT_STATUS
from ullage.cluster.codecs.objects import CONDITIONS
from ullage.cluster.codecs.profile import DEVICE_MODEL, PROFILE_STATUS
from ullage.cluster.codecs.status import (
    JOB_STATUS,
    POOL_STATUS,
    PROFILE_REQUEST_STATUS,
    QUOTA,
    SERVICE_STATUS,
    SOLVE,
    TUNING_STATUS,
)
from ullage.cluster.records.status import BY_TYPE

KINDS: Final[tuple[type[Resource], ...]] = (
    TrainingJob,
    InferenceDeployment,
    GPUNode,
    WorkloadProfile,
    DeviceProfile,
    SchedulingPolicy,
    CapacityPool,
    TuningJob,
    EfficiencyReport,
    ProfileRequest,
)
"""Every kind of the API group, in the order of the reference page."""

FRACTIONS_IN: Final = frozenset({WorkloadProfile, DeviceProfile})
"""Kinds whose numeric tables may hold fractions."""


def _conditions(description: str) -> dict[str, Schema]:
    keywords = CONDITIONS.schema.keywords | BY_TYPE.keywords
    return {"conditions": Schema(**keywords, description=description)}


def _generation(verb: str) -> dict[str, Schema]:
    text = f"Generation of the spec that this status {verb}."
    return {"observedGeneration": Schema(**COUNT.keywords, description=text)}


@cache
def _statuses() -> dict[type[Resource], Node]:
    """What the statuses are made from."""
    return {
        TrainingJob: shaped(JOB_STATUS.shape),
        InferenceDeployment: shaped(SERVICE_STATUS.shape)
        | {"description": "Observed state of the service and the operator's decisions about it."},
        WorkloadProfile: shaped(PROFILE_STATUS.shape),
        CapacityPool: shaped(POOL_STATUS.shape) | {"description": "Observed state of the pool."},
        TuningJob: shaped(TUNING_STATUS.shape) | {"description": "Observed state of the search."},
        EfficiencyReport: shaped(REPORT_STATUS.shape),
        ProfileRequest: shaped(PROFILE_REQUEST_STATUS.shape)
        | {"description": "Progress and result of the request."},
        DeviceProfile: composed(
            "Learned data about the device type.",
            _generation("reflects"),
            {
                "model": Schema(
                    type="object",
                    properties=DEVICE_MODEL.shape,
                    description="The model that predicts slowdowns on this device type.",
                )
            },
            _conditions("Invalid, when the newest version cannot be used."),
        ),
        SchedulingPolicy: composed(
            "Whether the policy is in force.",
            _generation("describes"),
            {
                "lastSolve": Schema(
                    type="object",
                    properties=SOLVE.shape,
                    description="The division in force; absent under FIFO.",
                ),
                "quota": Schema(
                    type="object",
                    properties=QUOTA.shape,
                    description="What tenants hold of their quota; absent where none has any. "
                    "Written when it changes, every ten seconds at most.",
                ),
            },
            _conditions(
                "SolverDegraded; Degraded while a price is missing; Invalid on every object that "
                "is not named `default`, and when the newest version cannot be read."
            ),
        ),
    }


_ROOT_FIELDS: Final[dict[str, Node]] = {
    "apiVersion": {
        "type": "string",
        "description": "Version of this object's schema; the API server fills it in.",
    },
    "kind": {"type": "string", "description": "Kind of this object."},
    # Kubernetes allows rules on the name here, and nothing else.
    "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
}


@cache  # bounded by the number of our kinds
def schema(kind: type[Resource]) -> Node:
    """The structural schema of a kind, made once: it is read, never changed.

    Raises:
        SchemaError: the model has no structural form, or the linter finds a fault.
    """
    source = kind.model_json_schema(by_alias=True, mode="serialization", schema_generator=Described)
    fields = {"spec": source["properties"]["spec"]}
    fields["status"] = _statuses().get(kind) or source["properties"]["status"]
    node = structural(resolved({**source, "properties": fields}))
    found = list(faults(node, numbers=kind in FRACTIONS_IN))
    if found:
        raise SchemaError(f"{kind.__name__}: " + "; ".join(found))
    converted = node["properties"]
    if not isinstance(converted, dict):
        raise SchemaError(f"{kind.__name__}: has no properties")
    return {**node, "required": ["spec"], "properties": {**_ROOT_FIELDS, **converted}}


def definition(kind: type[Resource]) -> Node:
    """The CustomResourceDefinition of a kind.

    Raises:
        SchemaError: see :func:`schema`.
    """
    info = kind.info
    version: Node = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": _subresources(scale=info.scale),
        "additionalPrinterColumns": [_column(column) for column in info.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{info.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "ullage"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": info.plural,
                "singular": info.singular,
                "shortNames": [info.short_name],
                "categories": ["ullage"],
            },
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _subresources(*, scale: bool) -> Node:
    if not scale:
        return {"status": {}}
    return {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def _column(column: Column) -> Node:
    body: Node = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return body | ({"priority": 1} if column.wide else {})
