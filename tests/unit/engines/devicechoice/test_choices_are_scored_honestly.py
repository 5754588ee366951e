# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Infeasible choices are counted, and left-out jobs never reach their own estimate."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.devicechoice_gangs import measure_gavel
from bench.devicechoice_regret import one_measured, regret_of
from bench.devicechoice_tables import PARAMETERS, TYPES, Job, TableError, read_gavel, read_sia

SPEED = {"k80": 1.0, "p100": 4.0, "v100": 5.0}


def table() -> dict[tuple[Job, str], float]:
    """Two families with ratios of their own; ``odd`` is slower on newer types."""
    steps: dict[tuple[Job, str], float] = {}
    for family in ("LM", "odd"):
        for batch in (8, 16, 32, 64):
            job = Job(name=f"{family} (batch size {batch})", gpus=1)
            for kind, speed in SPEED.items():
                gain = speed if family == "LM" else 1 / speed
                steps[job, kind] = batch / gain
    return steps


def test_a_step_takes_as_many_times_longer_as_devices_count_it(tmp_path: Path) -> None:
    rates = {"('LM (batch size 5)', 4)": {"null": 8.0, "('x', 4)": [1.0, 1.0]}}
    failed = {"('LM (batch size 5)', 4)": {"null": 0.0}}
    (tmp_path / "gavel").mkdir()
    with gzip.open(tmp_path / "gavel" / "simulation_throughputs.json.gz", "wt") as stream:
        json.dump({"k80": rates, "p100": failed, "v100": {}}, stream)
    job = Job(name="LM (batch size 5)", gpus=4)
    assert read_gavel(tmp_path) == {(job, "k80"): 0.5, (job, "p100"): 0.0}
    assert (job.family, job.batch) == ("LM", 5)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    for read in (read_gavel, read_sia):
        with pytest.raises(TableError, match="is not there"):
            read(tmp_path)


def test_siblings_find_the_best_type() -> None:
    steps = table()
    jobs = sorted({job for job, _ in steps})
    for known in TYPES:
        score = one_measured(steps, jobs, known, lambda job: job, margin=0.0, told=True)
        assert score.mean == pytest.approx(1.0)
        assert score.estimates == 2 * len(jobs)
    best = regret_of(steps, {job: "k80" for job in jobs if job.family == "odd"})
    assert best.mean == 1.0


def test_a_type_where_a_job_does_not_run_is_counted_and_avoided() -> None:
    steps = table()
    jobs = sorted({job for job, _ in steps})
    broken = next(job for job in jobs if job.family == "odd")
    steps[broken, "k80"] = 0.0
    blind = one_measured(steps, jobs, "v100", lambda job: job, margin=0.0, told=False)
    told = one_measured(steps, jobs, "v100", lambda job: job, margin=0.0, told=True)
    assert (blind.infeasible, told.infeasible) == (1, 0)
    assert len(told.ratios) == len(jobs)
    assert regret_of(steps, dict.fromkeys(jobs, "k80")).infeasible == 1


def test_gangs_with_a_common_term_are_predicted() -> None:
    steps = {
        (Job(name=f"{family} (batch size {batch})", gpus=gpus), kind): 0.01 * batch
        + 0.2 * (gpus - 1) / gpus
        for family in PARAMETERS
        for batch in (8, 16)
        for gpus in (1, 2, 4, 8)
        for kind in TYPES
    }
    figures, _ = measure_gavel(steps)
    for name in ("gang_mape", "gang_mape_over_1", "gang_mape_ring_1_2", "gang_mape_ring_2_4"):
        assert figures[name] == pytest.approx(0.0, abs=1e-6)
