# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a workload's spec beyond its declaration: members, replicas, lanes.

The declarations in ``ullage.api`` read the spec with the bounds and the rules of the CRD, since the
API server may have an older one; rejected values become condition ``Invalid``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest
from ullage.api.inferencedeployment import InferenceDeploymentSpec
from ullage.api.readers import JsonObject, WireError, objects, quoted, section
from ullage.api.spec import SpecReader
from ullage.api.trainingjob import TrainingJobSpec
from ullage.api.words import ScalingPolicy
from ullage.cluster.codecs.objects import is_accelerator, strings, within
from ullage.cluster.records.spec_fields import RENDEZVOUS, Elasticity, ReplicaBounds

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


def check_name(name: str) -> None:
    """Check that pods and Services can be named after the workload.

    Raises:
        WireError: they cannot.
    """
    if not _NAME.fullmatch(name):
        raise WireError(
            f"metadata.name: {quoted(name)} must have at most 52 lower-case letters, digits and "
            "dashes and begin with a letter"
        )


_GPU: Final = SpecReader(GPURequest, "gpu")


def read_gpu(spec: JsonObject) -> GPURequest:
    """``spec.gpu``."""
    with within("gpu"):
        request = section(spec, "gpu")
    return with_lane(_GPU(request), "gpu")


def with_lane(request: GPURequest, path: str) -> GPURequest:
    """``spec.gpu`` of a container that shares a lane: its memory is both parts.

    Raises:
        WireError: the lane does not fit the rest.
    """
    lane = request.lane
    if lane is None:
        return request
    if request.mode is not GPUMode.FRACTIONAL:
        raise WireError(f"{path}.lane: belongs to mode Fractional, and to no other")
    if request.memory_mib:
        raise WireError(f"{path}.lane: says how much memory there is; leave memory out")
    return replace(request, memory_mib=lane.persistent_mib + lane.ephemeral_mib)


def read_accelerators(spec: JsonObject) -> tuple[str, ...]:
    """``spec.accelerators``."""
    keys = strings(spec, "accelerators")
    for index, key in enumerate(keys):
        if not is_accelerator(key):
            raise WireError(f"accelerators[{index}]: {quoted(key)} is no key of an accelerator")
    if len(keys) > 16:
        raise WireError(f"accelerators: {len(keys)} entries, at most 16")
    return keys


def scaling_of(spec: InferenceDeploymentSpec) -> ReplicaBounds | None:
    """Bounds where the operator scales; ``None`` = scaled by users or other autoscalers."""
    scaling = spec.scaling
    if scaling is None or scaling.policy is ScalingPolicy.EXTERNAL:
        return None
    return ReplicaBounds(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        idle_s=scaling.idle_s,
    )


def elasticity_of(spec: TrainingJobSpec) -> Elasticity | None:
    """The allowed numbers of members of a job; ``None`` = fixed."""
    bounds = spec.elasticity
    if bounds is None:
        return None
    tiers = bounds.backup
    if tiers is not None:
        tiers = replace(tiers, reliable=bounds.reliable_replicas, stage=bounds.tiers.stage)
    return Elasticity(
        min_replicas=bounds.min_replicas,
        max_replicas=bounds.max_replicas,
        on_notice=bounds.on_notice,
        in_place=bounds.in_place or tiers is not None,
        tiers=tiers,
        meets_elsewhere=_names_rendezvous(spec.template),
    )


def _names_rendezvous(template: JsonObject) -> bool:
    """True when the device container sets the place of rendezvous."""
    containers = objects(section(template, "spec"), "containers")
    variables = objects(containers[0], "env") if containers else []
    names = [variable.get("name") for variable in variables]
    return any(name in RENDEZVOUS for name in names)
