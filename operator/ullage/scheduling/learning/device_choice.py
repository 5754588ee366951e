# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of devices for placing a job, from its recommendation and the speeds of its class.

The recommendation is read from the written status; a bound that could not be checked yet is checked
before the job starts. A job must never start where its bounds are known to break.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason, Standing
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.status import Recommended
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.records import Refusal
from ullage.engines.devicechoice.offers import ChoiceAim
from ullage.scheduling.learning.recommend import goal_of
from ullage.scheduling.learning.throughput import Throughput, Throughputs, across_nodes
from ullage.scheduling.model.device_choice import BEST, NO_CHOICE, DeviceChoice

NOT_COMPARED: Final = Refusal(
    Reason.WAITING_FOR_DECISION, "types were not compared by spec.cost yet"
)


@dataclass(slots=True)
class DeviceChoices:
    """The choices of one snapshot; equal jobs share one."""

    speeds: Throughputs
    _known: dict[tuple[object, ...], DeviceChoice] = field(default_factory=dict)

    def of(self, job: WorkloadRecord) -> DeviceChoice:
        """The choice of a job; a service has none."""
        if job.kind is not WorkloadKind.TRAINING_JOB:
            return NO_CHOICE
        speeds, rows = self.speeds.of(job), job.status.recommendation
        basis = bool(job.status.recommendation_basis)
        across = BEST  # percent of its speed that a gang keeps on several nodes
        if job.replicas > 1 or job.elasticity is not None:
            part = across_nodes(self.speeds.profiles_of(job))
            across = BEST if part is None else max(1, round(BEST * part))
        key = id(speeds), rows, basis, job.cost, job.gpu.count, job.elasticity is None, across
        choice = self._known.get(key)
        if choice is None:
            choice = choice_of(job, speeds)
            if across != BEST:
                choice = replace(choice, across=across)
            self._known[key] = choice
        return choice


def choice_of(job: WorkloadRecord, speeds: Mapping[str, Throughput]) -> DeviceChoice:
    """The choice by a job's recommendation, and by speeds without an aim."""
    if job.cost is None:
        values = _by_speed(speeds)
        if not values:
            return NO_CHOICE
        mean = round(sum(value for _, value in values) / len(values))
        return DeviceChoice(values=values, rest=mean)
    rows = by_type(job.status.recommendation)
    first = next(iter(rows.values()), None)
    aim = goal_of(job).aim()
    acts = aim is not None and first is not None and first.reason is Reason.RECOMMENDED
    # the pods of an elastic gang are created for the recommended number
    sizes = aim is not None and job.elasticity is not None and not job.status.recommendation_basis
    members = 0
    if acts and first is not None and job.elasticity is not None:
        members = first.devices // max(1, job.gpu.count)
    values = _by_aim(rows, aim) if acts and aim is not None else ()
    return DeviceChoice(
        values=values,
        # types of which nothing is known come after all that were compared
        rest=max(1, min((value for _, value in values), default=BEST) - 1),
        by_cost=acts and aim is ChoiceAim.COST,
        refused=_refused(job.cost, rows),
        others=NOT_COMPARED if job.cost.capped else None,
        compared=frozenset(rows),
        members=members,
        undecided=sizes,
    )


def by_type(recommendation: Iterable[Recommended]) -> dict[str, Recommended]:
    """The first row of each accelerator, in their order."""
    rows: dict[str, Recommended] = {}
    for row in recommendation:
        rows.setdefault(row.accelerator, row)
    return rows


def _refused(cost: CostAim, rows: Mapping[str, Recommended]) -> tuple[tuple[str, Refusal], ...]:
    """Types where a job may not start, with the reason, by name.

    A cap that cannot be checked excludes a type. An unknown speed does not: it is measured by
    running the job, unless another type is known to meet the caps.
    """

    def is_out(reason: Reason) -> bool:
        unpriced = reason is Reason.PRICE_MISSING and cost.max_cost is not None
        return unpriced or Standing.RULED_OUT in reason.standing

    def is_open(reason: Reason) -> bool:
        return Standing.NOT_MEASURED in reason.standing

    another = cost.capped and any(
        not (is_out(row.reason) or is_open(row.reason)) for row in rows.values()
    )
    return tuple(
        (name, Refusal(row.reason, f"{name}: {row.message}"))
        for name, row in sorted(rows.items())
        if is_out(row.reason) or (another and is_open(row.reason))
    )


def _by_aim(rows: Mapping[str, Recommended], aim: ChoiceAim) -> tuple[tuple[str, int], ...]:
    """Percent of the recommended type's preference; no other type has as much."""
    figures = {
        name: figure for name, row in rows.items() if (figure := _figure(row, aim)) is not None
    }
    first = next(iter(rows))
    best = figures.get(first)
    if best is None:
        return ((first, BEST),)
    return tuple(
        (name, BEST if name == first else _percent(best, figure))
        for name, figure in sorted(figures.items())
    )


def _percent(best: float, figure: float) -> int:
    return BEST - 1 if figure <= best else max(1, min(BEST - 1, round(BEST * best / figure)))


def _figure(row: Recommended, aim: ChoiceAim) -> float | None:
    """The figure to minimise; ``None`` = unknown."""
    if aim is ChoiceAim.COST:
        return float(row.cost) if row.cost else None
    return row.total_s


def _by_speed(speeds: Mapping[str, Throughput]) -> tuple[tuple[str, int], ...]:
    """Percent of the fastest type's speed, as far as speeds are known."""
    rates = {name: entry.steps_per_second for name, entry in speeds.items()}
    fastest = max(rates.values(), default=0.0)
    if fastest <= 0 or len(rates) < 2:
        return ()
    return tuple(
        (name, max(1, round(BEST * speed / fastest)) if speed > 0 else 1)
        for name, speed in sorted(rates.items())
    )
