# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""SchedulingPolicy: how the whole cluster decides; the object named ``default`` binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, PlainSerializer

from ullage.api.base import AGE, Column, KindInfo, ObjectName, Resource, condition_column
from ullage.api.dataio import IoFairness
from ullage.api.gpurequest import Accelerator, DomainName
from ullage.api.lanes import IterationPolicy
from ullage.api.profiling import Profiling
from ullage.api.rules import LENDING_WITHIN_NOMINAL, LIMITS_NEED_COHORT
from ullage.api.spec import (
    SAYS_NOTHING,
    KeyedBy,
    MappedBy,
    Moment,
    Spec,
    SpecReader,
    Whole,
    is_word,
    listed,
    patterned,
    word_of,
)
from ullage.api.spot import DecisionPeriod, SpotTerms
from ullage.api.times import DAY_S, DECISION_PERIOD_S
from ullage.api.words import Inner, Objective, ReclaimWithinCohort, RiskPredictor
from ullage.api.workloadprofile import ClassName

EVERY_NAMESPACE: Final = "*"
"""Stands for every namespace in a list of namespaces."""
Namespace = Annotated[
    str,
    patterned(
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|[*])$",
        "name of a namespace, nor * for all",
        max_length=63,
    ),
]
"""Name of a namespace; `*` = every one."""
Namespaces = Annotated[frozenset[Namespace], listed(1024), PlainSerializer(sorted)]
QuotaPercent = Annotated[int, Whole(0, 10_000_000)]
"""Percent of devices: 100 = one whole device."""


def _lists(namespaces: frozenset[str], namespace: str) -> bool:
    return namespace in namespaces or EVERY_NAMESPACE in namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing(Spec):
    """Limit for the sum of the shares of a device."""

    max_percent_sum: Annotated[int, Whole(10, 400)] = 100
    """Ceiling of the sum of shares on one device, in percent; above 100 the shares overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySharing(Spec):
    """Turns of workloads that share a device."""

    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Whose step is next among the jobs that take turns in a lane (`spec.gpu.lane`): `FAIR` the one
    that ran least, `RR` the one with the fewest steps, `PACK` the first that asked, `FIFO` the
    first that came, until it ends, `SRTF` the one with the least time left, counting its wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyIo(Spec):
    """Use of the volumes of a node by its containers, those of other kinds included."""

    fairness: IoFairness = IoFairness.OBSERVE
    """Answer to a container that takes more than its fair share of a volume while another starves
    on it: `Observe` reports it (Event `IoStarved` of the starving pod), `Enforce` limits it to its
    fair share, too, until no one waits. A limit only lowers one that the container has, and pods of
    kube-system or of system priority have none. NFS, FUSE and object stores are not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRuntime(Spec):
    """Additions of Ullage to the device containers of namespaces."""

    inject: Namespaces = frozenset()
    """Namespaces whose device containers get the step hook, as with `spec.runtime.inject: Auto`;
    `*` = every namespace. Containers that start from now on count, time and can trace the steps of
    torch programs. A pod with the label `ullage.dev/inject: Never` is left out, and so is a
    container whose PYTHONPATH comes from a reference."""

    def reaches(self, namespace: str) -> bool:
        """True when containers of the namespace get the step hook."""
        return _lists(self.inject, namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota(Spec):
    """Devices of one accelerator type that a tenant may hold, in percent of devices."""

    rules: ClassVar = (LENDING_WITHIN_NOMINAL,)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(Spec):
    """One party of the cluster; TrainingJobs name theirs in `spec.tenant`."""

    rules: ClassVar = (LIMITS_NEED_COHORT,)

    name: ObjectName
    """Name that its jobs give in `spec.tenant`."""
    weight: Annotated[int, Whole(1, 1000)] = 1
    """Its part of the cluster, in proportion to the weights of the others."""
    fifo: Annotated[bool, is_word(Inner.FIFO, Inner.FAIRNESS), Field(alias="inner")] = False
    """`Fairness`: its jobs share what it gets by their weights; `FIFO`: the oldest first."""
    namespaces: Namespaces = frozenset()
    """Namespaces whose workloads may name the tenant; `*` = every namespace, as without any. A
    workload of another namespace is not placed (`TenantNotAllowed`). A workload that names no
    tenant belongs to the first by name that lists its namespace, else to the first that lists `*`;
    it may then name no tenant that is not listed here."""
    quota: Annotated[
        tuple[Quota, ...],
        listed(32),
        KeyedBy(fields=("accelerator",), key=attrgetter("accelerator")),
    ] = ()
    """Most that its workloads hold at once, by accelerator type. With any entry, a type without one
    is not for the tenant; without entries it holds what is free. A workload above it waits with
    `QuotaExceeded`."""
    cohort: Annotated[ObjectName, SAYS_NOTHING] = ""
    """Tenants of one cohort borrow from each other what they do not use of their quota."""
    reclaim_within_cohort: ReclaimWithinCohort = ReclaimWithinCohort.NEVER
    """Which workloads of tenants that borrow are preempted when this one needs its nominal quota:
    `Never` waits until they end, `LowerPriority` takes those of lower priority, `Any` takes all.
    Only workloads that save their work (`spec.checkpoint`) are preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustGrant(Spec):
    """Namespaces whose workloads may share devices with each other."""

    name: DomainName
    """Name that the workloads give in `spec.trustDomain`."""
    namespaces: Annotated[Namespaces, Field(min_length=1)]
    """Namespaces that may name the domain; `*` = every namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge(Spec):
    """Namespaces that learn from each other."""

    shared: Annotated[Namespaces, Field(alias="shareAmong")] = frozenset()
    """Namespaces that share the measurements of their classes of work; `*` = every namespace.
    Classes of one name count as one there. Without it every namespace learns for itself."""
    trusted: Annotated[Namespaces, Field(alias="trustDeclared")] = frozenset()
    """Namespaces whose WorkloadProfiles count like measurements where they were declared or
    imported; `*` = every namespace. Elsewhere a declaration speaks for its own namespace alone and
    teaches the predictor nothing."""

    def scope(self, namespace: str) -> str:
        """The namespace itself, or ``*`` for all that share."""
        return EVERY_NAMESPACE if _lists(self.shared, namespace) else namespace

    def trusts(self, namespace: str) -> bool:
        """True when declared values of the namespace count like measured ones."""
        return _lists(self.trusted, namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSettings(Spec):
    """Risk that an admission may take with an objective."""

    predictor: Annotated[
        str, word_of(RiskPredictor), Field(description=RiskPredictor.explained())
    ] = RiskPredictor.LEARNED.value
    eps_percent: Annotated[int, Whole(1, 50)] = 5
    """Risk budget: of 100 admissions beside others, so many may break someone's objective."""
    confidence_percent: Annotated[int, Whole(50, 99)] = 80
    """How sure the budget must be before a threshold counts as certified."""
    min_combined_percent: Annotated[int, Whole(0, 400)] = 100
    """Minimum sum of speeds on a shared device, in percent of one tenant alone; below it, taking
    turns would be faster."""
    probation_seconds_per_class: Annotated[int, Whole(0, DAY_S)] = 60
    """Seconds of broken objectives that a new class may cost while it is on probation; 0 = no
    probation."""

    def __post_init__(self) -> None:
        known = [word.value for word in RiskPredictor]
        if self.predictor not in known:
            raise ValueError(f"predictor {self.predictor!r} is none of {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedFaults(Spec):
    """Faults of a workload class that count no more."""

    namespace: ObjectName
    """Namespace of the class."""
    workload_class: ClassName
    """The class."""
    before_s: Annotated[float, Moment, Field(alias="before")]
    """Faults up to this time are cleared; later ones count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTerms(Spec):
    """Consequences for a workload class whose program faulted a device."""

    isolation_hours: Annotated[int, Whole(0, 168)] = 24
    """Hours without a further fault until the class may share devices with others again; until
    then it shares with itself alone, on probation. 0 = faults are told and have no consequence."""
    # seconds since the epoch, by namespace and class
    cleared: Annotated[
        Mapping[tuple[str, str], float],
        MappedBy(
            fields=("namespace", "class"),
            key=attrgetter("namespace", "workload_class"),
            item=ClearedFaults,
            value=attrgetter("before_s"),
            entry=lambda key, before_s: ClearedFaults(
                namespace=key[0], workload_class=key[1], before_s=before_s
            ),
            most=256,
        ),
    ] = field(default_factory=dict)
    """Classes whose faults an administrator has cleared; an entry may go after isolationHours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconsiderTerms(Spec):
    """Terms for moving a running job to the accelerator type that is recommended now."""

    min_saving_percent: Annotated[int, Whole(1, 100), Field(alias="minSavingsPercent")] = 25
    """Least that a move must save of the time or cost that is left, restart and lost work counted;
    100 = no job is moved or told."""
    hold_s: Annotated[int, Whole(0, DAY_S), Field(alias="holdSeconds")] = 600
    """How long a job runs where it is before it may move."""


_OBJECTIVE: Final = (
    f"{Objective.explained()} All but `FIFO` divide the time of every accelerator type among the "
    "TrainingJobs and let them take turns in rounds, by the speed of each job on each type. "
    "`MinCost` and `MinCostSLO` need a price of every accelerator type that a job may use, of its "
    "cheapest CapacityPool or its DeviceProfile; as long as one is missing, time is divided as "
    "under `MaxMinFairness` and the condition Degraded names it. A job without spec.work counts as "
    "having as much to do as it has done."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicySpec(Spec):
    """The policy."""

    objective: Annotated[Objective, Field(description=_OBJECTIVE)] = Objective.FIFO
    tenants: Annotated[
        tuple[Tenant, ...],
        listed(256),
        KeyedBy(fields=("name",), key=attrgetter("name")),
    ] = ()
    """Parties that share the cluster under `MaxMinFairness`; without any, jobs share it directly.
    A job whose tenant is not listed belongs to one of weight 1."""
    trust_domains: Annotated[
        Mapping[str, frozenset[str]],
        MappedBy(
            fields=("name",),
            key=attrgetter("name"),
            item=TrustGrant,
            value=attrgetter("namespaces"),
            entry=lambda name, namespaces: TrustGrant(name=name, namespaces=namespaces),
            most=256,
        ),
    ] = field(default_factory=dict)
    """Trust domains across namespaces. A workload that names a domain which is not granted to its
    namespace here is not placed (`TrustDomainNotGranted`); without a name it shares devices inside
    its own namespace."""
    learning: Knowledge = Knowledge()
    """Which namespaces learn from which."""
    packing: Packing = Packing()
    """How full a shared device may be."""
    sharing: PolicySharing = PolicySharing()
    """How workloads that share a device take turns."""
    io: PolicyIo = PolicyIo()
    """How containers share the volumes of a node."""
    runtime: PolicyRuntime = PolicyRuntime()
    """What device containers of namespaces get beside their devices."""
    profiling: Profiling = field(default_factory=Profiling)
    """Traces of a sample of the running jobs."""
    risk: RiskSettings = RiskSettings()
    """How much risk an admission may take with anyone's objective."""
    faults: FaultTerms = field(default_factory=FaultTerms)
    """What follows for a class whose program faulted a device."""
    round_seconds: Annotated[int, Whole(1, DAY_S)] = 360
    """Length of a round: how long a job that got its turn keeps it at least, unless it ends; the
    unit of gangSkipLimit. Far longer than a checkpoint and a start take, or nothing progresses."""
    gang_skip_limit: Annotated[int, Whole(0, 1000)] = 1
    """Rounds that a waiting workload may be passed over before free room is held for it."""
    spot: SpotTerms = field(default_factory=SpotTerms)
    """What restarts cost and how much a move must bring; for jobs with spec.cost.objective."""
    reconsider: ReconsiderTerms = ReconsiderTerms()
    """When a running job with an aim in spec.cost and with spec.checkpoint moves to a better type;
    under `FIFO`, for jobs whose pools are not chosen by cost."""
    decision_period_s: Annotated[DecisionPeriod, Field(alias="decisionPeriod")] = DECISION_PERIOD_S
    """How often running jobs with spec.cost.objective compare prices, and how far ahead savings
    are counted; at once when the price of what they hold moves by more than spot.minGainPercent."""
    min_savings_percent: Annotated[int, Whole(0, 100)] = 0
    """A running job moves to another pool only if that saves more than this part of the cost of
    staying until the next decision, and more than the restart costs."""
    min_service_percent: Annotated[int, Whole(0, 100)] = 10
    """Under `MinCost` and `MinCostSLO`: least that each job gets, in percent of what its
    proportional part of the cluster would bring; less where that is too much for all together. With
    0 a job that brings little for its price runs on idle devices only."""


read_policy_spec: Final = SpecReader(SchedulingPolicySpec)


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
