# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""However long the texts that a tenant brings about, what is stored of them is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from docs.generate.crds.definition import schema
from ullage.api.base import Resource
from ullage.api.capacitypool import CapacityPool
from ullage.api.deviceprofile import DeviceProfile
from ullage.api.inferencedeployment import InferenceDeployment
from ullage.api.profilerequest import ProfileRequest
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import SchedulingPolicy
from ullage.api.trainingjob import TrainingJob
from ullage.api.tuningjob import TuningJob
from ullage.api.workloadprofile import WorkloadProfile
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
from ullage.cluster.records.pool import PoolStatus
from ullage.cluster.records.profile import DeviceModel, ProfileStatus
from ullage.cluster.records.status import QuotaStatus, SolveRecord, WorkloadStatus
from ullage.cluster.records.trace import ProfileRequestStatus
from ullage.cluster.records.tuning import TuningStatus
from ullage.cluster.records.workload import WorkloadKind
from ullage.kube.events import event_body
from ullage.scheduling.model.plan import Emit

LONG = "w" * 100_000
TOLD = frozenset({"message", "nearest", "chosen", "runner_up", "endpoint", "nodes", "text"})
"""Fields of records that hold what is told to people: names, refusals and errors make them long."""
MOST_BYTES = 512 * 1024
"""A third of what etcd takes of one object."""


def wild(kind: Any, told: bool = False) -> Any:
    """A value of a type with a long text wherever people are told something."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return wild(next(one for one in arguments if one is not NoneType), told)
    if origin is tuple:
        kinds = arguments[:1] * 3 if arguments[-1] is Ellipsis else arguments
        return tuple(wild(one, told) for one in kinds)
    if origin in (frozenset, set):
        return frozenset({wild(arguments[0], told)})
    if origin is not None and issubclass(origin, Mapping):
        return {wild(arguments[0]): wild(arguments[1], told)}
    if issubclass(kind, Enum):
        return next(iter(kind))
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(
            **{
                one.name: wild(hints[one.name], one.name in TOLD and hints[one.name] is str)
                for one in fields(kind)
                if one.init
            }
        )
    return {str: LONG if told else "1", int: 7, float: 7.0, bool: True}[kind]


def too_long(value: Any, node: Mapping[str, Any], path: str = "status") -> Iterator[str]:
    """Where a text is longer than the schema says, or the schema says nothing."""
    if isinstance(value, str) and len(value) > node.get("maxLength", 1024):
        yield f"{path}: {len(value)} characters, {node.get('maxLength')} allowed"
    if isinstance(value, list):
        for item in value:
            yield from too_long(item, node.get("items", {}), f"{path}[]")
    if isinstance(value, dict):
        below = node.get("properties", {})
        for name, child in value.items():
            yield from too_long(
                child, below.get(name, node.get("additionalProperties", {})), f"{path}.{name}"
            )


CASES: dict[str, tuple[type[Resource], Callable[[], Any]]] = {
    "job": (TrainingJob, lambda: status_to_wire(WorkloadKind.TRAINING_JOB, wild(WorkloadStatus))),
    "service": (
        InferenceDeployment,
        lambda: status_to_wire(
            WorkloadKind.INFERENCE_DEPLOYMENT, replace(wild(WorkloadStatus), spend=None)
        ),
    ),
    "profile": (WorkloadProfile, lambda: profile_status_to_wire(wild(ProfileStatus))),
    "device": (DeviceProfile, lambda: {"model": device_model_to_wire(wild(DeviceModel))}),
    "tuning": (TuningJob, lambda: tuning_status_to_wire(wild(TuningStatus))),
    "trace": (
        ProfileRequest,
        lambda: profile_request_status_to_wire(wild(ProfileRequestStatus)),
    ),
    "pool": (CapacityPool, lambda: pool_status_to_wire(wild(PoolStatus))),
    "policy": (
        SchedulingPolicy,
        lambda: {
            "lastSolve": solve_to_wire(wild(SolveRecord)),
            "quota": quota_to_wire(wild(QuotaStatus)),
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_people_are_told_is_cut_to_what_the_schema_takes(case: str) -> None:
    kind, make = CASES[case]
    body = make()
    assert list(too_long(body, schema(kind)["properties"]["status"])) == []
    assert len(json.dumps(body)) < MOST_BYTES


def test_an_event_is_cut_to_what_the_api_takes() -> None:
    target = ObjectRef(kind="TrainingJob", namespace="team", name="n" * 253, uid="u")
    said = Emit(target=target, warning=True, epoch=1, reason=Reason.NO_CAPACITY, text=LONG)
    body = event_body(said, 0.0, "operator")
    assert len(str(body["message"])) <= 1024
    assert len(json.dumps(body)) < 4096
