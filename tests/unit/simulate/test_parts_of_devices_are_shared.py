# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that hold a part of a device: several run on one, in both modes, and cost their part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ullage_simulate.comparison import ComparisonRequest, PolicyComparison, compare
from ullage_simulate.events import run
from ullage_simulate.policies import chosen
from ullage_simulate.readers import published
from ullage_simulate.trace import Fleet, JobTraceError, fitted, in_parts

HEAD = "name,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time"
LINES = (
    "a,1,600,,LS,0,3600",
    "b,1,400,,LS,0,3600",
    "c,1,600,,LS,0,3600",
    "d,2,1000,,LS,10,3610",
)


def _compared(folder: Path, lines: tuple[str, ...], **asked: object) -> PolicyComparison:
    path = folder / "openb.csv"
    path.write_text("\n".join((HEAD, *lines)), encoding="utf-8")
    how = {"cluster": "t4=2", "policies": (), "prices": ("t4=1",), **asked}
    return compare(ComparisonRequest(trace=str(path), **how), lambda *_: lambda _: None)  # type: ignore[arg-type]


def test_parts_run_side_by_side_and_cost_their_part(tmp_path: Path) -> None:
    fifo = _compared(tmp_path, LINES).outcomes[0]
    ends = {job.name: job.end_s / 3600 for job in fifo.jobs}
    assert ends == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 2.0}
    assert {job.name: job.gang for job in fifo.jobs} == {"a": 0.6, "b": 0.4, "c": 0.6, "d": 2.0}
    assert fifo.dollars == pytest.approx(0.6 + 0.4 + 0.6 + 2.0)
    assert fifo.utilisation == pytest.approx(3.6 / 4)
    assert fifo.devices == {"t4": 2}


def test_the_operator_itself_places_parts_on_devices(tmp_path: Path) -> None:
    fifo = _compared(tmp_path, LINES[:3], mode="decide").outcomes[0]
    assert {job.name: job.start_s for job in fifo.jobs} == {"a": 0.0, "b": 0.0, "c": 0.0}


@pytest.mark.parametrize("asked", [{"packing": True}, {"failures_h": 100.0}])
def test_what_counts_on_whole_devices_is_refused(tmp_path: Path, asked: dict[str, object]) -> None:
    with pytest.raises(JobTraceError, match=r"hold parts of devices.*--mode decide"):
        _compared(tmp_path, LINES, **asked)


@pytest.mark.slow
def test_counting_in_parts_changes_nothing_of_whole_jobs() -> None:
    fleet = Fleet(devices={"v100": 2, "p100": 4, "k80": 6}, prices={"v100": 2.48})
    trace = fitted(published(), fleet).first(12)
    small = replace(trace.jobs[-1], name="part", milli=500)
    parts, counted = in_parts(replace(trace, jobs=(*trace.jobs, small)), fleet)
    assert counted.devices == {"v100": 2000, "p100": 4000, "k80": 6000}
    whole = replace(parts, jobs=parts.jobs[:-1])
    for policy in chosen(("las", "finish-time-fairness")):
        one, other = run(trace, fleet, policy), run(whole, counted, policy)
        assert {job.name: job.end_s for job in other.jobs} == pytest.approx(
            {job.name: job.end_s for job in one.jobs}
        )
        assert other.dollars == pytest.approx(one.dollars)
