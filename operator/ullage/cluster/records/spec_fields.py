# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a workload and of the policy about sharing: load, rules, risk budget.

Fields say how the spec states them, with the bounds and the defaults of the API's models; a test
holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import derived
from ullage.api.contract import GPUMode, JsonObject, WireError, flag, section, text
from ullage.api.readers import as_written, quoted, registered
from ullage.api.wire_fields import KEPT, NEEDED, Kind, Percent, between, known_word, strings
from ullage.api.words import (
    BatchingPolicy,
    Inner,
    Membership,
    OnViolation,
    ReclaimWithinCohort,
    Resizable,
    Switching,
)
from ullage.api.words import OnNotice as OnNotice
from ullage.cluster.values.names import MAX_RANK
from ullage.cluster.values.quantity import counted, duration_s, mib_up, of_a_mib, plain_bytes
from ullage.engines.admission.predictors import DEFAULT, PREDICTORS
from ullage.engines.capacity.records import OBJECTIVES

DAY_S: Final = 86_400
MOST_REPLICAS: Final = MAX_RANK + 1
MOST_SERVING: Final = 1024
_LEAST_STATE: Final = 1024
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|[*]")
_CPU: Final = re.compile(r"[1-9][0-9]{0,4}m|[1-9][0-9]?")
_PATH: Final = re.compile(r"/[A-Za-z0-9/_.~%?=&-]{0,255}")
MOST_SIZES: Final = 16
LARGEST_BATCH: Final = 1024
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


def decimal(raw: JsonObject, field: str, least: float = 0.0) -> float | None:
    """A decimal of at least ``least``; absent is ``None``.

    Raises:
        WireError: it is something else.
    """
    if raw.get(field) is None:
        return None
    stated = as_written(raw, field)
    if not _DECIMAL.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no decimal number such as 1.5")
    if float(stated) < least:
        raise WireError(f"{field}: {stated!r} must be a number of at least {least:g}")
    return float(stated)


def positive(raw: JsonObject, field: str) -> float | None:
    """The same above 0."""
    value = decimal(raw, field)
    if value == 0:
        raise WireError(f"{field}: must be above 0")
    return value


def _time_s(raw: JsonObject, field: str) -> float:
    found = duration_s(text(raw, field), field)
    if found <= 0:
        raise WireError(f"{field}: must be above 0")
    return found


def _memory_mib(raw: JsonObject, field: str) -> int:
    limit, path = section(raw, field).get("limit"), f"{field}.limit"
    return 0 if limit is None else mib_up(of_a_mib(limit, path), path)


def _amount_mib(raw: JsonObject, field: str) -> int:
    if raw.get(field) is None:
        raise WireError(f"{field}: missing")
    return mib_up(of_a_mib(raw[field], field), field)


def _rate(raw: JsonObject, field: str) -> float:
    rate = positive(raw, field)
    if rate is None:
        raise WireError(f"{field}: missing")
    return rate


def _bytes(least: int) -> Kind:
    """An amount of bytes of at least so many."""

    def read(raw: JsonObject, field: str) -> int:
        size = counted("memory", plain_bytes(raw.get(field), field), field)
        if size < least:
            raise WireError(f"{field}: must be at least {least} bytes")
        return size

    return Kind(read)


def _cpu_milli(raw: JsonObject, field: str) -> int:
    stated = text(raw, field)
    if not _CPU.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no CPU such as 500m or 1")
    return counted("cpu", stated, field)


def _sizes(raw: JsonObject, field: str) -> tuple[int, ...]:
    stated = raw.get(field)
    if not isinstance(stated, list) or not 1 <= len(stated) <= MOST_SIZES:
        raise WireError(f"{field}: expected a list of 1 to {MOST_SIZES} batch sizes")
    if not all(type(size) is int and 1 <= size <= LARGEST_BATCH for size in stated):
        raise WireError(f"{field}: a batch size is a whole number from 1 to {LARGEST_BATCH}")
    if stated != sorted(set(stated)):
        raise WireError(f"{field}: the sizes must rise, each once")
    return tuple(stated)


def _path(raw: JsonObject, field: str) -> str:
    stated = text(raw, field)
    if not _PATH.fullmatch(stated):
        raise WireError(f"{field}: {quoted(stated)} is no path such as /v2/health/ready")
    return stated


def _state(raw: JsonObject, field: str) -> int:
    size = counted("memory", plain_bytes(raw.get(field), field), field)
    if size < _LEAST_STATE:
        raise WireError(f"{field}: must be at least 1Ki")
    return size


def _exit_codes(raw: JsonObject, field: str) -> frozenset[int]:
    codes = raw[field]
    if not isinstance(codes, list) or not all(
        type(code) is int and 0 < code < 256 for code in codes
    ):
        raise WireError(f"{field}: expected a list of whole numbers from 1 to 255")
    return frozenset(codes)


def namespaces(raw: JsonObject, field: str) -> frozenset[str]:
    """Names of namespaces, or ``*`` for all.

    Raises:
        WireError: one is neither.
    """
    stated = strings(raw, field)
    for one in stated:
        if not _NAMESPACE.fullmatch(one):
            raise WireError(f"{field}: {quoted(one)} is no name of a namespace, nor * for all")
    return frozenset(stated)


def _of(registry: Collection[str]) -> Kind:
    """A word of a registry."""
    return Kind(lambda raw, field: registered(raw, field, registry, ""))


def _is(word: StrEnum) -> Kind:
    """Whether it is this word of its list."""
    words = [one.value for one in type(word)]
    return Kind(lambda raw, field: registered(raw, field, words, "") == word)


_Seconds: TypeAlias = Annotated[float, Kind(_time_s)]
"""A duration above 0 as Go writes it."""
_Switch: TypeAlias = Annotated[bool, Kind(flag)]
_Day: TypeAlias = Annotated[int, between(1, DAY_S)]
_Part: TypeAlias = Annotated[int, between(0, 100)]
_Steps: TypeAlias = Annotated[int, between(1, 100_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Percent of a device that a container may get: the least it needs, the most it can use."""

    min_percent: Percent
    max_percent: Annotated[int, between(1, 100)] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """``spec.gpu.lane``: memory that stays between steps, and the peak of a step above it."""

    persistent_mib: Annotated[int, Kind(_amount_mib), "persistent", NEEDED]
    ephemeral_mib: Annotated[int, Kind(_amount_mib), "ephemeral", NEEDED]
    cooperative: Annotated[bool, _is(Switching.COOPERATIVE), "switching"] = True
    """Its memory never leaves the device; else it is suspended for others that need it."""

    @property
    def kept_mib(self) -> int:
        """What it holds of a device whatever others do."""
        return self.persistent_mib if self.cooperative else 0

    @property
    def shared_mib(self) -> int:
        """What others of its lane may have while it does nothing."""
        return self.ephemeral_mib + self.persistent_mib - self.kept_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class GPURequest:
    """``spec.gpu``: whole devices, or a share of one."""

    mode: Annotated[GPUMode, known_word(GPUMode)] = GPUMode.EXCLUSIVE
    count: Annotated[int, between(1, 16)] = 1
    share: Annotated[Share | None, KEPT] = None
    memory_mib: Annotated[int, Kind(_memory_mib), "memory"] = 0
    """Wanted device memory, 0 = in proportion to the share."""
    lane: Annotated[LaneMemory | None, KEPT] = None
    """What it takes turns with; then ``memory_mib`` is the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """When the gang starts again; empty ``retry_exit_codes`` means every code."""

    max_restarts: Annotated[int, between(0, 1000)] = 3
    retry_exit_codes: Annotated[frozenset[int], Kind(_exit_codes)] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """``spec.load``: requests of all replicas together, and how irregularly they come."""

    requests_per_s: Annotated[float, Kind(_rate), NEEDED, "requestsPerSecond"]
    cv2: Annotated[float, Kind(decimal)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """``spec.scaling`` of a service that the operator scales: policy ``SLO``."""

    min_replicas: Annotated[int, between(0, MOST_SERVING), NEEDED]
    max_replicas: Annotated[int, between(1, MOST_SERVING), NEEDED]
    idle_s: Annotated[int, between(10, 604_800), "idleSeconds"] = 300
    """Without a request for so long, the last replica goes where ``min_replicas`` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """``spec.batching.limits``: what clients may send, and how much may wait in one router."""

    body_bytes: Annotated[int, _bytes(1024), "body"] = 4 * 2**20
    queue: Annotated[int, between(1, 100_000)] = 10_000
    queue_bytes: Annotated[int, _bytes(1024), "queueMemory"] = 256 * 2**20
    stream_s: Annotated[int, between(1, 86_400), "streamSeconds"] = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPods:
    """``spec.batching.router``: the router's own pods."""

    replicas: Annotated[int, between(1, 16)] = 1
    cpu_milli: Annotated[int, Kind(_cpu_milli), "cpu"] = 250
    memory_bytes: Annotated[int, _bytes(128 * 2**20), "memory"] = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Generative:
    """``spec.batching.generative``: replicas that batch continuously."""

    cache_limit_percent: Annotated[int, between(1, 100)] = 90
    first_token_ms: Annotated[int, between(1, 3_600_000)] = 0
    """0: the objective's latency."""
    inter_token_ms: Annotated[int, between(1, 60_000)] = 0
    """0: the objective's latency where that is one of tokens, else any."""


def _generative(raw: JsonObject, field: str) -> Generative | None:
    return None if raw.get(field) is None else GENERATIVE.read(section(raw, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """``spec.batching``: a router before the replicas."""

    policy: Annotated[BatchingPolicy, known_word(BatchingPolicy)] = BatchingPolicy.ORLOJ
    sizes: Annotated[tuple[int, ...], Kind(_sizes)] = (1, 2, 4, 8, 16)
    in_flight: Annotated[int, between(1, 1024)] = 1
    hold_s: Annotated[int, between(0, 600), "holdSeconds"] = 30
    grpc_port: Annotated[int, between(1, 65_535)] = 0
    """Of the Service; 0 = no gRPC."""
    probe_path: Annotated[str, Kind(_path)] = ""
    """Empty: that of the readiness probe of the template."""
    generative: Annotated[Generative | None, Kind(_generative)] = None
    limits: Annotated[RouterLimits, KEPT] = field(default_factory=RouterLimits)
    router: Annotated[RouterPods, KEPT] = field(default_factory=RouterPods)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """``spec.sharing``: what sharing may do to the workload and its neighbours."""

    allow: _Switch = True
    """False: no one else may be on its device, though it asks for a share only."""
    resizable: Annotated[bool, _is(Resizable.RESTART)] = False
    """Another share may be given by a restart at a checkpoint."""
    freeze_neighbours: Annotated[bool, _is(OnViolation.FREEZE_NEIGHBOURS), "onViolation"] = True
    """False (``onViolation: Alert``): a violation is reported, and no work is stopped for it."""
    allow_packing: _Switch = False
    """A job of one whole device may share it in its turn, beside another that allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAim:
    """``spec.cost``: what capacity is chosen for; ``None`` = not asked."""

    objective: Annotated[str, _of(OBJECTIVES)] = ""
    """``CostPerWork``, ``Deadline`` or ``Makespan``; empty = the quantity that no cap names."""
    max_cost: Annotated[float | None, Kind(decimal)] = None
    max_time_s: Annotated[_Seconds | None, "maxTime"] = None
    deadline_s: Annotated[_Seconds | None, "deadline"] = None
    """Seconds after the creation of the job."""
    estimated_work_s: Annotated[_Seconds | None, "estimatedWork"] = None
    """Seconds of undisturbed running that the whole training takes at speed 1."""
    budget_per_hour: Annotated[float | None, Kind(positive)] = None
    """Most dollars per hour for all of its instances."""
    delay_cost_per_hour: Annotated[float | None, Kind(decimal)] = None
    """What an hour more of run time costs the owner; says that the size of an elastic gang is
    chosen by it."""
    allow_spot: _Switch = True
    on_demand_fallback: _Switch = True
    """On-demand and reserved capacity may be used."""

    @property
    def capped(self) -> bool:
        """Whether cost or time of the whole training is bounded."""
        return self.max_cost is not None or self.max_time_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTerms:
    """``spec.elasticity`` of a job in tiers, and ``backup``: what its coordinator is told."""

    reliable: int = 1
    """Members, of the lowest ranks, on machines that are not taken away."""
    stage: int = 0
    """1 to 3 where the user fixed it; 0 = by the ratio of members."""
    state_bytes: Annotated[int, Kind(_state), NEEDED]
    dirty_bytes: Annotated[int, Kind(_state), "dirtyBytesPerStep"] = 0
    """Changed by a step; 0 = all of the state."""
    every_steps: _Steps = 1
    max_lag_steps: _Steps = 2
    shards: Annotated[int, between(1, 4096)] = 64
    silence_s: Annotated[int, between(2, 600), "silenceSeconds"] = 10
    """After so long without a word a member counts as lost."""


RENDEZVOUS: Final = ("MASTER_ADDR", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
"""Variables that say where members in place meet; a template that sets one has its own place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """``spec.elasticity``: between how many members the gang may have."""

    min_replicas: Annotated[int, between(1, MOST_REPLICAS), NEEDED]
    max_replicas: Annotated[int, between(1, MOST_REPLICAS), NEEDED]
    on_notice: Annotated[OnNotice, known_word(OnNotice)] = OnNotice.CHECKPOINT
    in_place: Annotated[bool, _is(Membership.IN_PLACE), "membership"] = False
    """``membership: InPlace``: the program lets members come and go, the others are left alone."""
    tiers: TierTerms | None = None
    """Of a job in tiers; such a job is ``in_place`` too."""
    meets_elsewhere: bool = False
    """The template names the place where members in place meet, which is their first one else."""

    def within(self, members: int) -> int:
        """A number of members, held to the bounds."""
        return min(max(members, self.min_replicas), self.max_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """``SchedulingPolicy.spec``: ``spot``, ``decisionPeriod`` and ``minSavingsPercent``."""

    restart_cost_s: Annotated[_Day, "restartCostSeconds"] = 900
    """Cost of one restart of a job, work since the last checkpoint included."""
    min_gain_percent: _Part = 3
    min_hold_s: Annotated[_Seconds, "minHold"] = 600.0
    hazard_half_life_s: Annotated[_Seconds, "hazardHalfLife"] = 172_800.0
    """Time after which observations of a pool count half."""
    prior_hours: Annotated[int, between(1, 10_000)] = 10
    """Pool-hours that the prior of a pool's hazard counts as."""
    decision_period_s: Annotated[_Seconds, "decisionPeriod"] = 86_400.0
    min_savings_percent: _Part = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconsiderTerms:
    """``SchedulingPolicy.spec.reconsider``: when a running job moves to a better type."""

    min_saving_percent: Annotated[int, "minSavingsPercent", between(1, 100)] = 25
    """Least part of the time or cost that is left; 100 = no job is moved."""
    hold_s: Annotated[int, "holdSeconds", between(0, DAY_S)] = 600
    """How long a job runs where it is before it may move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSettings:
    """``SchedulingPolicy.spec.risk``."""

    predictor: Annotated[str, _of(PREDICTORS)] = DEFAULT
    """A word of ``PREDICTORS``."""
    eps_percent: Annotated[int, between(1, 50)] = 5
    confidence_percent: Annotated[int, between(50, 99)] = 80
    min_combined_percent: Annotated[int, between(0, 400)] = 100
    probation_seconds_per_class: Annotated[int, between(0, DAY_S)] = 60

    def __post_init__(self) -> None:
        if self.predictor not in PREDICTORS:
            raise ValueError(f"predictor {self.predictor!r} is none of {', '.join(PREDICTORS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTerms:
    """``SchedulingPolicy.spec.faults``: how long a class that faulted a device is isolated.

    ``cleared`` by namespace and class: faults up to this time (seconds since the epoch) count no
    more.
    """

    isolation_hours: int = 24
    cleared: Mapping[tuple[str, str], float] = field(default_factory=dict)


EVERY_NAMESPACE: Final = "*"
"""Stands for every namespace in a list of namespaces of the SchedulingPolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """``SchedulingPolicy.spec.learning``: which namespaces learn from which.

    Attributes:
        shared: Namespaces that share what was measured in them.
        trusted: Namespaces in which declared rows count like measured ones.
    """

    shared: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()

    def scope(self, namespace: str) -> str:
        """The namespace itself, or ``*`` for all that share."""
        return EVERY_NAMESPACE if _lists(self.shared, namespace) else namespace

    def trusts(self, namespace: str) -> bool:
        """Whether what is declared there counts like what was measured."""
        return _lists(self.trusted, namespace)


def _lists(namespaces: frozenset[str], namespace: str) -> bool:
    return namespace in namespaces or EVERY_NAMESPACE in namespaces


MOST_QUOTA: Final = 10_000_000
"""Most percent of devices that a quota may be."""
_Quota: TypeAlias = Annotated[int, between(0, MOST_QUOTA)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Percent of devices of one accelerator type that a tenant may hold; 100 = one device."""

    accelerator: Annotated[str, Kind(text), NEEDED]
    nominal_quota: Annotated[int, between(0, MOST_QUOTA), NEEDED]
    borrowing_limit: _Quota | None = None
    """Most above nominal; ``None`` = what its cohort has unused."""
    lending_limit: _Quota | None = None
    """Most of nominal that the cohort may borrow; ``None`` = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One of ``SchedulingPolicy.spec.tenants``."""

    name: Annotated[str, Kind(text), NEEDED]
    weight: Annotated[int, between(1, 1000)] = 1
    fifo: Annotated[bool, _is(Inner.FIFO), "inner"] = False
    """True (``inner: FIFO``): its oldest job first; else its jobs share by their weights."""
    namespaces: Annotated[frozenset[str], Kind(namespaces)] = frozenset()
    """Namespaces whose workloads may name it; empty = all."""
    quota: tuple[Quota, ...] = ()
    """Most that its workloads hold, by accelerator; empty = what is free."""
    cohort: Annotated[str, Kind(text)] = ""
    """Tenants of one cohort borrow from each other; empty = it borrows and lends nothing."""
    reclaim_within_cohort: Annotated[ReclaimWithinCohort, known_word(ReclaimWithinCohort)] = (
        ReclaimWithinCohort.NEVER
    )


GPU_REQUEST: Final = derived(GPURequest)
FAILURE_POLICY: Final = derived(FailurePolicy)
REPLICA_BOUNDS: Final = derived(ReplicaBounds)
OFFERED_LOAD: Final = derived(OfferedLoad)
GENERATIVE: Final = derived(Generative)
BATCHING: Final = derived(Batching)
ELASTICITY: Final = derived(Elasticity, leave_out=("tiers", "meets_elsewhere"))
TIER_TERMS: Final = derived(TierTerms, leave_out=("reliable", "stage"))
SHARING_RULES: Final = derived(SharingRules)
COST_AIM: Final = derived(CostAim)
SPOT_TERMS: Final = derived(SpotTerms)
RISK_SETTINGS: Final = derived(RiskSettings)
RECONSIDER_TERMS: Final = derived(ReconsiderTerms)
TENANT: Final = derived(Tenant)
