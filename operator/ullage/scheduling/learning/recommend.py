# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Recommended accelerator and number of devices of a job: shared by status and command line.

Speeds come from the class's table, memory from its runs or its declaration, prices from pools and
DeviceProfiles. A type whose memory cannot hold the job must never be recommended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from ullage.api.devices import Health
from ullage.api.reasons import Reason
from ullage.api.words import CostObjective
from ullage.cluster.records import profile as profile_records
from ullage.cluster.records.profile import Method, ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.devicechoice.choose import choose
from ullage.engines.devicechoice.comm import FITTED, StepScaling
from ullage.engines.devicechoice.intervals import Interval, around
from ullage.engines.devicechoice.memory import (
    Footprint,
    MeasuredMemory,
    MemoryEvidence,
    MemoryFit,
    MemoryVerdict,
    memory_verdict,
)
from ullage.engines.devicechoice.offers import (
    AcceleratorOffer,
    ChoiceGoal,
    OfferCandidate,
    Priced,
    Recommendation,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import TrainingWork
from ullage.scheduling.inventory.inventory import overhead_mib
from ullage.scheduling.learning.device_prices import prices_of
from ullage.scheduling.learning.throughput import Throughput, Throughputs, across_nodes
from ullage.scheduling.model.gang_speed import speed

MOST_NUMBERS: Final = 12
"""Numbers of members that are evaluated; of wider bounds a geometric series."""
MOST_ADVISED: Final = 8
"""Devices up to which other numbers are shown for a job of fixed size (unmeasured)."""
MIB: Final = 2**20
MOST_A_CYCLE: Final = 4000
"""Offers evaluated for new answers per cycle: each takes some hundredths of a millisecond."""
SAMPLE_STEPS: Final = 1000
"""Steps that time and cost refer to if the job does not declare its own."""
SAME_RATE: Final = 0.1
"""Width of a band (in e-folds) of speeds that are equal for the digest."""
_SUREST: Final = 0.5
"""Confidence of an estimate without any error; that of a measured speed starts there."""


def numbers_of(job: WorkloadRecord, most_members: int) -> tuple[int, ...]:
    """Numbers of members to evaluate beside the job's own, ascending.

    For an elastic job those within its bounds. For others powers of two, from an eighth to the
    double of its own, which is known to work, or ``MOST_ADVISED`` devices.

    Args:
        job: The job.
        most_members: Members that the devices of one type in the cluster allow.
    """
    members, bounds = job.replicas, job.elasticity
    if bounds is not None:
        numbers = _series(
            bounds.min_replicas, max(bounds.min_replicas, bounds.within(most_members))
        )
    else:
        most = min(most_members, max(2 * members, MOST_ADVISED // max(1, job.gpu.count)))
        numbers = {
            2**at for at in range(most.bit_length()) if members <= 2**at * 8 and 2**at <= most
        }
    return tuple(sorted(numbers - {members}))


def _series(least: int, most: int) -> set[int]:
    """All numbers if there are few, else a geometric series with both ends."""
    if most - least < MOST_NUMBERS:
        return set(range(least, most + 1))
    ratio = math.log(most / least) / (MOST_NUMBERS - 1)
    return {round(least * math.exp(ratio * at)) for at in range(MOST_NUMBERS)}


def forecast_at(
    known: StepForecast, own: int, other: int, *, scaling: StepScaling = FITTED
) -> StepForecast:
    """The step of ``other`` members with the same work each as a member of ``own``.

    Such a step takes longer with more members: n members are n * .97^log2(n) times as fast as one
    (source: ``speed``). Bounds are those of ``scaling``, and always include that value.
    """
    if known.step is None:
        return replace(known, source=Source.ESTIMATED)
    step = known.step.times(longer_at(own, other))
    least, most = scaling.bounds(own, other)
    wider = Interval(
        value_s=step.value_s,
        low_s=min(step.low_s, known.step.low_s * least),
        high_s=max(step.high_s, known.step.high_s * most),
    )
    return replace(known, step=wider, source=Source.ESTIMATED)


def longer_at(own: int, other: int) -> float:
    """Step time of ``other`` members as a multiple of that of ``own``."""
    return speed(own) / own / (speed(other) / other)


def memory_at(known: MemoryVerdict, own: int, other: int) -> MemoryVerdict:
    """The memory of one of ``other`` members that divide one global batch.

    With fewer members each holds a larger part of the batch: at most proportionally more memory
    (derived). Where that bound does not fit, the memory is unknown.
    """
    if other >= own or known.verdict is not MemoryFit.FITS or known.need_bytes is None:
        return known
    need = known.need_bytes * own / other
    if need > known.device_bytes:
        return replace(
            known, verdict=MemoryFit.UNKNOWN, evidence=MemoryEvidence.NONE, need_bytes=None
        )
    return replace(known, evidence=MemoryEvidence.ESTIMATE, need_bytes=need)


def confidence_at(known: float, own: int, other: int) -> float:
    """Confidence of a speed at another number, from that of the speed itself."""
    if own == other:
        return known
    longer = longer_at(own, other)
    return min(known, _SUREST) * longer / max(longer, FITTED.bounds(own, other)[1])


def best_of_each_type(rows: Sequence[Priced]) -> tuple[Priced, ...]:
    """One row of every type: the first feasible one, else advice, else the nearest.

    Args:
        rows: Rows by rank.
    """
    best: dict[str, Priced] = {}
    for row in rows:
        current = best.get(row.offer.accelerator)
        if current is None or _distance(row) < _distance(current):
            best[row.offer.accelerator] = row
    return tuple(best.values())


def _distance(row: Priced) -> tuple[int, bool, float]:
    """Rank of a row's obstacles; among infeasible rows, the fastest is nearest."""
    if row.infeasible is None:
        return int(row.hold is not None), False, 0.0
    seconds = math.inf if row.total is None else row.total.value_s
    available = row.offer.available
    return 2, not available, seconds if available else float(row.offer.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """One type of device in the cluster.

    ``devices`` are healthy ones, ``most_on_a_node`` the largest number on one node; memory is that
    of the smallest, MiB, ``overhead_mib`` the memory of one context there.
    """

    accelerator: str
    devices: int = 0
    most_on_a_node: int = 0
    memory_mib: int = 0
    overhead_mib: int = 0
    price_per_hour: float | None = None


def fleet_of(snapshot: Snapshot) -> dict[str, DeviceKind]:
    """Every type reported by a node or described by a DeviceProfile, by key."""
    counts: dict[str, dict[str, int]] = {}
    memory: dict[str, int] = {}
    overhead: dict[str, int] = {}
    for name in sorted(snapshot.gpu_nodes):
        node = snapshot.gpu_nodes[name]
        for device in node.devices:
            if device.health is not Health.HEALTHY or node.retire:
                continue
            on_nodes = counts.setdefault(device.model, {})
            on_nodes[name] = on_nodes.get(name, 0) + 1
            least = memory.get(device.model, device.memory_mib)
            memory[device.model] = min(least, device.memory_mib)
            if device.model not in overhead:
                overhead[device.model] = overhead_mib(snapshot, device)
    prices = prices_of(snapshot)
    kinds: dict[str, DeviceKind] = {}
    for accelerator in sorted(counts.keys() | snapshot.device_profiles.keys()):
        profile = snapshot.device_profiles.get(accelerator)
        on_nodes = counts.get(accelerator, {})
        kinds[accelerator] = DeviceKind(
            accelerator=accelerator,
            devices=sum(on_nodes.values()),
            most_on_a_node=max(on_nodes.values(), default=0),
            memory_mib=memory.get(accelerator) or (profile.memory_mib if profile else 0),
            overhead_mib=overhead.get(
                accelerator, profile.context_overhead_mib if profile is not None else 0
            ),
            price_per_hour=prices.get(accelerator),
        )
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An answer; time and cost are for ``steps``.

    Attributes:
        table: A row per type with the best number of devices for the job, which is the job's own
            unless it is elastic.
        numbers: Other numbers of the first type; of all types where none is feasible.
        confidence: Confidence of the speeds at the job's own number, by accelerator.
        steps: Steps of the training.
        members: The job's own number.
        devices_each: Devices of one member.
    """

    table: Recommendation
    numbers: tuple[Priced, ...]
    confidence: Mapping[str, float]
    steps: int
    members: int
    devices_each: int

    @property
    def first(self) -> Priced | None:
        """The row to take: the chosen one, else the best without obstacles."""
        free = (row for row in self.table.rows if row.infeasible is None and row.hold is None)
        return self.table.chosen or next(free, None)

    def confidence_of(self, row: Priced) -> float | None:
        """Confidence in the speed of a row, 0 to 1."""
        sure = self.confidence.get(row.offer.accelerator)
        if sure is None or row.source is None:
            return None
        return confidence_at(sure, self.members, row.offer.gpus // self.devices_each)


@dataclass(frozen=True, slots=True)
class _Offers:
    """Offers shared by equal jobs: of their own number of members, of others, and a digest."""

    own: tuple[OfferCandidate, ...]
    others: tuple[OfferCandidate, ...]
    digest: str

    @property
    def count(self) -> int:
        """Number of offers."""
        return len(self.own) + len(self.others)


@dataclass(slots=True)
class Advisor:
    """Answers for the jobs of one snapshot; offers of equal jobs are computed once.

    ``left`` is the remaining number of offers to evaluate for new answers: other jobs wait for the
    next cycle, which the writes of this one trigger.
    """

    snapshot: Snapshot
    speeds: Throughputs
    left: int = MOST_A_CYCLE
    _fleet: Mapping[str, DeviceKind] | None = None
    _offers: dict[tuple[object, ...], _Offers] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Advisor:
        """An advisor with its own speeds."""
        return cls(snapshot=snapshot, speeds=Throughputs(snapshot))

    def advice(self, workload: WorkloadRecord) -> Advice:
        """The ranked table of a job's accelerators and numbers of them."""
        devices = workload.replicas * workload.gpu.count
        steps = workload.work_steps or SAMPLE_STEPS
        work = TrainingWork(samples=steps * devices, epochs=1, batch_per_gpu=1)
        offers, goal = self._offers_of(workload), goal_of(workload)
        elastic = workload.elasticity is not None
        table = choose((*offers.own, *offers.others) if elastic else offers.own, goal, work)
        table = _in_words(table, self.fleet())
        numbers = table.rows
        if elastic:
            table = replace(table, rows=best_of_each_type(numbers))
        elif offers.others:
            numbers = _in_words(choose(offers.others, goal, work), self.fleet()).rows
        speeds = self.speeds.of(workload)
        advice = Advice(
            table=table,
            numbers=(),
            confidence={name: entry.confidence for name, entry in speeds.items()},
            steps=steps,
            members=workload.replicas,
            devices_each=workload.gpu.count,
        )
        return replace(advice, numbers=_numbers(advice, numbers))

    def basis(self, workload: WorkloadRecord) -> str:
        """Digest of the inputs of the advice; small changes of speeds do not change it."""
        digest = self._offers_of(workload).digest
        text = f"{workload.cost!r} {workload.work_steps}\n{digest}"
        return sha256(text.encode()).hexdigest()[:12]

    def spend(self, workload: WorkloadRecord) -> None:
        """Count a new answer."""
        self.left -= self._offers_of(workload).count

    def fleet(self) -> Mapping[str, DeviceKind]:
        """Types of device in the cluster."""
        if self._fleet is None:
            self._fleet = fleet_of(self.snapshot)
        return self._fleet

    def _offers_of(self, workload: WorkloadRecord) -> _Offers:
        """The types that the job allows, with speed, memory and price; equal jobs share them."""
        key = (
            workload.ref.namespace,
            workload.profile_ref,
            workload.workload_class,
            workload.family,
            workload.gpu,
            workload.replicas,
            workload.elasticity,
            workload.accelerators,
        )
        offers = self._offers.get(key)
        if offers is None:
            fleet = self.fleet()
            present = [name for name, device_kind in fleet.items() if device_kind.devices]
            names = sorted(set(workload.accelerators or present))
            kinds = [fleet.get(name) or DeviceKind(accelerator=name) for name in names]
            own = tuple(self._candidate(workload, kind) for kind in kinds)
            numbers = numbers_of(
                workload, max((_most(workload, device_kind) for device_kind in kinds), default=0)
            )
            others = tuple(
                self._resized(workload, kind, known, members)
                for kind, known in zip(kinds, own, strict=True)
                if known.forecast is not None and known.forecast.step is not None
                for members in numbers
            )
            lines = [_print(candidate) for candidate in own]
            lines += [f"{candidate.offer.gpus} {candidate.offer.available}" for candidate in others]
            digest = sha256("\n".join(lines).encode()).hexdigest()
            offers = self._offers[key] = _Offers(own, others, digest)
        return offers

    def _candidate(self, workload: WorkloadRecord, kind: DeviceKind) -> OfferCandidate:
        speeds = self.speeds.of(workload)
        anchored = any(
            entry.source is not profile_records.Source.ESTIMATED for entry in speeds.values()
        )
        speed = speeds.get(kind.accelerator)
        forecast, unknown = None, None
        if speed is None or speed.method is Method.TYPICAL:
            unknown = self._unknown(workload, kind.accelerator, speed)
        else:
            forecast = _forecast(speed, anchored=anchored)
            forecast = self._over_nodes(workload, kind, workload.replicas, forecast)
        return OfferCandidate(
            offer=_offer(workload, kind, workload.replicas),
            forecast=forecast,
            memory=self._memory(workload, kind),
            unknown=unknown,
        )

    def _resized(
        self, workload: WorkloadRecord, kind: DeviceKind, candidate: OfferCandidate, members: int
    ) -> OfferCandidate:
        """The offer of another number of members on a type."""
        assert candidate.forecast is not None  # others exist only with a known step
        grows = workload.elasticity is not None and not workload.gpu.memory_mib
        memory = (
            memory_at(candidate.memory, workload.replicas, members) if grows else candidate.memory
        )
        forecast = self._over_nodes(
            workload, kind, workload.replicas, candidate.forecast, back=True
        )
        forecast = forecast_at(forecast, workload.replicas, members)
        return OfferCandidate(
            offer=_offer(workload, kind, members),
            forecast=self._over_nodes(workload, kind, members, forecast),
            memory=memory,
        )

    def _over_nodes(
        self,
        workload: WorkloadRecord,
        kind: DeviceKind,
        members: int,
        forecast: StepForecast,
        *,
        back: bool = False,
    ) -> StepForecast:
        """The step of this many members, longer where no node of the type fits all of them.

        Args:
            workload: The job.
            kind: The type.
            members: Number of members.
            forecast: Step of as many on one node.
            back: Inverse: from the step over nodes to that on one.
        """
        part = across_nodes(self.speeds.profiles_of(workload)) or 1.0
        step = forecast.step
        if step is None or part >= 1 or members * workload.gpu.count <= _on_a_node(workload, kind):
            return forecast
        factor = part if back else 1 / part
        longer = Interval(
            value_s=step.value_s * factor, low_s=step.low_s * factor, high_s=step.high_s * factor
        )
        return replace(forecast, step=longer)

    def _unknown(
        self, workload: WorkloadRecord, accelerator: str, typical: Throughput | None
    ) -> tuple[Reason, str] | None:
        """Reason for a missing estimate of a step on a type; ``None`` = none is known."""
        if typical is not None:
            return (
                Reason.NO_ESTIMATE,
                "the class never ran: others say which type is faster, not how long its step takes",
            )
        if not self.speeds.of(workload) or self.speeds.family_ran(workload, accelerator):
            return None
        return (
            Reason.FAMILY_NOT_MEASURED,
            f"no class of the job's family ran on {accelerator}, and other families do not tell",
        )

    def _memory(self, workload: WorkloadRecord, kind: DeviceKind) -> MemoryVerdict:
        """The fit of one member: by its declared limit, else by its class's peaks."""
        size = float(kind.memory_mib * MIB)
        overhead = float(kind.overhead_mib * MIB)
        if workload.gpu.memory_mib:
            footprint = Footprint(
                parameters=0.0,
                activation_bytes_per_sample=0.0,
                workspace_bytes=float(workload.gpu.memory_mib * MIB),
            )
            return memory_verdict(size, context_bytes=overhead, footprint=footprint)
        runs = [
            run
            for profile in self.speeds.profiles_of(workload)
            for run in _runs(profile, self.fleet())
        ]
        return memory_verdict(size * _part(workload), context_bytes=overhead, measured=runs)


def goal_of(workload: WorkloadRecord) -> ChoiceGoal:
    """The goal of a job's choice; empty without ``spec.cost``."""
    cost = workload.cost
    # an elastic program keeps its global batch, so any number within its bounds is valid
    devices = workload.replicas * workload.gpu.count if workload.elasticity is None else None
    if cost is None:
        return ChoiceGoal(gpus=devices)
    return ChoiceGoal(
        objective=CostObjective(cost.objective) if cost.objective else None,
        max_cost=cost.max_cost,
        max_time_s=cost.max_time_s,
        gpus=devices,
        delay_per_hour=cost.delay_cost_per_hour or 0.0,
    )


def _offer(workload: WorkloadRecord, kind: DeviceKind, members: int) -> AcceleratorOffer:
    devices, part = members * workload.gpu.count, _part(workload)
    price = kind.price_per_hour
    return AcceleratorOffer(
        accelerator=kind.accelerator,
        gpus=devices,
        price_per_hour=None if price is None else price * devices * part,
        available=members <= _most(workload, kind),
    )


def _most(workload: WorkloadRecord, kind: DeviceKind) -> int:
    """Members that fit all devices of a type, empty."""
    if kind.most_on_a_node < workload.gpu.count:
        return 0
    part = _part(workload)
    return kind.devices * (1 if part == 1 else int(1 / part)) // max(1, workload.gpu.count)


def _on_a_node(workload: WorkloadRecord, kind: DeviceKind) -> int:
    """Devices of a type on one node, a part of a device counted as often as it fits."""
    part = _part(workload)
    return kind.most_on_a_node * (1 if part == 1 else int(1 / part))


def _numbers(advice: Advice, rows: Sequence[Priced]) -> tuple[Priced, ...]:
    """Rows beside the table: other numbers of the first type.

    Where no type is feasible, the best number of each possible type.
    """
    first = advice.first
    if first is None:
        advised = [priced for priced in rows if priced.hold is Reason.COUNT_CHANGES_BATCH]
        return best_of_each_type(advised)
    kind, devices = first.offer.accelerator, first.offer.gpus
    same = (row for row in rows if row.offer.accelerator == kind and row.offer.available)
    others = (row for row in same if row.offer.gpus != devices)
    return tuple(sorted(others, key=lambda row: row.offer.gpus))


def _part(workload: WorkloadRecord) -> float:
    """Guaranteed fraction of each device of the job."""
    share = workload.gpu.share
    return 1.0 if share is None else share.min_percent / WHOLE_PERCENT


def _forecast(speed: Throughput, *, anchored: bool) -> StepForecast:
    if not speed.steps_per_second > 0:
        return StepForecast(step=None, source=Source(speed.source.value))
    step = around(1 / speed.steps_per_second, 1.0)
    if speed.low and speed.high:
        step = Interval(value_s=step.value_s, low_s=1 / speed.high, high_s=1 / speed.low)
    return StepForecast(step=step, source=Source(speed.source.value), anchored=anchored)


def _runs(profile: ProfileRecord, fleet: Mapping[str, DeviceKind]) -> list[MeasuredMemory]:
    """Peaks of memory in use, with the size of the observed device."""
    peaks: list[MeasuredMemory] = []
    for row in (*profile.solo, *profile.status.solo):
        peak, kind = row.fingerprint.peak_memory_mib, fleet.get(row.device)
        if peak:
            size = kind.memory_mib * row.share / WHOLE_PERCENT if kind is not None else 0.0
            peaks.append(MeasuredMemory(device_bytes=size * MIB, peak_bytes=peak * MIB))
    return peaks


def _print(candidate: OfferCandidate) -> str:
    """Relevant facts of a candidate, speeds in bands."""
    offer, step = (
        candidate.offer,
        candidate.forecast.step if candidate.forecast is not None else None,
    )
    band = "" if step is None else round(math.log(step.value_s) / SAME_RATE)
    source = candidate.forecast.source if candidate.forecast is not None else ""
    anchored = candidate.forecast.anchored if candidate.forecast is not None else ""
    need = candidate.memory.need_bytes
    unknown = "" if candidate.unknown is None else f" {candidate.unknown[0]}"
    return (
        f"{offer.accelerator} {offer.gpus} {offer.price_per_hour} {offer.available} {band} {source}"
        f" {anchored} {candidate.memory.verdict} {'' if need is None else round(need / MIB / 256)}"
        f"{unknown}"
    )


def _in_words(table: Recommendation, fleet: Mapping[str, DeviceKind]) -> Recommendation:
    """The table with the number of devices where there are too few."""
    rows = tuple(
        replace(row, text=_too_few(fleet.get(row.offer.accelerator), row.offer.gpus))
        if row.infeasible is Reason.NOT_AVAILABLE
        else row
        for row in table.rows
    )
    return replace(table, rows=rows)


def _too_few(kind: DeviceKind | None, wanted: int) -> str:
    if kind is None or not kind.devices:
        return "the cluster has no healthy device of this type"
    return (
        f"the job takes {wanted} devices; the cluster has {kind.devices} healthy ones, at most"
        f" {kind.most_on_a_node} on one node"
    )
