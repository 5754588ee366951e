# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that the replay twin sets side by side, without any learning of their own.

Each says only who joins whom; what happens then is the world's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from bench.sum_forecaster import SumForecaster
from bench.twin_data import JobClass, World
from bench.twin_world import NOISE_SD, Gpu, Job, Seen, Spot
from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.decision import TOLERANCE, admit
from ullage.engines.admission.filters import Device, Newcomer, Resident
from ullage.engines.admission.records import ClassProfile, Forecast, Group, Rung, ShareCurve, Tenant
from ullage.engines.admission.verdict import Basis, Verdict


def best_of(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The admitted verdict of largest worth; ties: smaller share, then lower uuid."""
    admitted = [verdict for verdict in verdicts if verdict.admitted and verdict.chosen is not None]
    return min(admitted, key=_rank, default=None)


def _rank(verdict: Verdict) -> tuple[float, int, str]:
    net = verdict.chosen.net if verdict.chosen else -math.inf
    return (-round(net / TOLERANCE) * TOLERANCE, verdict.percent, verdict.device)


WHOLE = 100
MEMORY_MIB = 16_384
TENANT_MIB = 4_096
"""Which pairs fit into memory is in the tables; here it never binds."""


@dataclass(slots=True)
class Measured:
    """What any rule knows of the world: which pairs were ever measured, and what they suffer."""

    world: World
    name: str = ""
    guarded: bool = False

    def slowdown(self, one: JobClass, other: JobClass) -> tuple[float, float] | None:
        """The measured slowdown of either."""
        return self.world.together(one, other)

    def learn(self, seen: Seen, meeting: tuple[int, ...]) -> None:
        """Forget what was measured."""

    def offered(self, job: Job, gpus: Sequence[Gpu]) -> list[Gpu]:
        """Devices that are empty, or whose tenant was ever measured beside this class."""
        return [
            one
            for one in gpus
            if not one.tenants
            or self.slowdown(one.tenants[0].job.workload_class, job.workload_class) is not None
        ]


@dataclass(slots=True)
class Exclusive(Measured):
    """One job per device."""

    name: str = "exclusive"

    def place(self, job: Job, gpus: Sequence[Gpu], now_s: float) -> Spot | None:
        """The first empty device."""
        return next((Spot(one.index) for one in gpus if not one.tenants), None)


@dataclass(slots=True)
class Uncontrolled(Measured):
    """Two jobs per device, whichever fit first."""

    name: str = "uncontrolled"

    def place(self, job: Job, gpus: Sequence[Gpu], now_s: float) -> Spot | None:
        """The first device with room."""
        return next((Spot(one.index) for one in self.offered(job, gpus)), None)


@dataclass(slots=True)
class Halves(Uncontrolled):
    """Two hard halves of every device: no contention, and half of the device for each."""

    name: str = "static-50-50"

    def slowdown(self, one: JobClass, other: JobClass) -> tuple[float, float] | None:
        """What half a device costs either."""
        if self.world.together(one, other) is None:
            return None
        return one.half_slowdown, other.half_slowdown


def as_tenant(
    workload_class: JobClass, name: str, *, use: float, rows: int = 0, trial: bool = False
) -> Tenant:
    """A class as admission sees it; shares are whole, as in the measured rows."""
    return Tenant(
        name=name,
        percent=WHOLE,
        utilisation=use,
        max_slowdown=workload_class.allowed,
        latency=workload_class.latency,
        probation=trial,
        profile=replace(profile_of(workload_class), rows=rows),
    )


def profile_of(workload_class: JobClass) -> ClassProfile:
    """What a run alone tells: the step time; the tables hold no counters."""
    return ClassProfile(
        workload_class=workload_class.name,
        family=workload_class.family,
        batch=workload_class.batch,
        curve=ShareCurve(fixed_s=0.0, scaled_s=workload_class.step_s),
    )


@dataclass(slots=True)
class Admitting(Measured):
    """Jobs that `ullage.engines.admission.decision.admit` lets in, on its best device.

    Equal questions have equal answers, so each is put once per state of knowledge.
    """

    basis: Basis = field(default_factory=lambda: Basis(forecaster=SumForecaster(), thresholds={}))
    name: str = "utilisation-sum"
    _answers: dict[tuple[object, ...], Verdict] = field(default_factory=dict)

    def place(self, job: Job, gpus: Sequence[Gpu], now_s: float) -> Spot | None:
        """The device of largest worth that keeps everyone's objective, by forecast."""
        verdicts = [self.judged(job.workload_class, one) for one in self.offered(job, gpus)]
        best = best_of(verdicts)
        return Spot(int(best.device)) if best else self.otherwise(job, gpus, verdicts)

    def otherwise(self, job: Job, gpus: Sequence[Gpu], verdicts: Sequence[Verdict]) -> Spot | None:
        """What to do with a job that no device admits."""
        return None

    def judged(self, workload_class: JobClass, gpu: Gpu) -> Verdict:
        """The product's answer for a class on a device."""
        key = (
            workload_class.name,
            *((one.job.workload_class.name, one.trial is None) for one in gpu.tenants),
        )
        here = (gpu.index, *key)
        if here not in self._answers:
            if key not in self._answers:
                self._answers[key] = admit(*self.question(workload_class, gpu), self.basis)
            # the device's name does not change the answer, only ties between answers
            self._answers[here] = replace(self._answers[key], device=_name(gpu))
        return self._answers[here]

    def question(self, workload_class: JobClass, gpu: Gpu) -> tuple[Device, Newcomer]:
        """The same as the product sees it."""
        residents = tuple(
            Resident(
                tenant=as_tenant(
                    one.job.workload_class,
                    one.job.workload_class.name,
                    use=self.use(one.job.workload_class),
                    rows=self.rows(one.job.workload_class),
                    trial=one.trial is not None,
                ),
                memory_mib=TENANT_MIB,
            )
            for one in gpu.tenants
        )
        device = Device(
            uuid=_name(gpu),
            accelerator=self.world.accelerator,
            memory_mib=MEMORY_MIB,
            contexts=2,
            percent_limit=2 * WHOLE,
            residents=residents,
        )
        newcomer = Newcomer(
            tenant=as_tenant(
                workload_class,
                f"new {workload_class.name}",
                use=self.use(workload_class),
                rows=self.rows(workload_class),
            ),
            min_percent=WHOLE,
            max_percent=WHOLE,
            memory_mib=TENANT_MIB,
        )
        return device, newcomer

    def rows(self, workload_class: JobClass) -> int:
        """Rows that are known of a class."""
        return 0

    def use(self, workload_class: JobClass) -> float:
        """Part of a device that a class uses, by its run beside its own copy."""
        return workload_class.utilisation

    def forget_answers(self) -> None:
        """Knowledge changed: every question is open again."""
        self._answers.clear()


def _name(gpu: Gpu) -> str:
    return f"{gpu.index:04d}"


@dataclass(slots=True)
class Truth:
    """A forecaster that reads the table: what perfect knowledge would give, never a product."""

    world: World

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """The measured slowdowns, with the noise of a window as spread."""
        by_name = {one.name: one for one in self.world.classes}
        classes = [by_name[one.profile.workload_class] for one in tenants if one.profile]
        both = self.world.together(classes[0], classes[-1]) if len(classes) > 1 else (1.0,)
        if both is None:
            raise ValueError("no row for this pair")
        return Forecast(
            mean=tuple(math.log(one) for one in both),
            sd=(NOISE_SD,) * len(both),
            group=Group.SEEN_PAIR,
            rung=Rung.GP,
        )


def perfect(world: World) -> Admitting:
    """Admission with perfect knowledge, two spreads away from every objective."""
    sure = Threshold(value=2.0, rows=0, admitted=0, violations=0)
    basis = Basis(forecaster=Truth(world), thresholds=dict.fromkeys(product(Group, Band), sure))
    return Admitting(world, basis=basis, name="perfect-knowledge")
