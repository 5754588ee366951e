# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which accelerator a job should take, and how many: the same answer for status and command line.

Speeds come from the class's table, memory from its runs or its own statement, prices from the
DeviceProfiles. It must never recommend a type whose memory cannot hold the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from ullage.api.contract import Reason
from ullage.api.words import CostObjective
from ullage.cluster.records import profile as profile_records
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot, WorkloadRecord
from ullage.engines.devicechoice.choose import choose
from ullage.engines.devicechoice.intervals import Interval, around
from ullage.engines.devicechoice.memory import (
    Footprint,
    MeasuredMemory,
    MemoryVerdict,
    memory_verdict,
)
from ullage.engines.devicechoice.offers import (
    Candidate,
    Goal,
    Offer,
    Priced,
    Recommendation,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import Work
from ullage.scheduling.learning.fleet import DeviceKind, fleet_of
from ullage.scheduling.learning.gang_sizes import (
    best_of_each_type,
    confidence_at,
    forecast_at,
    memory_at,
    numbers_of,
)
from ullage.scheduling.learning.throughput import Throughput, Throughputs
from ullage.scheduling.prediction.rows import WHOLE

MIB: Final = 2**20
MOST_A_CYCLE: Final = 4000
"""Offers looked at for new answers in one cycle: each takes some hundredths of a millisecond."""
SAMPLE_STEPS: Final = 1000
"""Steps that time and cost are told for where the job does not say how many it has."""
SAME_RATE: Final = 0.1
"""Speeds in one band of this width (in e-folds) count as the same for the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An answer; time and cost are of ``steps``.

    Attributes:
        table: A row of each type: the number of devices that serves the job best, which is the
            job's own unless it is elastic.
        numbers: Other numbers of the type that comes first; of all types where none can be had.
        confidence: Of the speeds at the job's own number, by accelerator.
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
        """The row to take: the chosen one, else the best that nothing speaks against."""
        free = (row for row in self.table.rows if row.infeasible is None and row.hold is None)
        return self.table.chosen or next(free, None)

    def confidence_of(self, row: Priced) -> float | None:
        """How far the speed of a row can be relied on, 0 to 1."""
        known = self.confidence.get(row.offer.accelerator)
        if known is None:
            return None
        return confidence_at(known, self.members, row.offer.gpus // self.devices_each)


@dataclass(frozen=True, slots=True)
class _Offers:
    """Offers that alike jobs share: of their own number, and of others; and their digest."""

    own: tuple[Candidate, ...]
    others: tuple[Candidate, ...]
    print: str

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.own) + len(self.others)


@dataclass(slots=True)
class Advisor:
    """Answers for the jobs of one snapshot; what alike jobs share is worked out once.

    ``left`` is how many offers it still looks at for new answers: the rest of a crowd waits for the
    next cycle, which the writes of this one bring about.
    """

    snapshot: Snapshot
    speeds: Throughputs
    left: int = MOST_A_CYCLE
    _fleet: Mapping[str, DeviceKind] | None = None
    _offers: dict[tuple[object, ...], _Offers] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Advisor:
        """An advisor with speeds of its own."""
        return cls(snapshot=snapshot, speeds=Throughputs(snapshot))

    def advice(self, workload: WorkloadRecord) -> Advice:
        """The ranked table of a job's accelerators and numbers of them."""
        devices = workload.replicas * workload.gpu.count
        steps = workload.work_steps or SAMPLE_STEPS
        work = Work(samples=steps * devices, epochs=1, batch_per_gpu=1)
        offers, goal = self._offers_of(workload), goal_of(workload)
        elastic = workload.elasticity is not None
        table = choose((*offers.own, *offers.others) if elastic else offers.own, goal, work)
        table = _in_words(table, self.fleet())
        numbers = table.rows
        if elastic:
            table = replace(table, rows=best_of_each_type(numbers))
        elif offers.others:
            numbers = _in_words(choose(offers.others, goal, work), self.fleet()).rows
        known = self.speeds.of(workload)
        found = Advice(
            table=table,
            numbers=(),
            confidence={name: one.confidence for name, one in known.items()},
            steps=steps,
            members=workload.replicas,
            devices_each=workload.gpu.count,
        )
        return replace(found, numbers=_numbers(found, numbers))

    def basis(self, workload: WorkloadRecord) -> str:
        """Digest of what the advice rests on; small changes of speeds do not change it."""
        print_ = self._offers_of(workload).print
        said = f"{workload.cost!r} {workload.work_steps}\n{print_}"
        return sha256(said.encode()).hexdigest()[:12]

    def spend(self, workload: WorkloadRecord) -> None:
        """A new answer was given."""
        self.left -= self._offers_of(workload).count

    def fleet(self) -> Mapping[str, DeviceKind]:
        """Types of device in the cluster."""
        if self._fleet is None:
            self._fleet = fleet_of(self.snapshot)
        return self._fleet

    def _offers_of(self, workload: WorkloadRecord) -> _Offers:
        """The types that the job allows, with speed, memory and price; alike jobs share them."""
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
        found = self._offers.get(key)
        if found is None:
            fleet = self.fleet()
            there = [name for name, one in fleet.items() if one.devices]
            names = sorted(set(workload.accelerators or there))
            kinds = [fleet.get(name) or DeviceKind(accelerator=name) for name in names]
            own = tuple(self._candidate(workload, kind) for kind in kinds)
            numbers = numbers_of(
                workload, max((_most(workload, device_kind) for device_kind in kinds), default=0)
            )
            others = tuple(
                _resized(workload, kind, known, members)
                for kind, known in zip(kinds, own, strict=True)
                if known.forecast is not None and known.forecast.step is not None
                for members in numbers
            )
            said = [_print(candidate) for candidate in own]
            said += [f"{candidate.offer.gpus} {candidate.offer.available}" for candidate in others]
            digest = sha256("\n".join(said).encode()).hexdigest()
            found = self._offers[key] = _Offers(own, others, digest)
        return found

    def _candidate(self, workload: WorkloadRecord, kind: DeviceKind) -> Candidate:
        known = self.speeds.of(workload)
        anchored = any(
            entry.source is not profile_records.Source.ESTIMATED for entry in known.values()
        )
        speed = known.get(kind.accelerator)
        return Candidate(
            offer=_offer(workload, kind, workload.replicas),
            forecast=_forecast(speed, anchored=anchored) if speed is not None else None,
            memory=self._memory(workload, kind),
        )

    def _memory(self, workload: WorkloadRecord, kind: DeviceKind) -> MemoryVerdict:
        """Whether one member fits: by the limit that it states, else by what its class used."""
        there = float(kind.memory_mib * MIB)
        overhead = float(kind.overhead_mib * MIB)
        if workload.gpu.memory_mib:
            stated = Footprint(
                parameters=0.0,
                activation_bytes_per_sample=0.0,
                workspace_bytes=float(workload.gpu.memory_mib * MIB),
            )
            return memory_verdict(there, context_bytes=overhead, footprint=stated)
        runs = [
            run
            for profile in self.speeds.profiles_of(workload)
            for run in _runs(profile, self.fleet())
        ]
        return memory_verdict(there * _part(workload), context_bytes=overhead, measured=runs)


def goal_of(workload: WorkloadRecord) -> Goal:
    """What a job asks of the choice; nothing without ``spec.cost``."""
    cost = workload.cost
    # an elastic program keeps its global batch, so any number within its bounds will do
    own = workload.replicas * workload.gpu.count
    devices = own if workload.elasticity is None else None
    if cost is None:
        return Goal(gpus=devices)
    return Goal(
        objective=CostObjective(cost.objective) if cost.objective else None,
        max_cost=cost.max_cost,
        max_time_s=cost.max_time_s,
        gpus=devices,
    )


def _offer(workload: WorkloadRecord, kind: DeviceKind, members: int) -> Offer:
    devices, part = members * workload.gpu.count, _part(workload)
    price = kind.price_per_hour
    return Offer(
        accelerator=kind.accelerator,
        gpus=devices,
        price_per_hour=None if price is None else price * devices * part,
        available=members <= _most(workload, kind),
    )


def _most(workload: WorkloadRecord, kind: DeviceKind) -> int:
    """Members that all devices of a type take, empty."""
    if kind.most_on_a_node < workload.gpu.count:
        return 0
    part = _part(workload)
    return kind.devices * (1 if part == 1 else int(1 / part)) // max(1, workload.gpu.count)


def _resized(
    workload: WorkloadRecord, kind: DeviceKind, known: Candidate, members: int
) -> Candidate:
    """The offer of another number of members on a type."""
    assert known.forecast is not None  # others are made only where a step is known
    grows = workload.elasticity is not None and not workload.gpu.memory_mib
    memory = memory_at(known.memory, workload.replicas, members) if grows else known.memory
    return Candidate(
        offer=_offer(workload, kind, members),
        forecast=forecast_at(known.forecast, workload.replicas, members),
        memory=memory,
    )


def _numbers(advice: Advice, rows: Sequence[Priced]) -> tuple[Priced, ...]:
    """Rows that are told beside the table: other numbers of the type that comes first.

    Where no type can be had, the best number of each type that could be.
    """
    first = advice.first
    if first is None:
        held = [priced for priced in rows if priced.hold is Reason.COUNT_CHANGES_BATCH]
        return best_of_each_type(held)
    kind, own = first.offer.accelerator, first.offer.gpus
    same = (row for row in rows if row.offer.accelerator == kind and row.offer.available)
    return tuple(sorted((priced for priced in same if priced.offer.gpus != own), key=_gpus))


def _gpus(row: Priced) -> int:
    return row.offer.gpus


def _part(workload: WorkloadRecord) -> float:
    """Part of each device that the job is sure to get."""
    share = workload.gpu.share
    return 1.0 if share is None else share.min_percent / WHOLE


def _forecast(speed: Throughput, *, anchored: bool) -> StepForecast:
    if not speed.steps_per_second > 0:
        return StepForecast(step=None, source=Source(speed.source.value))
    step = around(1 / speed.steps_per_second, 1.0)
    if speed.low and speed.high:
        step = Interval(value_s=step.value_s, low_s=1 / speed.high, high_s=1 / speed.low)
    return StepForecast(step=step, source=Source(speed.source.value), anchored=anchored)


def _runs(profile: ProfileRecord, fleet: Mapping[str, DeviceKind]) -> list[MeasuredMemory]:
    """Peaks of memory in use, with the size of the device that each was seen on."""
    found: list[MeasuredMemory] = []
    for row in (*profile.solo, *profile.status.solo):
        peak, kind = row.fingerprint.peak_memory_mib, fleet.get(row.device)
        if peak:
            size = kind.memory_mib * row.share / WHOLE if kind is not None else 0.0
            found.append(MeasuredMemory(device_bytes=size * MIB, peak_bytes=peak * MIB))
    return found


def _print(candidate: Candidate) -> str:
    """What of a candidate matters, speeds in bands."""
    offer, step = (
        candidate.offer,
        candidate.forecast.step if candidate.forecast is not None else None,
    )
    band = "" if step is None else round(math.log(step.value_s) / SAME_RATE)
    source = candidate.forecast.source if candidate.forecast is not None else ""
    anchored = candidate.forecast.anchored if candidate.forecast is not None else ""
    need = candidate.memory.need_bytes
    return (
        f"{offer.accelerator} {offer.gpus} {offer.price_per_hour} {offer.available} {band} {source}"
        f" {anchored} {candidate.memory.verdict} {'' if need is None else round(need / MIB / 256)}"
    )


def _in_words(table: Recommendation, fleet: Mapping[str, DeviceKind]) -> Recommendation:
    """The table with the number of devices in it where there are too few."""
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
