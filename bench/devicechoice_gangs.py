# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps on 4 and 8 devices from fewer: the synchronisation term, in every variant side by side.

A job is measured on fewer devices than it is predicted for. The term of a type and count comes from
other jobs (never the job itself), or, strictly, from the ring's law alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.devicechoice_sync import SyncRow, fit_sync, ring_scaled
from bench.devicechoice_tables import PARAMETERS, TYPES, Job, Steps
from bench.report import Row

GANGS = (4, 8)


@dataclass(slots=True)
class Tally:
    """Absolute relative errors of steps by (type, devices), and jobs that looked superlinear."""

    errors: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    superlinear: int = 0

    def add(self, kind: str, gpus: int, said: float, seen: float) -> None:
        """One prediction, in seconds."""
        self.errors.setdefault((kind, gpus), []).append(abs(said / seen - 1.0))

    @property
    def mape(self) -> float:
        """Mean of all, in percent; each row counts once."""
        return 100.0 * float(np.mean([one for many in self.errors.values() for one in many]))

    def of(self, kind: str, gpus: int) -> float:
        """Mean of one cell, in percent."""
        return 100.0 * float(np.mean(self.errors[kind, gpus]))

    def text(self) -> str:
        """Overall, and by type and devices."""
        cells = ", ".join(
            f"{kind}/{gpus} {self.of(kind, gpus):.1f}" for kind, gpus in sorted(self.errors)
        )
        flag = f"; {self.superlinear} superlinear" if self.superlinear else ""
        return f"{self.mape:.1f} % ({cells}{flag})"


def measure_gavel(steps: Steps) -> tuple[dict[str, float], list[Row]]:
    """Figures and table of the Gavel gangs."""
    jobs = sorted({job.name for job, _ in steps if job.family in PARAMETERS})

    def config(name: str, other: str) -> bool:
        return name != other

    def family(name: str, other: str) -> bool:
        return Job(name=name, gpus=1).family != Job(name=other, gpus=1).family

    results = {
        "default: term over gang 2, jobs left out": _known(steps, jobs, 2, config),
        "the same, families left out": _known(steps, jobs, 2, family),
        "variant: term over gang 1, jobs left out": _known(steps, jobs, 1, config),
        "the same, families left out ": _known(steps, jobs, 1, family),
        "default, unweighted": _known(steps, jobs, 2, config, relative=False),
        "ring's law alone, from gangs 1 and 2": _ring(steps, jobs, (1, 2)),
        "ring's law alone, from gangs 2 and 4": _ring(steps, jobs, (2, 4)),
        "no term: same step as gang 2": _flat(steps, jobs),
    }
    rows = [Row(what="step on 4 and 8 devices, Gavel, MAPE (type/devices)", ours="")]
    for what, tally in results.items():
        limit = "<= 20 %" if what.startswith(("default: ", "variant: ")) else ""
        rows.append(Row(what=f"  {what}", ours=tally.text(), limit=limit))
    tallies = list(results.values())
    figures = {
        "gang_mape": tallies[0].mape,
        "gang_mape_family": tallies[1].mape,
        "gang_mape_over_1": tallies[2].mape,
        "gang_mape_v100_8": tallies[0].of("v100", 8),
        "gang_mape_ring_1_2": tallies[5].mape,
        "gang_mape_ring_2_4": tallies[6].mape,
    }
    return figures, rows


def _known(
    steps: Steps,
    jobs: Sequence[str],
    base: int,
    apart: Callable[[str, str], bool],
    *,
    relative: bool = True,
) -> Tally:
    """Base step of the job + C of the type and count, fitted on jobs that are apart."""
    tally = Tally()
    for kind in TYPES:
        for gpus in GANGS:
            known = {name: _row(steps, name, kind, base, gpus) for name in jobs}
            rows = {name: pair for name, pair in known.items() if pair is not None}
            for name, (start_s, row) in rows.items():
                others = [other for one, (_, other) in rows.items() if apart(name, one)]
                term = fit_sync(gpus, others, relative=relative)
                tally.add(kind, gpus, start_s + term.seconds(row.parameters), row.step_s)
                tally.superlinear += row.extra_s < 0
    return tally


def _row(steps: Steps, name: str, kind: str, base: int, gpus: int) -> tuple[float, SyncRow] | None:
    start = steps.get((Job(name=name, gpus=base), kind), 0.0)
    end = steps.get((Job(name=name, gpus=gpus), kind), 0.0)
    if start <= 0 or end <= 0:
        return None
    parameters = PARAMETERS[Job(name=name, gpus=1).family]
    return start, SyncRow(parameters=parameters, extra_s=end - start, step_s=end)


def _ring(steps: Steps, jobs: Sequence[str], measured: tuple[int, int]) -> Tally:
    tally = Tally()
    for kind in TYPES:
        for name in jobs:
            took = {
                gpus: steps.get((Job(name=name, gpus=gpus), kind), 0.0) for gpus in (1, 2, 4, 8)
            }
            _law(tally, kind, took, measured)
    return tally


def _law(tally: Tally, kind: str, took: Mapping[int, float], measured: tuple[int, int]) -> None:
    few, many = measured
    if min(took.get(few, 0.0), took.get(many, 0.0)) <= 0:
        return
    for gpus in GANGS:
        if gpus > many and took.get(gpus, 0.0) > 0:
            said = ring_scaled(low=(few, took[few]), high=(many, took[many]), gpus=gpus)
            tally.add(kind, gpus, said.step_s, took[gpus])
            tally.superlinear += said.superlinear


def _flat(steps: Steps, jobs: Sequence[str]) -> Tally:
    tally = Tally()
    for kind in TYPES:
        for name in jobs:
            for gpus in GANGS:
                row = _row(steps, name, kind, 2, gpus)
                if row is not None:
                    tally.add(kind, gpus, row[0], row[1].step_s)
    return tally


def measure_sia(
    groups: Mapping[tuple[str, str, int], Mapping[int, float]],
) -> tuple[dict[str, float], list[Row]]:
    """The ring's law on another table: one node, six applications."""
    rows = [Row(what="second opinion: Sia, one node, ring's law alone, MAPE", ours="")]
    figures: dict[str, float] = {}
    for measured in ((1, 2), (2, 4)):
        tally = Tally()
        for (_, cluster, _), took in groups.items():
            _law(tally, cluster, took, measured)
        few, many = measured
        rows.append(Row(what=f"  from gangs {few} and {many}", ours=tally.text()))
        figures[f"sia_mape_ring_{few}_{many}"] = tally.mape
    return figures, rows
