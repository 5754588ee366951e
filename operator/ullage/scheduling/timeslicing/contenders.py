# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who takes turns, on which accelerator types, how fast, and how much of each type there is.

InferenceDeployments never take turns: what they hold is not there to divide. This decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Final, NamedTuple

from ullage.api.devices import GPUMode
from ullage.api.reasons import Standing, standing_of
from ullage.cluster.records.profile import Source
from ullage.cluster.records.snapshot import WorkloadKind, WorkloadRecord
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
from ullage.scheduling.model.view import Held, Member, View
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
"""Numbers of narrowed wants begin here, far above those that a cycle hands out itself."""


class Runner(NamedTuple):
    """One TrainingJob that takes turns; a tuple, because every cycle makes one of each job.

    Attributes:
        workload: Its record.
        priority: Higher ones are served before anyone of lower priority.
        points: Percent of devices that all members hold together.
        speeds: Steps/s of a member by type; a type that is missing cannot run it.
        worth: What a second on each of these types is worth to the job, in steps of the one that
            serves it best: its speed, unless its own aim counts costs.
        source: Weakest source of the speeds.
        holds: Type whose devices it has; empty when it has none, or is leaving them.
        began: Since when it has them.
        ready: Its pods wait for devices now.
        unsaved_s: Work since its last checkpoint; 0 where that is not known.
        beside: uid of the one that is on its device, or is to join it there; empty for none.
        percent: Share of its device that it has.
        site: That device; -1 for none.
        tenant: Whose time it takes; empty for none.
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
        """As people read it."""
        return f"{self.workload.ref.namespace}/{self.workload.ref.name}"

    @property
    def restart_s(self) -> float:
        """What its last start took, else the default."""
        known = self.workload.status.allocation
        said = known.restart_seconds if known is not None else ""
        return float(said) if said else GANG_RESTART_S


@dataclass(slots=True)
class Typed:
    """Wants that are held to some types, one object for equal ones."""

    requests: ResourceRequests
    feasibility: Feasibility
    _known: dict[tuple[int, frozenset[int], int], ResourceRequest] = field(default_factory=dict)
    _fits: dict[tuple[int, int], Refusal | None] = field(default_factory=dict)

    def of(
        self, request: ResourceRequest, models: frozenset[int], percent: int = 0
    ) -> ResourceRequest:
        """The same want on these models only; with a percent, of so much of an empty device."""
        found = self._known.get((request.number, models, percent))
        if found is None:
            found = replace(request, number=_TYPED + len(self._known), accelerators=models)
            if percent:
                found = self._part_of(found, percent)
            self._known[request.number, models, percent] = found
        return found

    def _part_of(self, request: ResourceRequest, percent: int) -> ResourceRequest:
        """What a job of a whole device asks for as one of a pair; no third one joins them."""
        return replace(
            request,
            mode=GPUMode.FRACTIONAL,
            exclusive=False,
            min_percent=percent,
            max_percent=percent,
            percent_limit=WHOLE,
            trust_domain=self.requests.occupancy.domains.name(request.domain),
            judged=True,
        )

    def fits(self, workload: WorkloadRecord, model: int) -> bool:
        """Whether an empty cluster could run all members on one model."""
        request = self.of(self.requests.of(workload, workload.shape), frozenset((model,)))
        key = (request.number, workload.replicas)
        if key not in self._fits:
            self._fits[key] = self.feasibility.judge(workload, request, workload.replicas)
        return self._fits[key] is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What is divided, and among whom.

    Attributes:
        runners: By uid, oldest first.
        nowhere: Jobs that the cluster could run, but no single type.
        room: Points of each type that turns may use.
        unit: Points that count as one in problems.
        prices: Of one device for an hour, by type; empty where the objective does not ask.
        pairing: Who of them may share a device.
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
    """What finding the runners needs of a cycle."""

    view: View
    inventory: Inventory
    occupancy: Occupancy
    ledger: Ledger
    typed: Typed


def arena(tools: Tools, lifecycles: Mapping[str, LifecycleStep]) -> Arena:
    """Everyone who takes turns, and what there is to take."""
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
    """What jobs that are alike have in common; ``rates`` and ``source`` as of ``_speeds``.

    ``worth`` as of a ``Runner``.
    """

    points: int
    rates: Mapping[str, float]
    worth: Mapping[str, float]
    source: str


@dataclass(slots=True)
class _Kinds:
    """Finds what a job shares with those that are alike, once for all of them."""

    tools: Tools
    speeds: Throughputs
    costed: bool
    """The policy weighs prices itself."""
    _known: dict[tuple[object, ...], _Kind | None] = field(default_factory=dict)

    def of(self, job: WorkloadRecord) -> _Kind | None:
        """What its like have in common; ``None`` where the cluster could never run it."""
        typed = self.tools.typed
        request, known = typed.requests.of(job, job.shape), self.speeds.of(job)
        fewest = job.elasticity.min_replicas if job.elasticity is not None else 0
        choice = typed.requests.choose(job)
        alike = (request.number, job.replicas, fewest, id(known), choice.by_cost)
        if alike not in self._known:
            kind = None
            if typed.feasibility.judge(job, request) is None:
                rates, source = _speeds(self.tools, job, request, known)
                kind = _Kind(
                    points=job.replicas * points_of(request),
                    rates=rates,
                    worth=rates if self.costed else choice.worth(rates),
                    source=source,
                )
            self._known[alike] = kind
        return self._known[alike]


def points_of(request: ResourceRequest) -> int:
    """Percent of devices that one member takes: all of each, or the most of its share."""
    if request.exclusive:
        return WHOLE * request.count
    return min(request.max_percent, request.percent_limit, WHOLE)


def held_type(inventory: Inventory, ledger: Ledger, members: Sequence[Member]) -> tuple[str, float]:
    """Type that most slices of the members are on, and since when they are held."""
    if len(members) == 1 and not members[0].held:
        return "", 0.0
    if len(members) == 1 and len(members[0].held) == 1:
        return _held_alone(inventory, ledger, members[0].held[0])
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


def _held_alone(inventory: Inventory, ledger: Ledger, held: Held) -> tuple[str, float]:
    """The same for a job of one slice, as most are."""
    site = inventory.site_index.get((held.node, held.slice.gpu))
    if site is None or ledger.dropped(held.node, held.slice.key):
        return "", 0.0
    return inventory.model_names[inventory.model.item(site)], held.since


def began_at(job: WorkloadRecord, holds: str, seen: float) -> float:
    """Since when it holds a type: as its status remembers, else as this process saw it."""
    known = job.status.allocation
    if known is not None:
        for kind, had in known.received:
            if kind == holds and had.since:
                return had.since
    return seen


def _may_take_part(job: WorkloadRecord, life: LifecycleStep) -> bool:
    """Whether a job is of those who take turns while they are not over."""
    if job.kind is not WorkloadKind.TRAINING_JOB or life.silent or not job.shape.device_container:
        return False
    return not (life.phase.terminal or life.phase in _GONE)


def _takes_part(view: View, life: LifecycleStep) -> bool:
    """Whether a job that holds nothing waits for devices, or soon will."""
    if life.waiting or life.missing:
        return True
    return life.retry_at <= view.now and Standing.FOREIGN not in standing_of(life.reason)


def _speeds(
    tools: Tools, job: WorkloadRecord, request: ResourceRequest, known: Mapping[str, Throughput]
) -> tuple[dict[str, float], str]:
    """Steps/s on every type that could run the job, and the weakest source of them.

    What is not known counts as the mean of what is, or as 1: no type is then preferred.
    """
    able = [
        name
        for name, model in tools.inventory.models.items()
        if (request.accelerators is None or model in request.accelerators)
        and model not in request.barred
        and tools.typed.fits(job, model)
    ]
    said = {name: known[name] for name in able if name in known}
    said = {name: one for name, one in said.items() if one.steps_per_second > 0}
    mean = sum(entry.steps_per_second for entry in said.values()) / len(said) if said else 1.0
    sources = [str(entry.source) for entry in said.values()]
    sources += [NEUTRAL] * (len(able) > len(said))
    weakest = min(sources, key=lambda word: _WEAKEST[word], default=NEUTRAL)
    rates = {name: said[name].steps_per_second if name in said else mean for name in able}
    return rates, weakest


def _room(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, int]:
    """Points of every type that turns may use: what others hold is not there.

    A device that a job which takes turns holds counts though it may be unhealthy. Where everyone
    wants whole devices, one that is used in part by others is no room at all.
    """
    inventory = tools.inventory
    whole_only = all(runner.points % WHOLE == 0 for runner in runners.values())
    room = dict.fromkeys(inventory.model_names, 0)
    sites = zip(
        tools.occupancy.occupants, inventory.model.tolist(), inventory.health.tolist(), strict=True
    )
    for here, model, health in sites:
        used, ours = 0, False
        for occupant in here:
            if occupant.owner_uid in runners:
                ours = True
            elif not occupant.leaving:
                used += occupant.tenant.percent
        if health != HEALTHY and not ours:
            continue
        left = max(0, WHOLE - used)
        room[inventory.model_names[model]] += 0 if whole_only and left < WHOLE else left
    return room
