# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of jobs that may share a device in their turn, by the forecasts of admission.

Both jobs must allow it, trust each other, fit into the memory and meet their objectives; a pair
that missed its forecast is excluded for a while. Each kind is evaluated beside a few others only,
so that the work grows with the jobs, not with their pairs. Nothing is placed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.devices import GPUMode
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import PartedRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import HEALTHY, MODE_BIT, WHOLE_PERCENT, with_contexts_mib
from ullage.engines.admission.query import AdmissionQuery
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.trust_domains import effective_domain, is_granted
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Held, View
from ullage.scheduling.prediction.verdicts import Admission, AdmissionRule
from ullage.scheduling.prediction.workload_classes import Known
from ullage.scheduling.times import NEIGHBOURS_SETTLE_S, PAIR_PARTED_S
from ullage.scheduling.timeslicing.contenders import Arena, Runner, Tools
from ullage.scheduling.timeslicing.division_cache import DivisionCache, KeptPairs
from ullage.scheduling.timeslicing.pair_records import Pairing, Together
from ullage.scheduling.timeslicing.problem import on_grid

MOST_KINDS: Final = 256
"""Most kinds evaluated, those with most jobs first (our choice: it bounds a cold cycle)."""
_NEIGHBOURS: Final = 3
"""Number of kinds of least and of opposite demand beside which each kind is evaluated."""
_LEAST, _MOST = 10, 90
"""Bounds of a share in a pair, percent."""


@dataclass(frozen=True, slots=True)
class _JobKind:
    """Jobs that are interchangeable in a pair."""

    name: str
    first: WorkloadRecord
    known: Known
    speeds: Mapping[str, float]
    domain: str
    many: bool

    def demand(self) -> float:
        """Mean utilisation over the types."""
        tenants = self.known.tenants
        return sum(tenant.utilisation for tenant in tenants) / len(tenants) if tenants else 0.0


@dataclass(frozen=True, slots=True)
class _Room:
    """Capacity that every healthy device of a type offers to two jobs."""

    model: int
    memory_mib: int
    overhead_mib: int


def paired(tools: Tools, arena: Arena, rule: AdmissionRule, cache: DivisionCache) -> Arena:
    """Add the possible pairs and the present partners to the jobs that take turns.

    Args:
        tools: Parts of the cycle.
        arena: The jobs that take turns.
        rule: Evaluates pairs.
        cache: Forecasts of the last cycle.
    """
    if not any(_matters(runner.workload) for runner in arena.runners.values()):
        return arena
    runners = _neighbours(tools, arena.runners)
    kinds: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for uid, runner in runners.items():
        kind = _kind(tools.view, runner)
        if kind:
            kinds[uid] = kind
            groups.setdefault(kind, []).append(uid)
    names = sorted(groups, key=lambda kind: (-len(groups[kind]), kind))[:MOST_KINDS]
    described = [
        _JobKind(
            name=name,
            first=first.workload,
            known=tools.typed.requests.classes.of(first.workload),
            speeds=first.speeds,
            domain=effective_domain(tools.view, first.workload),
            many=len(groups[name]) > 1,
        )
        for name in names
        for first in [runners[groups[name][0]]]
    ]
    ended = _ended(tools, runners)
    forecasts = _forecasts(tools, described, rule, cache)
    parted = {
        (
            frozenset((runners[uid].workload.workload_class, record.workload_class)),
            record.accelerator,
        )
        for uid, record in _parted(runners, ended, tools.view.now)
    }
    if parted:
        classes = {kind.name: kind.first.workload_class for kind in described}
        forecasts = {
            (left, right): {
                kind: both
                for kind, both in by_type.items()
                if (frozenset((classes[left], classes[right])), kind) not in parted
            }
            for (left, right), by_type in forecasts.items()
        }
    pairing = Pairing(kinds=kinds, forecasts=forecasts, ended=ended)
    return replace(arena, runners=_intended(runners, pairing), pairing=pairing)


def _matters(job: WorkloadRecord) -> bool:
    """True when a job of a whole device may share it, or still does."""
    if job.sharing.allow_packing:
        return True
    shown = job.status.sharing
    return shown is not None and shown.percent < WHOLE_PERCENT and job.gpu.share is None


def _kind(view: View, runner: Runner) -> str:
    """Key of the jobs that are equal to this one in a pair; empty = it shares with no job."""
    job = runner.workload
    if not (job.sharing.allow_packing and job.sharing.allow and job.checkpoint):
        return ""
    gpu, alone = job.gpu, job.replicas == 1 and job.elasticity is None
    if not alone or gpu.mode is not GPUMode.EXCLUSIVE or gpu.count != 1 or not gpu.memory_mib:
        return ""
    if not is_granted(view.snapshot.policy, job):
        return ""
    traits = (
        effective_domain(view, job),
        job.ref.namespace,
        job.workload_class,
        job.profile_ref,
        str(runner.priority),
        str(gpu.memory_mib),
        f"{job.max_slowdown} {job.min_throughput}",
        " ".join(job.accelerators),
        # its own objective values types, and its own limits exclude some
        str(sorted(runner.worth.items())) if job.cost is not None else "",
    )
    return "|".join(traits)


def _neighbours(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, Runner]:
    """The runners with their device, their share and the job beside them."""
    places: dict[str, Held] = {}
    by_device: dict[tuple[str, str], list[str]] = {}
    for uid, runner in runners.items():
        asks_whole = runner.holds and runner.workload.gpu.share is None
        members = tools.view.members.get(uid, ()) if asks_whole else ()
        if len(members) == 1 and len(members[0].held) == 1:
            held = places[uid] = members[0].held[0]
            by_device.setdefault((held.node, held.slice.gpu), []).append(uid)
    placed = dict(runners)
    for device, uids in by_device.items():
        site = tools.inventory.site_index.get(device, -1)
        for uid in uids:
            beside = [other for other in uids if other != uid]
            placed[uid] = runners[uid]._replace(
                beside=beside[0] if len(beside) == 1 else "",
                percent=places[uid].slice.percent,
                site=site,
            )
    return placed


def _intended(runners: Mapping[str, Runner], pairing: Pairing) -> dict[str, Runner]:
    """The runners, where a job with a part of a device is beside the partner that will join it."""
    intended = dict(runners)
    for uid, runner in runners.items():
        books = runner.workload.status.allocation
        if not runner.holds or runner.beside or runner.percent >= WHOLE_PERCENT or books is None:
            continue
        other = next((pair.partner_uid for pair in books.pairs if pair.since), "")
        partner = runners.get(other)
        if partner is None or partner.holds:
            continue
        if pairing.together(uid, other, runner.holds) is not None:
            intended[uid] = runner._replace(beside=other)
    return intended


def _parted(
    runners: Mapping[str, Runner], ended: Mapping[str, PartedRecord], now: float
) -> Iterator[tuple[str, PartedRecord]]:
    """Pairs that are excluded, by the uid of a job whose status says so."""
    yield from ended.items()
    for uid, runner in runners.items():
        books = runner.workload.status.allocation
        for record in books.parted if books is not None else ():
            if record.until > now:
                yield uid, record


def _ended(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, PartedRecord]:
    """Pairs that miss their forecast: taking turns is faster, or an objective is broken."""
    view, ended = tools.view, dict[str, PartedRecord]()
    for uid, first in runners.items():
        second = runners.get(first.beside)
        if second is None or uid > first.beside or first.percent >= WHOLE_PERCENT:
            continue
        text = _broken(tools, first, second)
        if not text:
            continue
        until = whole_second(view.now + PAIR_PARTED_S)
        for mine, theirs in ((first, second), (second, first)):
            ended[mine.uid] = PartedRecord(
                workload_class=theirs.workload.workload_class,
                accelerator=first.holds,
                until=until,
                message=text,
            )
    return ended


def _broken(tools: Tools, first: Runner, second: Runner) -> str:
    """Message about a pair that misses its forecast; empty = it does not, or unknown."""
    seen: list[float] = []
    for job in (first.workload, second.workload):
        figures, books = job.status.sharing, job.status.allocation
        since = max((pair.since for pair in books.pairs), default=0.0) if books else 0.0
        settled = since and tools.view.now >= since + NEIGHBOURS_SETTLE_S
        if not settled or job.status.phase != Phase.RUNNING or figures is None:
            return ""
        if not figures.observed:
            return ""
        seen.append(float(figures.observed))
    names = f"{first.name} and {second.name} on {first.holds}"
    observed = f"{names} ran {seen[0]:.2f} and {seen[1]:.2f} times slower than alone"
    least = tools.view.snapshot.policy.risk.min_combined_percent / WHOLE_PERCENT
    if sum(1 / max(slowdown, 1.0) for slowdown in seen) < least:
        return f"{observed}: taking turns is faster"
    model = tools.inventory.models[first.holds]
    for runner, slowdown in zip((first, second), seen, strict=True):
        requests = tools.typed.requests.classes.of(runner.workload)
        allowed = requests.tenants[model].max_slowdown
        if allowed is not None and slowdown > allowed:
            return f"{observed}: the objective of {runner.name} allows {allowed:g}"
    return ""


def _forecasts(
    tools: Tools, kinds: Sequence[_JobKind], rule: AdmissionRule, cache: DivisionCache
) -> Mapping[tuple[str, str], Mapping[str, Together]]:
    """Forecasts of the pairs to evaluate; those of the last cycle if the inputs are the same."""
    snapshot, rooms = tools.view.snapshot, _rooms(tools.inventory)
    values = (tuple((kind.name, kind.many) for kind in kinds), rooms, snapshot.policy.risk)
    objects = (*[kind.known for kind in kinds], *snapshot.models.values())
    before = cache.pairs
    if before is not None and before.stands(values, objects):
        return before.forecasts
    judge = _PairJudge(rule, rooms, tools.inventory.model_names)
    forecasts: dict[tuple[str, str], dict[str, Together]] = {}
    for left, right in _to_judge(kinds):
        by_type = judge.of(left, right)
        if by_type:
            forecasts[left.name, right.name] = by_type
    cache.pairs = KeptPairs(values, objects, forecasts)
    return forecasts


def _rooms(inventory: Inventory) -> dict[str, _Room]:
    """Types that offer shares, with the least capacity of their healthy devices."""
    rooms: dict[str, _Room] = {}
    for name, model in inventory.models.items():
        offers = (inventory.model == model) & (inventory.health == HEALTHY)
        offers &= inventory.facts.modes // MODE_BIT[GPUMode.FRACTIONAL] % 2 == 1
        offers &= (inventory.facts.mps == 0) & (inventory.facts.contexts >= 2)
        if offers.any():
            rooms[name] = _Room(
                model,
                int(inventory.facts.memory[offers].min()),
                int(inventory.facts.overhead[offers].max()),
            )
    return rooms


def _to_judge(kinds: Sequence[_JobKind]) -> list[tuple[_JobKind, _JobKind]]:
    """The pairs to evaluate: each kind beside itself and a few others.

    Kinds of least demand slow others down least; kinds of opposite demand fill devices best.
    """
    groups: dict[tuple[str, str], list[_JobKind]] = {}
    for kind in kinds:
        priority = kind.name.split("|")[4]
        groups.setdefault((kind.domain, priority), []).append(kind)
    pairs: dict[tuple[str, str], tuple[_JobKind, _JobKind]] = {}
    for group in groups.values():
        group.sort(key=lambda kind: (kind.demand(), kind.name))
        for at, kind in enumerate(group):
            mirror = len(group) - 1 - at
            first = max(0, mirror - _NEIGHBOURS // 2)
            others = [*group[: _NEIGHBOURS + 1], *group[first : first + _NEIGHBOURS]]
            for other in others:
                if other is not kind:
                    left, right = sorted((kind, other), key=lambda kind: kind.name)
                    pairs[left.name, right.name] = left, right
            if kind.many:
                pairs[kind.name, kind.name] = kind, kind
    return [pairs[key] for key in sorted(pairs)]


@dataclass(frozen=True, slots=True)
class _PairJudge:
    """Queries admission about pairs."""

    rule: AdmissionRule
    rooms: Mapping[str, _Room]
    names: Sequence[str]

    def of(self, left: _JobKind, right: _JobKind) -> dict[str, Together]:
        """Forecasts of two kinds by type, without the types on which they are no pair."""
        by_type: dict[str, Together] = {}
        for name in left.speeds:
            room = self.rooms.get(name)
            if room is None or name not in right.speeds:
                continue
            both = self._on(left, right, name, room)
            if both is not None:
                by_type[name] = both
        return by_type

    def _on(self, left: _JobKind, right: _JobKind, name: str, room: _Room) -> Together | None:
        model = room.model
        needed = sum(
            with_contexts_mib(kind.first.gpu.memory_mib, 1, room.overhead_mib)
            for kind in (left, right)
        )
        if needed > room.memory_mib:
            return None
        for kind in (left, right):
            account = kind.known.account
            isolated = account is not None and account.faults > 0
            if isolated or model in kind.known.barred or model in kind.known.unmeasured:
                return None
        percent = _split(
            left.known.tenants[model].utilisation, right.known.tenants[model].utilisation
        )
        first = left.known.tenant("one job", model, percent)
        second = right.known.tenant("the other", model, WHOLE_PERCENT - percent)
        verdict = self.rule.judge(
            AdmissionQuery(
                accelerator=name,
                newcomer=second,
                residents=(first,),
                least=second.percent,
                most=second.percent,
                domain=right.domain,
            )
        )
        if not isinstance(verdict, Admission) or verdict.trial:
            return None
        slow = self.rule.slowdowns(name, (first, second))
        # on the grid, so that drifting measurements do not trigger a new division
        slowdowns = on_grid(max(1.0, slow[0])), on_grid(max(1.0, slow[1]))
        return Together((percent, WHOLE_PERCENT - percent), slowdowns)


def _split(left: float, right: float) -> int:
    """The first job's share, in proportion to what both use of a device, in tens (derived)."""
    total = left + right
    part = left / total if total > 0 else 0.5
    return min(_MOST, max(_LEAST, 10 * round(10 * part)))
