# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""SchedulingPolicy: how the whole cluster decides; the object named ``default`` binds."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import (
    AGE,
    SET,
    Column,
    KindInfo,
    Model,
    ObjectName,
    Resource,
    Time,
    condition_column,
    list_map,
)
from ullage.api.gpurequest import Accelerator, DomainName
from ullage.api.lanes import IterationPolicy
from ullage.api.profilerows import ClassName
from ullage.api.rules import LENDING_WITHIN_NOMINAL, LIMITS_NEED_COHORT, validations
from ullage.api.spot import DecisionPeriod, Spot
from ullage.api.words import Inner, Objective, ReclaimWithinCohort, RiskPredictor


class Packing(Model):
    """How full a shared device may be."""

    max_percent_sum: Annotated[int, Field(ge=10, le=400, json_schema_extra={"format": "int32"})] = (
        100
    )
    """Ceiling of the sum of shares on one device, in percent; above 100 the shares overlap."""


class PolicySharing(Model):
    """How workloads that share a device take turns."""

    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Whose step is next among the jobs that take turns in a lane (`spec.gpu.lane`): `FAIR` the one
    that ran least, `RR` the one with the fewest steps, `PACK` the first that asked, `FIFO` the
    first that came, until it ends, `SRTF` the one with the least time left, counting its wait."""


_Int32 = Field(json_schema_extra={"format": "int32"})


Namespace = Annotated[str, Field(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|[*])$")]
"""Name of a namespace; `*` = every one."""
Namespaces = Annotated[tuple[Namespace, ...], Field(max_length=1024, json_schema_extra=SET)]


QuotaPercent = Annotated[int, Field(ge=0, le=10_000_000), _Int32]
"""Percent of devices: 100 = one whole device."""


class Quota(Model):
    """Devices of one accelerator type that a tenant may hold, in percent of devices."""

    model_config = ConfigDict(json_schema_extra=validations(LENDING_WITHIN_NOMINAL))

    accelerator: Accelerator
    """Accelerator type that the quota is of, by key as in `spec.accelerators` of a workload."""
    nominal_quota: QuotaPercent
    """What the tenant may hold without borrowing, in percent of devices: 100 = one device, whole or
    in shares that add up to it."""
    borrowing_limit: QuotaPercent | None = None
    """Most that the tenant may borrow from its cohort above nominalQuota, in percent of devices;
    without it as much as the cohort has unused. Needs `cohort`."""
    lending_limit: QuotaPercent | None = None
    """Most of nominalQuota that the cohort may borrow while the tenant does not use it, in percent
    of devices; without it all. Needs `cohort`."""


class Tenant(Model):
    """One party of the cluster; TrainingJobs name theirs in `spec.tenant`."""

    model_config = ConfigDict(json_schema_extra=validations(LIMITS_NEED_COHORT))

    name: ObjectName
    """Name that its jobs give in `spec.tenant`."""
    weight: Annotated[int, Field(ge=1, le=1000), _Int32] = 1
    """Its part of the cluster, in proportion to the weights of the others."""
    inner: Inner = Inner.FAIRNESS
    """`Fairness`: its jobs share what it gets by their weights; `FIFO`: the oldest first."""
    namespaces: Namespaces = ()
    """Namespaces whose workloads may name the tenant; `*` = every namespace, as without any. A
    workload of another namespace is not placed (`TenantNotAllowed`). A workload that names no
    tenant belongs to the first by name that lists its namespace, else to the first that lists `*`;
    it may then name no tenant that is not listed here."""
    quota: Annotated[
        tuple[Quota, ...], Field(max_length=32, json_schema_extra=list_map("accelerator"))
    ] = ()
    """Most that its workloads hold at once, by accelerator type. With any entry, a type without one
    is not for the tenant; without entries it holds what is free. A workload above it waits with
    `QuotaExceeded`."""
    cohort: ObjectName | None = None
    """Tenants of one cohort borrow from each other what they do not use of their quota."""
    reclaim_within_cohort: ReclaimWithinCohort = ReclaimWithinCohort.NEVER
    """Which workloads of tenants that borrow are preempted when this one needs its nominal quota:
    `Never` waits until they end, `LowerPriority` takes those of lower priority, `Any` takes all.
    Only workloads that save their work (`spec.checkpoint`) are preempted."""


class TrustGrant(Model):
    """Namespaces whose workloads may share devices with each other."""

    name: DomainName
    """Name that the workloads give in `spec.trustDomain`."""
    namespaces: Annotated[
        tuple[Namespace, ...], Field(min_length=1, max_length=1024, json_schema_extra=SET)
    ]
    """Namespaces that may name the domain; `*` = every namespace."""


class Learning(Model):
    """Which namespaces learn from each other."""

    share_among: Namespaces = ()
    """Namespaces that share the measurements of their classes of work; `*` = every namespace.
    Classes of one name count as one there. Without it every namespace learns for itself."""
    trust_declared: Namespaces = ()
    """Namespaces whose WorkloadProfiles count like measurements where they were declared or
    imported; `*` = every namespace. Elsewhere a declaration speaks for its own namespace alone and
    teaches the predictor nothing."""


class Risk(Model):
    """How much risk an admission may take with anyone's objective."""

    predictor: Annotated[RiskPredictor, Field(description=RiskPredictor.explained())] = (
        RiskPredictor.LEARNED
    )
    eps_percent: Annotated[int, Field(ge=1, le=50), _Int32] = 5
    """Risk budget: of 100 admissions beside others, so many may break someone's objective."""
    confidence_percent: Annotated[int, Field(ge=50, le=99), _Int32] = 80
    """How sure the budget must be before a threshold counts as certified."""
    min_combined_percent: Annotated[int, Field(ge=0, le=400), _Int32] = 100
    """Minimum sum of speeds on a shared device, in percent of one tenant alone; below it, taking
    turns would be faster."""
    probation_seconds_per_class: Annotated[int, Field(ge=0, le=86400), _Int32] = 60
    """Seconds of broken objectives that a new class may cost while it is on probation; 0 = no
    probation."""


class ClearedFaults(Model):
    """Faults of a workload class that count no more."""

    namespace: ObjectName
    """Namespace of the class."""
    workload_class: ClassName
    """The class."""
    before: Time
    """Faults up to this time are cleared; later ones count."""


class Faults(Model):
    """What follows for a workload class whose program faulted a device."""

    isolation_hours: Annotated[int, Field(ge=0, le=168), _Int32] = 24
    """Hours without a further fault until the class may share devices with others again; until
    then it shares with itself alone, on probation. 0 = faults are told and have no consequence."""
    cleared: Annotated[
        tuple[ClearedFaults, ...],
        Field(max_length=256, json_schema_extra=list_map("namespace", "class")),
    ] = ()
    """Classes whose faults an administrator has cleared; an entry may go after isolationHours."""


class Reconsider(Model):
    """When a running job moves to the accelerator type that is recommended to it now."""

    min_savings_percent: Annotated[int, Field(ge=1, le=100), _Int32] = 25
    """Least that a move must save of the time or cost that is left, restart and lost work counted;
    100 = no job is moved or told."""
    hold_seconds: Annotated[int, Field(ge=0, le=86400), _Int32] = 600
    """How long a job runs where it is before it may move."""


_OBJECTIVE: Final = (
    f"{Objective.explained()} All but `FIFO` divide the time of every accelerator type among the "
    "TrainingJobs and let them take turns in rounds, by the speed of each job on each type. "
    "`MinCost` and `MinCostSLO` need a price of every accelerator type that a job may use, of its "
    "cheapest CapacityPool or its DeviceProfile; as long as one is missing, time is divided as "
    "under `MaxMinFairness` and the condition Degraded names it. A job without spec.work counts as "
    "having as much to do as it has done."
)


class SchedulingPolicySpec(Model):
    """The policy."""

    objective: Annotated[Objective, Field(description=_OBJECTIVE)] = Objective.FIFO
    tenants: Annotated[
        tuple[Tenant, ...], Field(max_length=256, json_schema_extra=list_map("name"))
    ] = ()
    """Parties that share the cluster under `MaxMinFairness`; without any, jobs share it directly.
    A job whose tenant is not listed belongs to one of weight 1."""
    trust_domains: Annotated[
        tuple[TrustGrant, ...], Field(max_length=256, json_schema_extra=list_map("name"))
    ] = ()
    """Trust domains across namespaces. A workload that names a domain which is not granted to its
    namespace here is not placed (`TrustDomainNotGranted`); without a name it shares devices inside
    its own namespace."""
    learning: Learning = Learning()
    """Which namespaces learn from which."""
    packing: Packing = Packing()
    """How full a shared device may be."""
    sharing: PolicySharing = PolicySharing()
    """How workloads that share a device take turns."""
    risk: Risk = Risk()
    """How much risk an admission may take with anyone's objective."""
    faults: Faults = Faults()
    """What follows for a class whose program faulted a device."""
    round_seconds: Annotated[int, Field(ge=1, le=86400, json_schema_extra={"format": "int32"})] = (
        360
    )
    """Length of a round: how long a job that got its turn keeps it at least, unless it ends; the
    unit of gangSkipLimit. Far longer than a checkpoint and a start take, or nothing progresses."""
    gang_skip_limit: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] = 1
    """Rounds that a waiting workload may be passed over before free room is held for it."""
    spot: Spot = Spot()
    """What restarts cost and how much a move must bring; for jobs with spec.cost.objective."""
    reconsider: Reconsider = Reconsider()
    """When a running job with an aim in spec.cost and with spec.checkpoint moves to a better type;
    under `FIFO`, for jobs whose pools are not chosen by cost."""
    decision_period: DecisionPeriod = "24h"
    """How often running jobs with spec.cost.objective compare prices, and how far ahead savings
    are counted; at once when the price of what they hold moves by more than spot.minGainPercent."""
    min_savings_percent: Annotated[int, Field(ge=0, le=100), _Int32] = 0
    """A running job moves to another pool only if that saves more than this part of the cost of
    staying until the next decision, and more than the restart costs."""
    min_service_percent: Annotated[
        int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})
    ] = 10
    """Under `MinCost` and `MinCostSLO`: least that each job gets, in percent of what its
    proportional part of the cluster would bring; less where that is too much for all together. With
    0 a job that brings little for its price runs on idle devices only."""


class SchedulingPolicy(Resource):
    """How the whole cluster decides; only the object named `default` binds.

    Without it the defaults of its fields hold.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="schedulingpolicies",
        singular="schedulingpolicy",
        short_name="sp",
        namespaced=False,
        columns=(
            Column(name="Objective", path=".spec.objective", description="What the order follows."),
            Column(
                name="Round",
                path=".spec.roundSeconds",
                type="integer",
                description="Length of a round in seconds.",
            ),
            Column(
                name="Percent",
                path=".spec.packing.maxPercentSum",
                type="integer",
                description="Most percent that the tenants of one device may add up to.",
            ),
            Column(
                name="Risk",
                path=".spec.risk.epsPercent",
                type="integer",
                description="Risk budget in percent.",
            ),
            Column(
                name="Jobs",
                path=".status.lastSolve.jobs",
                type="integer",
                description="Jobs that the cluster's time is divided among.",
            ),
            Column(
                name="Solve",
                path=".status.lastSolve.result",
                description="How the last division ended.",
            ),
            Column(
                name="Borrowing",
                path=".status.quota.borrowingTenants",
                type="integer",
                description="Tenants that hold more than their nominal quota.",
            ),
            condition_column("Degraded", "SolverDegraded", "Whether decisions are late."),
            condition_column(
                "Invalid", "Invalid", "Whether the object is not in force.", wide=True
            ),
            AGE,
        ),
    )

    kind: Literal["SchedulingPolicy"] = "SchedulingPolicy"
    """Kind of the object."""
    spec: SchedulingPolicySpec
    """The policy."""
