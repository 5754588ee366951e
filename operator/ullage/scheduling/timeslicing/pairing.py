# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the jobs that may share a device in their turn, by what admission predicts of them.

Both must allow it, trust each other, fit into the memory and keep their objectives; a pair that was
observed not to hold is left out for a while. Every kind is asked about beside a few others only, so
the work grows with the jobs, not with their pairs. Nothing is placed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.devices import GPUMode
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import PartedRecord
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

MOST_KINDS: Final = 256
"""Kinds that are asked about, those with most jobs first (our choice: it bounds a cold cycle)."""
_NEIGHBOURS: Final = 3
"""Kinds of least demand, and kinds of opposite demand, that each is asked about beside itself."""
_GRID: Final = 0.02
"""Slowdowns count as equal within this part."""
_LEAST, _MOST = 10, 90
"""Bounds of a share in a pair, percent."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Jobs that are alike in a pair."""

    name: str
    first: WorkloadRecord
    known: Known
    speeds: Mapping[str, float]
    domain: str
    many: bool

    def demand(self) -> float:
        """Mean utilisation over the types."""
        tenants = self.known.tenants
        return sum(one.utilisation for one in tenants) / len(tenants) if tenants else 0.0


@dataclass(frozen=True, slots=True)
class _Room:
    """The least that devices of a type offer two jobs."""

    model: int
    memory_mib: int
    overhead_mib: int


def paired(tools: Tools, who: Arena, rule: AdmissionRule, cache: DivisionCache) -> Arena:
    """Who takes turns, with the pairs among them, and who is beside whom now.

    Args:
        tools: What the cycle knows.
        who: Who takes turns.
        rule: Judges pairs.
        cache: Predictions of the last cycle.
    """
    if not any(_matters(one.workload) for one in who.runners.values()):
        return who
    runners = _neighbours(tools, who.runners)
    kinds: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for uid, one in runners.items():
        kind = _kind(tools.view, one)
        if kind:
            kinds[uid] = kind
            groups.setdefault(kind, []).append(uid)
    asked = sorted(groups, key=lambda kind: (-len(groups[kind]), kind))[:MOST_KINDS]
    found = [_described(tools, kind, [runners[uid] for uid in groups[kind]]) for kind in asked]
    ended = _ended(tools, runners)
    forecasts = _forecasts(tools, found, rule, cache)
    parted = {
        (frozenset((runners[uid].workload.workload_class, one.workload_class)), one.accelerator)
        for uid, one in _parted(runners, ended, tools.view.now)
    }
    if parted:
        classes = {kind.name: kind.first.workload_class for kind in found}
        forecasts = {
            (left, right): {
                kind: both
                for kind, both in by_type.items()
                if (frozenset((classes[left], classes[right])), kind) not in parted
            }
            for (left, right), by_type in forecasts.items()
        }
    pairing = Pairing(kinds=kinds, forecasts=forecasts, ended=ended)
    return replace(who, runners=_intended(runners, pairing), pairing=pairing)


def _matters(job: WorkloadRecord) -> bool:
    """Whether a job may share its whole device, or does so still."""
    if job.sharing.allow_packing:
        return True
    shown = job.status.sharing
    return shown is not None and shown.percent < WHOLE_PERCENT and job.gpu.share is None


def _kind(view: View, runner: Runner) -> str:
    """What a job is as one of a pair; empty = it shares with no one."""
    job = runner.workload
    if not (job.sharing.allow_packing and job.sharing.allow and job.checkpoint):
        return ""
    gpu, alone = job.gpu, job.replicas == 1 and job.elasticity is None
    if not alone or gpu.mode is not GPUMode.EXCLUSIVE or gpu.count != 1 or not gpu.memory_mib:
        return ""
    if not is_granted(view.snapshot.policy, job):
        return ""
    said = (
        effective_domain(view, job),
        job.ref.namespace,
        job.workload_class,
        job.profile_ref,
        str(runner.priority),
        str(gpu.memory_mib),
        f"{job.max_slowdown} {job.min_throughput}",
        " ".join(job.accelerators),
        # types count as its own aim says, and bounds of its own rule some out
        str(sorted(runner.worth.items())) if job.cost is not None else "",
    )
    return "|".join(said)


def _described(tools: Tools, name: str, runners: Sequence[Runner]) -> _Kind:
    first = runners[0]
    return _Kind(
        name=name,
        first=first.workload,
        known=tools.typed.requests.classes.of(first.workload),
        speeds=first.speeds,
        domain=effective_domain(tools.view, first.workload),
        many=len(runners) > 1,
    )


def _neighbours(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, Runner]:
    """Who is on one device with whom, at which share."""
    places: dict[str, Held] = {}
    here: dict[tuple[str, str], list[str]] = {}
    for uid, one in runners.items():
        asks_whole = one.holds and one.workload.gpu.share is None
        members = tools.view.members.get(uid, ()) if asks_whole else ()
        if len(members) == 1 and len(members[0].held) == 1:
            held = places[uid] = members[0].held[0]
            here.setdefault((held.node, held.slice.gpu), []).append(uid)
    found = dict(runners)
    for device, uids in here.items():
        site = tools.inventory.site_index.get(device, -1)
        for uid in uids:
            beside = [other for other in uids if other != uid]
            found[uid] = runners[uid]._replace(
                beside=beside[0] if len(beside) == 1 else "",
                percent=places[uid].slice.percent,
                site=site,
            )
    return found


def _intended(runners: Mapping[str, Runner], pairing: Pairing) -> dict[str, Runner]:
    """One who holds its part of a device counts as beside the partner that is to come there."""
    found = dict(runners)
    for uid, one in runners.items():
        books = one.workload.status.allocation
        if not one.holds or one.beside or one.percent >= WHOLE_PERCENT or books is None:
            continue
        other = next((pair.partner_uid for pair in books.pairs if pair.since), "")
        partner = runners.get(other)
        if partner is None or partner.holds:
            continue
        if pairing.together(uid, other, one.holds) is not None:
            found[uid] = one._replace(beside=other)
    return found


def _parted(
    runners: Mapping[str, Runner], ended: Mapping[str, PartedRecord], now: float
) -> Iterator[tuple[str, PartedRecord]]:
    """Pairs that are left out, each by the uid of a job that says so."""
    yield from ended.items()
    for uid, one in runners.items():
        books = one.workload.status.allocation
        for record in books.parted if books is not None else ():
            if record.until > now:
                yield uid, record


def _ended(tools: Tools, runners: Mapping[str, Runner]) -> dict[str, PartedRecord]:
    """Pairs that do not hold what was predicted: taking turns is faster, or an objective breaks."""
    view, found = tools.view, dict[str, PartedRecord]()
    for uid, one in runners.items():
        other = runners.get(one.beside)
        if other is None or uid > one.beside or one.percent >= WHOLE_PERCENT:
            continue
        text = _broken(tools, one, other)
        if not text:
            continue
        until = whole_second(view.now + PAIR_PARTED_S)
        for mine, theirs in ((one, other), (other, one)):
            found[mine.uid] = PartedRecord(
                workload_class=theirs.workload.workload_class,
                accelerator=one.holds,
                until=until,
                message=text,
            )
    return found


def _broken(tools: Tools, one: Runner, other: Runner) -> str:
    """What is wrong with two who share a device, in words; empty = nothing, or not known yet."""
    seen: list[float] = []
    for job in (one.workload, other.workload):
        figures, books = job.status.sharing, job.status.allocation
        since = max((pair.since for pair in books.pairs), default=0.0) if books else 0.0
        settled = since and tools.view.now >= since + NEIGHBOURS_SETTLE_S
        if not settled or job.status.phase != Phase.RUNNING or figures is None:
            return ""
        if not figures.observed:
            return ""
        seen.append(float(figures.observed))
    names = f"{one.name} and {other.name} on {one.holds}"
    said = f"{names} ran {seen[0]:.2f} and {seen[1]:.2f} times slower than alone"
    least = tools.view.snapshot.policy.risk.min_combined_percent / WHOLE_PERCENT
    if sum(1 / max(slowdown, 1.0) for slowdown in seen) < least:
        return f"{said}: taking turns is faster"
    model = tools.inventory.models[one.holds]
    for runner, slowdown in zip((one, other), seen, strict=True):
        known = tools.typed.requests.classes.of(runner.workload)
        allowed = known.tenants[model].max_slowdown
        if allowed is not None and slowdown > allowed:
            return f"{said}: the objective of {runner.name} allows {allowed:g}"
    return ""


def _forecasts(
    tools: Tools, kinds: Sequence[_Kind], rule: AdmissionRule, cache: DivisionCache
) -> Mapping[tuple[str, str], Mapping[str, Together]]:
    """What is predicted of the pairs that are asked about; as the last cycle did if all stands."""
    snapshot, rooms = tools.view.snapshot, _rooms(tools.inventory)
    said = (tuple((kind.name, kind.many) for kind in kinds), rooms, snapshot.policy.risk)
    objects = (*[kind.known for kind in kinds], *snapshot.models.values())
    before = cache.pairs
    if before is not None and before.stands(said, objects):
        return before.forecasts
    judge = _Judge(rule, rooms, tools.inventory.model_names)
    found: dict[tuple[str, str], dict[str, Together]] = {}
    for left, right in _asked(kinds):
        by_type = judge.of(left, right)
        if by_type:
            found[left.name, right.name] = by_type
    cache.pairs = KeptPairs(said, objects, found)
    return found


def _rooms(inventory: Inventory) -> dict[str, _Room]:
    """Types that offer shares, with the least that any healthy device of them has."""
    found: dict[str, _Room] = {}
    for name, model in inventory.models.items():
        here = (inventory.model == model) & (inventory.health == HEALTHY)
        here &= inventory.modes // MODE_BIT[GPUMode.FRACTIONAL] % 2 == 1
        here &= (inventory.mps == 0) & (inventory.contexts >= 2)
        if here.any():
            found[name] = _Room(
                model,
                int(inventory.memory_mib[here].min()),
                int(inventory.overhead_mib[here].max()),
            )
    return found


def _asked(kinds: Sequence[_Kind]) -> list[tuple[_Kind, _Kind]]:
    """The pairs that are asked about: each kind beside itself and a few others.

    Those of least demand slow anyone down least; those of the opposite demand make full devices.
    """
    groups: dict[tuple[str, str], list[_Kind]] = {}
    for kind in kinds:
        priority = kind.name.split("|")[4]
        groups.setdefault((kind.domain, priority), []).append(kind)
    found: dict[tuple[str, str], tuple[_Kind, _Kind]] = {}
    for group in groups.values():
        group.sort(key=lambda kind: (kind.demand(), kind.name))
        for at, kind in enumerate(group):
            mirror = len(group) - 1 - at
            first = max(0, mirror - _NEIGHBOURS // 2)
            others = [*group[: _NEIGHBOURS + 1], *group[first : first + _NEIGHBOURS]]
            for other in others:
                if other is not kind:
                    left, right = sorted((kind, other), key=lambda one: one.name)
                    found[left.name, right.name] = left, right
            if kind.many:
                found[kind.name, kind.name] = kind, kind
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Judge:
    """Asks admission about pairs."""

    rule: AdmissionRule
    rooms: Mapping[str, _Room]
    names: Sequence[str]

    def of(self, left: _Kind, right: _Kind) -> dict[str, Together]:
        """What is predicted of two kinds, by type; types on which they are no pair are missing."""
        found: dict[str, Together] = {}
        for name in left.speeds:
            room = self.rooms.get(name)
            if room is None or name not in right.speeds:
                continue
            both = self._on(left, right, name, room)
            if both is not None:
                found[name] = both
        return found

    def _on(self, left: _Kind, right: _Kind, name: str, room: _Room) -> Together | None:
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
        return Together((percent, WHOLE_PERCENT - percent), (_stepped(slow[0]), _stepped(slow[1])))


def _split(left: float, right: float) -> int:
    """The first job's share, in proportion to what both use of a device, in tens (derived)."""
    total = left + right
    part = left / total if total > 0 else 0.5
    return min(_MOST, max(_LEAST, 10 * round(10 * part)))


def _stepped(slowdown: float) -> float:
    """A slowdown on the grid: what is learned wanders, and must not divide the cluster again."""
    return math.exp(round(math.log(max(1.0, slowdown)) / _GRID) * _GRID)
