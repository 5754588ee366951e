# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What learning costs in the background, at the most rows that one type of device keeps.

CPU seconds of one core count, because the learner gives way to everyone else; the time on the wall
stands beside them.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from bench import report
from bench.progress import Progress
from ullage.app.fit_schedule import QUICK_CLASSES
from ullage.app.fit_worker import FitTask, run_fit
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus, SoloEntry, StepRow
from ullage.engines.admission.learning import learn
from ullage.engines.admission.pair_gp import MAX_ROWS, ROBUST
from ullage.engines.admission.records import ClassProfile, Fingerprint, Partner, Row, ShareCurve

LIMIT_S: Final = 1.0
REPEATS: Final = 3
CLASSES: Final = 26
GPU: Final = "emulated"
T = TypeVar("T")


def world(
    rng: random.Random, pairs: int, classes: int
) -> tuple[list[Row], dict[str, ClassProfile]]:
    """Co-locations of classes as different from one another as real ones, both directions."""
    known = {
        f"class-{number:02d}": ClassProfile(
            workload_class=f"class-{number:02d}",
            family=f"family-{number % 7}",
            fingerprint=Fingerprint(sm=rng.uniform(0.1, 0.9), dram=rng.uniform(0.05, 0.8)),
            curve=ShareCurve(fixed_s=0.01, scaled_s=rng.uniform(0.01, 0.1)),
        )
        for number in range(classes)
    }
    rows: list[Row] = []
    for number in range(pairs):
        sides = [rng.choice(list(known)) for _ in range(2)]
        percent = rng.choice((30, 40, 50))
        toll = sum(known[one].fingerprint.dram or 0.0 for one in sides)
        for place, share in enumerate((percent, 100 - percent)):
            slowdown = (1 + toll) * 100 / share * rng.lognormvariate(0.0, 0.1)
            rows.append(
                Row(
                    id=f"{number}-{place}",
                    workload_class=sides[place],
                    family=known[sides[place]].family,
                    accelerator=GPU,
                    percent=share,
                    partners=(Partner(workload_class=sides[1 - place], percent=100 - share),),
                    step_s=0.1 * slowdown,
                    slowdown=slowdown,
                    at_s=1e9 + 30 * number,
                    max_slowdown=4.0,
                )
            )
    return rows, known


def shelf(rows: list[Row], known: dict[str, ClassProfile]) -> dict[tuple[str, str], ProfileRecord]:
    """The same as the profiles that hold them."""
    found = {}
    for name, one in known.items():
        solo = SoloEntry(
            device=GPU, share=100, steps_per_second=10.0, fingerprint=one.fingerprint, samples=1
        )
        mine = [row for row in rows if row.workload_class == name]
        steps = tuple(
            StepRow(
                id=row.id,
                accelerator=GPU,
                share=row.percent,
                step_s=row.step_s,
                at_s=row.at_s,
                partners=row.partners,
                slowdown=row.slowdown,
                max_slowdown=row.max_slowdown,
            )
            for row in mine
        )
        status = ProfileStatus(solo=(solo,), step_time=steps, family=one.family)
        found["default", name] = ProfileRecord(
            namespace="default", name=name, workload_class=name, status=status
        )
    return found


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """What it gives, CPU seconds and seconds on the wall."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.process_time() - cpu, time.perf_counter() - wall


def main() -> int:
    """Measure; the exit status is 1 when an update takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=MAX_ROWS)
    parser.add_argument("--classes", type=int, default=CLASSES)
    options = parser.parse_args()
    with Progress() as progress:
        return measure(options.rows, options.classes, progress)


def measure(most_rows: int, classes: int, progress: Progress) -> int:
    """Fit, update, predict; report.

    Returns:
        0, or 1 when an update costs more than its limit.
    """
    rows, known = world(random.Random(0), most_rows // 2, classes)
    progress.say(f"fit on {len(rows)} rows")
    fitted, fit_cpu, fit_wall = timed(
        lambda: learn(rows, known, accelerator=GPU, previous=None, refit=True, wanted=(), classes=0)
    )

    # heavy-tailed noise, whichever the fit chose: its rows are weighed twice, the dearest update
    heavy = replace(fitted, tail=ROBUST.tail)

    def lesson(count: int) -> Callable[[], object]:
        task = FitTask(accelerator=GPU, previous=heavy, fit=False, wanted=(), classes=count)
        held = shelf(rows, known)
        return lambda: run_fit(task, held)

    progress.say("updates")
    updates = sorted(timed(lesson(0))[1:] for _ in range(REPEATS))
    cpu, wall = updates[REPEATS // 2]
    _, quick_cpu, quick_wall = timed(lesson(QUICK_CLASSES))
    _, all_cpu, all_wall = timed(lesson(classes))
    peak_mib = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    figures = {
        "rows": len(rows),
        "classes": classes,
        "update_cpu_s": round(cpu, 3),
        "update_wall_s": round(wall, 3),
        "quick_cpu_s": round(quick_cpu, 3),
        "quick_wall_s": round(quick_wall, 3),
        "all_cells_cpu_s": round(all_cpu, 3),
        "all_cells_wall_s": round(all_wall, 3),
        "fit_cpu_s": round(fit_cpu, 3),
        "fit_wall_s": round(fit_wall, 3),
        "peak_mib": peak_mib,
    }
    table = [
        report.Row(
            what=f"update on {len(rows)} rows",
            ours=f"{cpu:.2f} s CPU, {wall:.2f} s",
            limit=f"{LIMIT_S:g} s",
        ),
        report.Row(
            what=f"update and the cells of {QUICK_CLASSES} classes",
            ours=f"{quick_cpu:.2f} s CPU, {quick_wall:.2f} s",
        ),
        report.Row(
            what=f"update and the cells of {classes} classes",
            ours=f"{all_cpu:.2f} s CPU, {all_wall:.2f} s",
        ),
        report.Row(what="fit", ours=f"{fit_cpu:.2f} s CPU, {fit_wall:.2f} s"),
        report.Row(what="peak memory of the process", ours=f"{peak_mib} MiB"),
    ]
    report.write("learner", figures, table)
    return 0 if cpu <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
