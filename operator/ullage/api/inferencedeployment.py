# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""InferenceDeployment: replicas that serve requests, on shared or whole devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import AGE, Column, KindInfo, ObjectName, Resource, condition_column
from ullage.api.batching import Batching
from ullage.api.gpurequest import Accelerators, GPURequest, TrustDomain
from ullage.api.objective import LatencySLO
from ullage.api.podtemplate import Runtime, ServingTemplate
from ullage.api.readers import JsonObject
from ullage.api.rules import (
    BATCHING_NEEDS_SLO,
    ITL_NEEDS_FIRST_TOKEN,
    PERCENTILE_IN_RANGE,
    REPLICAS_WITHIN_SCALING,
    SCALING_KEEPS_ONE,
    SCALING_NEEDS_SLO,
    SCALING_ORDER,
    WORKLOAD_NAME,
    validations,
)
from ullage.api.sharing import OfferedLoad, SharingRules
from ullage.api.spec import SAYS_NOTHING, ReadApart, Spec, SpecReader, Whole, Without
from ullage.api.words import ScalingPolicy

MOST_SERVING: Final = 1024
Replicas = Annotated[int, Whole(0, MOST_SERVING)]


_WHO_SCALES = f"Who sets spec.replicas. {ScalingPolicy.explained()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling(Spec):
    """Bounds of spec.replicas, for people and autoscalers alike, and who scales within them."""

    rules: ClassVar = (SCALING_ORDER,)

    min_replicas: Replicas
    """Minimum number of replicas. 0 with policy SLO scales a service without requests to zero: the
    router (spec.batching) holds the next request while a replica starts."""
    max_replicas: Replicas
    """Maximum number of replicas."""
    policy: Annotated[ScalingPolicy, Field(description=_WHO_SCALES)] = ScalingPolicy.EXTERNAL
    idle_s: Annotated[int, Whole(10, 604_800), Field(alias="idleSeconds")] = 300
    """Time without a request after which the last replica is removed, with policy SLO and
    minReplicas 0. When a request follows soon, the time doubles, up to sixteen times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceDeploymentSpec(Spec):
    """The service, and the devices that it needs."""

    rules: ClassVar = (
        REPLICAS_WITHIN_SCALING,
        SCALING_NEEDS_SLO,
        SCALING_KEEPS_ONE,
        BATCHING_NEEDS_SLO,
        ITL_NEEDS_FIRST_TOKEN,
    )

    template: Annotated[JsonObject, ReadApart(ServingTemplate)]
    """Template of the pods. The first container gets the device, and its ports become the
    Service's."""
    replicas: Replicas = 1
    """Number of replicas; `kubectl scale`, autoscalers, or the operator (scaling.policy SLO) set
    it."""
    scaling: Scaling | None = None
    """Bounds of replicas; the API server refuses values outside them."""
    slo: Annotated[LatencySLO, Field(json_schema_extra=validations(PERCENTILE_IN_RANGE))] | None = (
        None
    )
    """Latency objective of requests; it protects the service's slices."""
    batching: Batching | None = None
    """A router before the replicas: it batches requests before their deadlines and spreads them.
    The Service then leads to it; absent = to the replicas."""
    load: OfferedLoad | None = None
    """Offered load of the service; absent = as measured."""
    gpu: GPURequest = field(default_factory=GPURequest)
    """Devices of each replica."""
    runtime: Runtime = field(default_factory=Runtime)
    """What Ullage adds inside the container. A change rolls the replicas."""
    sharing: Annotated[SharingRules, Without(("allowPacking",))] = field(
        default_factory=SharingRules
    )
    """What sharing may do to the service and to its neighbours."""
    accelerators: Accelerators = ()
    """Accelerator types that the service may use, by key such as nvidia-h100-80gb-hbm3; empty means
    any."""
    trust_domain: Annotated[TrustDomain, SAYS_NOTHING] = ""
    """Workloads share a device only within one trust domain; absent means this namespace. The
    SchedulingPolicy must grant a named domain to this namespace in `trustDomains`."""
    profile_ref: Annotated[ObjectName, SAYS_NOTHING] = ""
    """WorkloadProfile in this namespace that describes how the service uses a device."""


read_service_spec: Final = SpecReader(InferenceDeploymentSpec)


class InferenceDeployment(Resource):
    """A service that answers requests from replicas on shared or whole devices.

    The operator creates a Deployment and a Service of the same name, finds devices for the
    replicas, and explains their placement in `status.decision`.
    """

    model_config = ConfigDict(json_schema_extra=validations(WORKLOAD_NAME))
    info: ClassVar[KindInfo] = KindInfo(
        plural="inferencedeployments",
        singular="inferencedeployment",
        short_name="infd",
        namespaced=True,
        scale=True,
        columns=(
            Column(name="Phase", path=".status.phase", description="Phase of the service."),
            Column(
                name="Ready",
                path=".status.readyReplicas",
                type="integer",
                description="Replicas that answer requests.",
            ),
            Column(
                name="Replicas",
                path=".spec.replicas",
                type="integer",
                description="Desired replicas.",
            ),
            Column(
                name="P99",
                path=".status.sharing.latencyMs",
                type="integer",
                description="Latency at the objective's percentile, in milliseconds.",
            ),
            Column(
                name="Attainment",
                path=".status.sharing.attainment",
                description="Fraction of windows that met the objective.",
            ),
            Column(
                name="Share",
                path=".status.sharing.percent",
                type="integer",
                description="Share of the device, in percent.",
            ),
            Column(name="Cost", path=".status.spend.total", description="Spent so far."),
            AGE,
            Column(
                name="Predicted",
                path=".status.sharing.predicted",
                description="Predicted slowdown of the slowest replica.",
                wide=True,
            ),
            condition_column("SLO", "SLOMet", "Whether the objective is met.", wide=True),
            Column(
                name="Reason",
                path=".status.decision.reason",
                description="The limit that binds, or why it runs where it does.",
                wide=True,
            ),
            Column(
                name="Scaling",
                path=".status.scaling.reason",
                description="Reason of the number of replicas, with scaling.policy SLO.",
                wide=True,
            ),
            Column(
                name="Endpoint",
                path=".status.endpoint",
                description="Address of the service inside the cluster.",
                wide=True,
            ),
        ),
    )

    kind: Literal["InferenceDeployment"] = "InferenceDeployment"
    """Kind of the object."""
    spec: InferenceDeploymentSpec
    """What to serve, and on what."""
