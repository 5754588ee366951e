# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which accelerator a job should take: the same answer for its status and for the command line.

Speeds come from the class's table, memory from its runs or its own statement, prices from the
DeviceProfiles. It must never recommend a type whose memory cannot hold the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from ullage.api.contract import Reason
from ullage.decide.advice.fleet import DeviceKind, fleet_of
from ullage.decide.learning.rows import WHOLE
from ullage.decide.speeds.throughput import Throughput, Throughputs
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
    Objective,
    Offer,
    Recommendation,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import Work
from ullage.state.profile import records as profile_records
from ullage.state.profile.records import ProfileRecord
from ullage.state.records import Snapshot, WorkloadRecord

MIB: Final = 2**20
MOST_A_CYCLE: Final = 500
"""New answers of one cycle: each takes a tenth of a millisecond."""
SAMPLE_STEPS: Final = 1000
"""Steps that time and cost are told for where the job does not say how many it has."""
SAME_RATE: Final = 0.1
"""Speeds in one band of this width (in e-folds) count as the same for the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An answer; ``confidence`` is by accelerator, time and cost are of ``steps``."""

    table: Recommendation
    confidence: Mapping[str, float]
    steps: int


@dataclass(slots=True)
class Advisor:
    """Answers for the jobs of one snapshot; what alike jobs share is worked out once.

    ``left`` is how many new answers it still gives: the rest of a crowd waits for the next cycle,
    which the writes of this one bring about.
    """

    snapshot: Snapshot
    speeds: Throughputs
    left: int = MOST_A_CYCLE
    _fleet: Mapping[str, DeviceKind] | None = None
    _candidates: dict[tuple[object, ...], tuple[Candidate, ...]] = field(default_factory=dict)
    _prints: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Advisor:
        """An advisor with speeds of its own."""
        return cls(snapshot=snapshot, speeds=Throughputs(snapshot))

    def advice(self, workload: WorkloadRecord) -> Advice:
        """The ranked table of a job's accelerators."""
        devices = workload.replicas * workload.gpu.count
        steps = workload.work_steps or SAMPLE_STEPS
        table = choose(
            self.candidates(workload),
            goal_of(workload),
            Work(samples=steps * devices, epochs=1, batch_per_gpu=1),
        )
        known = self.speeds.of(workload)
        confidence = {name: one.confidence for name, one in known.items()}
        return Advice(table=_in_words(table, self.fleet()), confidence=confidence, steps=steps)

    def basis(self, workload: WorkloadRecord) -> str:
        """Digest of what the advice rests on; small changes of speeds do not change it."""
        candidates = self.candidates(workload)
        known = self._prints.get(id(candidates))
        if known is None:
            known = self._prints[id(candidates)] = "\n".join(_print(one) for one in candidates)
        said = f"{workload.cost!r} {workload.work_steps}\n{known}"
        return sha256(said.encode()).hexdigest()[:12]

    def fleet(self) -> Mapping[str, DeviceKind]:
        """Types of device in the cluster."""
        if self._fleet is None:
            self._fleet = fleet_of(self.snapshot)
        return self._fleet

    def candidates(self, workload: WorkloadRecord) -> tuple[Candidate, ...]:
        """The types that the job allows, with speed, memory and price; alike jobs share them."""
        key = (
            workload.ref.namespace,
            workload.profile_ref,
            workload.klass,
            workload.family,
            workload.gpu,
            workload.replicas,
            workload.accelerators,
        )
        found = self._candidates.get(key)
        if found is None:
            fleet = self.fleet()
            there = [name for name, one in fleet.items() if one.devices]
            names = sorted(set(workload.accelerators or there))
            found = tuple(
                self._candidate(workload, fleet.get(name) or DeviceKind(accelerator=name))
                for name in names
            )
            self._candidates[key] = found
        return found

    def _candidate(self, workload: WorkloadRecord, kind: DeviceKind) -> Candidate:
        known = self.speeds.of(workload)
        anchored = any(one.source is not profile_records.Source.ESTIMATED for one in known.values())
        devices = workload.replicas * workload.gpu.count
        part = _part(workload)
        price = kind.price_per_hour
        speed = known.get(kind.accelerator)
        return Candidate(
            offer=Offer(
                accelerator=kind.accelerator,
                gpus=devices,
                price_per_hour=None if price is None else price * devices * part,
                available=kind.devices * (1 if part == 1 else int(1 / part)) >= devices
                and kind.most_on_a_node >= workload.gpu.count,
            ),
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
    devices = workload.replicas * workload.gpu.count
    if cost is None:
        return Goal(gpus=devices)
    return Goal(
        objective=Objective(cost.objective) if cost.objective else None,
        max_cost=cost.max_cost,
        max_time_s=cost.max_time_s,
        gpus=devices,
    )


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


def _print(one: Candidate) -> str:
    """What of a candidate matters, speeds in bands."""
    offer, step = one.offer, one.forecast.step if one.forecast is not None else None
    band = "" if step is None else round(math.log(step.value_s) / SAME_RATE)
    source = one.forecast.source if one.forecast is not None else ""
    anchored = one.forecast.anchored if one.forecast is not None else ""
    need = one.memory.need_bytes
    return (
        f"{offer.accelerator} {offer.gpus} {offer.price_per_hour} {offer.available} {band} {source}"
        f" {anchored} {one.memory.verdict} {'' if need is None else round(need / MIB / 256)}"
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
