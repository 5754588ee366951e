# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs under rounds, with their speeds by accelerator type, and the devices they compete for.

InferenceDeployments never take turns: their devices are not divided. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Final, NamedTuple

from ullage.api.devices import GPUMode
from ullage.api.reasons import Standing, standing_of
from ullage.cluster.records.profile import Source
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.limits import HEALTHY
from ullage.engines.admission.records import Refusal
from ullage.engines.allocation.policies import POLICIES, Objective
from ullage.scheduling.feasibility.occupancy import Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.tenant_bindings import default_tenant, is_bound
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.learning.throughput import Throughput, Throughputs
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.preemption import priority_of, unsaved_s
from ullage.scheduling.times import GANG_RESTART_S
from ullage.scheduling.timeslicing.pair_records import Pairing

WHOLE: Final = 100
"""Points of one device."""
NEUTRAL: Final = "Neutral"
_GONE: Final = (Phase.SUSPENDED, Phase.SUSPENDING)
_WEAKEST: Final = {NEUTRAL: 0, Source.ESTIMATED: 1, Source.DECLARED: 2, Source.MEASURED: 3}
_TYPED: Final = 1_000_000
"""First number of narrowed requests, far above those that a cycle assigns itself."""


class Runner(NamedTuple):
    """A TrainingJob under rounds; a tuple, because every cycle creates one per job.

    Attributes:
        workload: Its record.
        priority: Jobs of higher priority are served first.
        points: Percent of devices that all members hold together.
        speeds: Steps/s of a member by type; a type that is missing cannot run it.
        worth: Value of a second on each type to the job, in steps of its best type: its speed,
            unless its own objective counts costs.
        source: Weakest source of the speeds.
        holds: Type of its devices; empty when it has none, or is leaving them.
        began: Time at which it got them.
        ready: True when its pods wait for devices now.
        unsaved_s: Seconds of work since its last checkpoint; 0 = unknown.
        beside: uid of the job that shares its device, or is to join it there; empty for none.
        percent: Share of its device that it has.
        site: That device; -1 for none.
        tenant: Name of the tenant charged with its time; empty for none.
    """

    workload: WorkloadRecord
    priority: int
    points: int
    speeds: Mapping[str, float]
    worth: Mapping[str, float]
    source: str
    holds: str = ""
    began: float = 0.0
    ready: bool = False
    unsaved_s: float = 0.0
    beside: str = ""
    percent: int = WHOLE
    site: int = -1
    tenant: str = ""

    @property
    def uid(self) -> str:
        """Its key in problems and rounds."""
        return self.workload.ref.uid

    @property
    def name(self) -> str:
        """``namespace/name``."""
        return f"{self.workload.ref.namespace}/{self.workload.ref.name}"

    @property
    def restart_s(self) -> float:
        """Seconds that its last start took, else the default."""
        books = self.workload.status.allocation
        start_s = books.restart_seconds if books is not None else ""
        return float(start_s) if start_s else GANG_RESTART_S


@dataclass(slots=True)
class Typed:
    """Requests narrowed to some types; equal ones share an object."""

    requests: ResourceRequests
    feasibility: Feasibility
    _known: dict[tuple[int, frozenset[int], int], ResourceRequest] = field(default_factory=dict)
    _fits: dict[tuple[int, int], Refusal | None] = field(default_factory=dict)

    def of(
        self, request: ResourceRequest, models: frozenset[int], percent: int = 0
    ) -> ResourceRequest:
        """The request on these models only; with a percent, for that share of a device.

        The share is that of a job of a whole device as one of a pair; no third job joins a pair.
        """
        narrowed = self._known.get((request.number, models, percent))
        if narrowed is None:
            narrowed = replace(request, number=_TYPED + len(self._known), accelerators=models)
            if percent:
                narrowed = replace(
                    narrowed,
                    mode=GPUMode.FRACTIONAL,
                    exclusive=False,
                    min_percent=percent,
                    max_percent=percent,
                    percent_limit=WHOLE,
                    trust_domain=self.requests.occupancy.domains.names((request.domain,))[0],
                    judged=True,
                )
            self._known[request.number, models, percent] = narrowed
        return narrowed

    def fits(self, workload: WorkloadRecord, model: int) -> bool:
        """True when an empty cluster could run all members on one model."""
        request = self.of(self.requests.of(workload, workload.shape), frozenset((model,)))
        key = (request.number, workload.replicas)
        if key not in self._fits:
            self._fits[key] = self.feasibility.judge(workload, request, workload.replicas)
        return self._fits[key] is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The jobs that take turns and the devices to divide among them.

    Attributes:
        runners: By uid, oldest first.
        nowhere: Jobs that the cluster could run, but no single type.
        room: Points of each type that turns may use.
        unit: Points that count as one device in problems.
        prices: Price of a device-hour by type; empty unless the objective counts prices.
        pairing: Pairs of jobs that may share a device.
    """

    runners: Mapping[str, Runner]
    nowhere: frozenset[str]
    room: Mapping[str, int]
    unit: int
    prices: Mapping[str, float] = field(default_factory=dict)
    pairing: Pairing = field(default_factory=Pairing)

    def units(self, points: int) -> int:
        """Points in the problem's unit, rounded down."""
        return points // self.unit


@dataclass(frozen=True, slots=True)
class Tools:
    """Parts of a cycle that the search for runners uses."""

    view: View
    inventory: Inventory
    occupancy: Occupancy
    ledger: Ledger
    typed: Typed


def arena(tools: Tools, lifecycles: Mapping[str, LifecycleStep]) -> Arena:
    """Collect the jobs that take turns and the devices that they compete for."""
    workloads = tools.view.snapshot.workloads
    costed = POLICIES[Objective(tools.view.snapshot.policy.objective)].costed
    kinds = _Kinds(tools, Throughputs(tools.view.snapshot), costed)
    runners: dict[str, Runner] = {}
    nowhere: set[str] = set()
    policy, defaults = tools.view.snapshot.policy, dict[str, str]()
    for _, uid in sorted([(workloads[uid].created, uid) for uid in lifecycles]):
        job, life = workloads[uid], lifecycles[uid]
        if not _may_take_part(job, life) or not is_bound(policy, job):
            continue
        namespace = job.ref.namespace
        if not job.tenant and namespace not in defaults:
            defaults[namespace] = default_tenant(policy, namespace)
        members = tools.view.members.get(uid, ())
        holds, began = held_type(tools.inventory, tools.ledger, members) if members else ("", 0.0)
        if not (holds or _takes_part(tools.view, life)):
            continue
        kind = kinds.of(job)
        if kind is None:
            continue
        if not kind.rates:
            nowhere.add(uid)
            continue
        if holds and holds not in kind.rates:
            continue
        if life.phase is Phase.RESTARTING:
            holds, began = "", 0.0
        runners[uid] = Runner(
            workload=job,
            priority=priority_of(job, members),
            points=kind.points,
            speeds=kind.rates,
            worth=kind.worth,
            source=kind.source,
            holds=holds,
            began=began_at(job, holds, began) if holds else 0.0,
            ready=bool(life.waiting),
            tenant=job.tenant or defaults[namespace],
            unsaved_s=unsaved_s(tools.view, members) if members else 0.0,
        )
    room = _room(tools, runners)
    unit = gcd(WHOLE, *(runner.points for runner in runners.values()))
    return Arena(
        runners=runners,
        nowhere=frozenset(nowhere),
        room=room,
        unit=unit,
        prices=prices_of(tools.view.snapshot) if costed else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Common values of equal jobs, as in a ``Runner``; ``rates`` are its speeds."""

    points: int
    rates: Mapping[str, float]
    worth: Mapping[str, float]
    source: str


@dataclass(slots=True)
class _Kinds:
    """Computes the common values of equal jobs once."""

    tools: Tools
    speeds: Throughputs
    costed: bool
    """True when the policy itself counts prices."""
    _known: dict[tuple[object, ...], _Kind | None] = field(default_factory=dict)

    def of(self, job: WorkloadRecord) -> _Kind | None:
        """The values of a job; ``None`` when the cluster could never run it."""
        typed = self.tools.typed
        request, throughputs = typed.requests.of(job, job.shape), self.speeds.of(job)
        fewest = job.elasticity.min_replicas if job.elasticity is not None else 0
        choice = typed.requests.choose(job)
        alike = (request.number, job.replicas, fewest, id(throughputs), choice.by_cost)
        if alike not in self._known:
            kind = None
            if typed.feasibility.judge(job, request) is None:
                rates, source = _speeds(self.tools, job, request, throughputs)
                kind = _Kind(
                    points=job.replicas * points_of(request),
                    rates=rates,
                    worth=rates if self.costed else choice.worth(rates),
                    source=source,
                )
            self._known[alike] = kind
        return self._known[alike]


def points_of(request: ResourceRequest) -> int:
    """Percent of devices of one member: all of each, or the maximum of its share."""
    if request.exclusive:
        return WHOLE * request.count
    return min(request.max_percent, request.percent_limit, WHOLE)


def held_type(inventory: Inventory, ledger: Ledger, members: Sequence[Member]) -> tuple[str, float]:
    """Type of most slices of the members, and the time at which the first was assigned."""
    if len(members) == 1 and not members[0].held:
        return "", 0.0
    if len(members) == 1 and len(members[0].held) == 1:  # as most jobs are
        held = members[0].held[0]
        site = inventory.site_index.get((held.node, held.slice.gpu))
        if site is None or ledger.dropped(held.node, held.slice.key):
            return "", 0.0
        return inventory.model_names[inventory.model.item(site)], held.since
    counts: dict[str, int] = {}
    since = float("inf")
    for member in members:
        for held in member.held:
            site = inventory.site_index.get((held.node, held.slice.gpu))
            if site is None or ledger.dropped(held.node, held.slice.key):
                continue
            name = inventory.model_names[inventory.model.item(site)]
            counts[name] = counts.get(name, 0) + 1
            since = min(since, held.since)
    if not counts:
        return "", 0.0
    if len(counts) == 1:
        return next(iter(counts)), since
    return min(counts, key=lambda name: (-counts[name], name)), since


def began_at(job: WorkloadRecord, holds: str, seen: float) -> float:
    """Time since which it holds a type: from its status, else as observed by this process."""
    books = job.status.allocation
    if books is not None:
        for kind, had in books.received:
            if kind == holds and had.since:
                return had.since
    return seen


def _may_take_part(job: WorkloadRecord, life: LifecycleStep) -> bool:
    """True for a TrainingJob that is neither over nor suspended."""
    if job.kind is not WorkloadKind.TRAINING_JOB or life.silent or not job.shape.device_container:
        return False
    return not (life.phase.terminal or life.phase in _GONE)


def _takes_part(view: View, life: LifecycleStep) -> bool:
    """True when a job without devices waits for some, or soon will."""
    if life.waiting or life.missing:
        return True
    return life.retry_at <= view.now and Standing.FOREIGN not in standing_of(life.reason)


def _speeds(
    tools: Tools,
    job: WorkloadRecord,
    request: ResourceRequest,
    throughputs: Mapping[str, Throughput],
) -> tuple[dict[str, float], str]:
    """Steps/s on every type that could run the job, and the weakest source of them.

    An unknown speed counts as the mean of the known ones, or as 1, so that no type is preferred.
    """
    able = [
        name
        for name, model in tools.inventory.models.items()
        if (request.accelerators is None or model in request.accelerators)
        and model not in request.barred
        and tools.typed.fits(job, model)
    ]
    rated = {name: throughputs[name] for name in able if name in throughputs}
    rated = {name: entry for name, entry in rated.items() if entry.steps_per_second > 0}
    mean = sum(entry.steps_per_second for entry in rated.values()) / len(rated) if rated else 1.0
    sources = [str(entry.source) for entry in rated.values()]
    sources += [NEUTRAL] * (len(able) > len(rated))
    weakest = min(sources, key=lambda word: _WEAKEST[word], default=NEUTRAL)
    rates = {name: rated[name].steps_per_second if name in rated else mean for name in able}
    return rates, weakest


def _room(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, int]:
    """Points of every type that turns may use: without those that other work holds.

    A device of a job that takes turns counts even when it is unhealthy. When all jobs want whole
    devices, a device that other work uses in part does not count at all.
    """
    inventory = tools.inventory
    whole_only = all(runner.points % WHOLE == 0 for runner in runners.values())
    room = dict.fromkeys(inventory.model_names, 0)
    sites = zip(
        tools.occupancy.occupants, inventory.model.tolist(), inventory.health.tolist(), strict=True
    )
    for occupants, model, health in sites:
        used, ours = 0, False
        for occupant in occupants:
            if occupant.owner_uid in runners:
                ours = True
            elif not occupant.leaving:
                used += occupant.tenant.percent
        if health != HEALTHY and not ours:
            continue
        free = max(0, WHOLE - used)
        room[inventory.model_names[model]] += 0 if whole_only and free < WHOLE else free
    return room
