# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Readers of traces, tables and clusters: what is taken, what is told, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ullage.simulate.fleets import parsed_fleet, parsed_prices
from ullage.simulate.readers import Format, Reading, published, read_trace
from ullage.simulate.readers_sia import holds_step_times, read_step_times
from ullage.simulate.speeds import SpeedTable, built_in, read_speeds
from ullage.simulate.synthetic import gap_for, generate, reference_type
from ullage.simulate.trace import Fleet, TraceError

FLEET = Fleet(devices={"v100": 8, "k80": 8})


def _file(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    text = "\n".join(lines) + "\n"
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def test_the_published_trace_comes_with_the_package() -> None:
    trace = published()
    assert len(trace.jobs) == 96
    assert {job.gang for job in trace.jobs} == {1, 2, 4}
    assert trace.jobs[0].kind == "ResNet-18 (batch size 128)"
    assert set(trace.jobs[0].speeds) == {"k80", "p100", "v100"}


def test_a_table_of_gavel_is_selected_from_and_large_gangs_are_capped(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "jobs.csv.gz",
        "vc,seed,job_type,total_steps,arrival_time_s,scale_factor",
        "a,0,ResNet-18 (batch size 128),100,50.0,16",
        "a,0,A3C,100,20.0,1",
        "a,0,Unheard of,100,20.0,1",
        "b,0,A3C,100,0.0,1",
    )
    trace = read_trace(path, reading=Reading(select={"vc": "a"}))
    assert [(job.kind, job.gang, job.arrival_s) for job in trace.jobs] == [
        ("A3C", 1, 0.0),
        ("ResNet-18 (batch size 128)", 8, 30.0),
    ]
    assert any("1 gangs of 16" in note for note in trace.notes)
    assert any("Unheard of" in note for note in trace.notes)


def test_lines_of_gavels_own_format_are_read(tmp_path: Path) -> None:
    fields = ("A3C", "cmd %s", "dir", "--steps", "0", "700", "1", "2", "3600", "12.5")
    trace = read_trace(_file(tmp_path, "x.trace", "\t".join(fields)))
    (job,) = trace.jobs
    assert (job.kind, job.steps, job.weight, job.deadline_s) == ("A3C", 700, 2.0, 3600.0)


def test_philly_says_how_long_and_the_seed_says_what(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "philly.csv",
        "timestamp,duration_s,num_gpus,gpu_time_s,vc",
        "2017-09-04 10:30:41,1000.0,1,1000.0,x",
        "2017-09-04 10:31:41,500.0,8,4000.0,x",
    )
    first, again = read_trace(path, reading=Reading(seed=1)), read_trace(path, Format.PHILLY)
    assert [job.arrival_s for job in first.jobs] == [0.0, 60.0]
    assert [job.gang for job in first.jobs] == [1, 8]
    for job in first.jobs:
        length = job.steps / job.speeds[reference_type(built_in())]
        assert length == pytest.approx({1: 1000.0, 8: 500.0}[job.gang], rel=0.01)
    assert first == read_trace(path, reading=Reading(seed=1))
    assert first != again


def test_sia_runs_at_its_own_step_times(tmp_path: Path) -> None:
    steps = _file(
        tmp_path,
        "times.csv",
        "application,cluster,placement,local_batch,step_time_s,sync_time_s",
        "bert,aws,2,4,0.4,0.1",
        "bert,aws,2,8,0.8,0.1",
        "bert,aws,11,8,1.6,0.1",
        "bert,dgx,2,8,0.2,0.1",
        "bert,azure,2,8,0.1,0.1",
    )
    jobs = _file(
        tmp_path,
        "sia.csv",
        "workload_id,name,submit_time_s,application,num_replicas,batch_size",
        "1,bert-0,100,bert,3,12",
        "1,bert-1,160,bert,2,32",
        "1,gpt-2,170,gpt_pmp,2,32",
    )
    assert holds_step_times(steps)
    assert not holds_step_times(jobs)
    trace = read_trace(jobs, reading=Reading(table=read_step_times(steps)))
    small, large = trace.jobs
    assert small.gang == large.gang == 2
    assert small.speeds["t4"] == pytest.approx(1 / 0.6)
    # Twice the largest batch that was measured: two passes for a step.
    assert large.speeds == pytest.approx({"t4": 1 / 1.6, "a100": 1 / 0.4})
    hours = small.steps / small.speeds["t4"] * small.gang / 3600
    assert 1.0 <= hours <= 10.0
    assert any("1 jobs of applications" in note for note in trace.notes)
    with pytest.raises(TraceError, match="step_times"):
        read_trace(jobs)


def test_serving_instances_hold_their_devices_for_their_life(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "instances.csv",
        "instance_sn,role,app_name,gpu_request,creation_time,deletion_time",
        "i0,HN,app,1,,500",
        "i1,HN,app,2,100,",
        "i2,CN,app,0,0,500",
    )
    trace = read_trace(path, reading=Reading(types=("a10",)))
    assert [(job.name, job.arrival_s, job.steps, job.gang) for job in trace.jobs] == [
        ("i0", 0.0, 500, 1),
        ("i1", 100.0, 400, 2),
    ]
    assert not any(job.checkpointable for job in trace.jobs)
    assert trace.jobs[0].speeds == {"a10": 1.0}
    assert "1 instances ask for no GPU" in trace.notes[0]


def test_a_users_own_list_is_read(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "own.csv",
        "name,arrival_s,gang,job_type,steps,duration_s,priority,checkpoint,deadline_s",
        "a,10,1,A3C,50,,2,false,900",
        "b,0,2,,,60,,,",
    )
    second, first = read_trace(path).jobs
    assert (first.name, first.steps, first.priority, first.checkpointable, first.deadline_s) == (
        *("a", 50, 2, False, 900.0),
    )
    assert (second.name, second.steps, set(second.speeds.values())) == ("b", 60, {1.0})


@pytest.mark.parametrize(
    ("head", "line", "said"),
    [
        ("colour,size", "red,1", "no format that is known"),
        ("arrival_s,gang,job_type,steps", "0,1,A3C,", "steps or duration_s"),
        ("arrival_s,gang,job_type,steps", "soon,1,A3C,5", "'soon' is no number"),
        ("arrival_s,gang,job_type,steps", "0,1,Unheard of,5", "give --speeds"),
        ("arrival_s,gang,job_type,steps", "0,1,A3C,-5", None),
        ("timestamp,duration_s,num_gpus", "yesterday,5,1", "line 2"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    tmp_path: Path, head: str, line: str, said: str | None
) -> None:
    path = _file(tmp_path, "t.csv", head, line)
    if said is None:
        assert read_trace(path).jobs[0].steps == 1
        return
    with pytest.raises(TraceError, match=said):
        read_trace(path)


def test_files_that_are_not_there_and_columns_that_are_not_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere.csv")
    path = _file(tmp_path, "t.csv", "arrival_s,gang,steps", "0,1,5")
    with pytest.raises(TraceError, match="no column vc"):
        read_trace(path, reading=Reading(select={"vc": "a"}))
    with pytest.raises(TraceError, match="needs the columns"):
        read_trace(path, Format.SIA)


def test_tables_of_speeds_are_read_in_both_forms(tmp_path: Path) -> None:
    json_file = _file(
        tmp_path,
        "t.json",
        """{"v100": {"('A', 1)": {"null": 10.0, "('B', 1)": [5.0, 4.0]},"""
        """ "('B', 1)": {"null": 8.0, "('A', 1)": [4.0, 5.0]}},"""
        """ "v100_unconsolidated": {"('A', 1)": {"null": 1.0}}}""",
    )
    table = read_speeds(json_file)
    assert table.alone["A", 1] == {"v100": 10.0}
    assert table.slowdown("A", "B", "v100") == pytest.approx(2.0)
    assert table.slowdown("B", "A", "v100") == pytest.approx(2.0)
    assert table.slowdown("A", "C", "v100") == 1.0
    csv_file = _file(
        tmp_path, "t.csv", "job_type,gang,type,steps_per_s", "A,1,h100,30", "A,2,h100,55"
    )
    assert read_speeds(csv_file).alone == {("A", 1): {"h100": 30.0}, ("A", 2): {"h100": 55.0}}
    with pytest.raises(TraceError, match="line 2"):
        read_speeds(_file(tmp_path, "bad.csv", "job_type,gang,type,steps_per_s", "A,x,h100,30"))


def test_a_pair_that_cannot_run_together_stalls() -> None:
    row = {"A": {"t": 2.0}}
    table = SpeedTable(
        name="t",
        alone={("A", 1): row["A"]},
        beside={("A", "A"): {"t": (0.0, 0.0)}},
    )
    assert table.slowdown("A", "A", "t") == float("inf")


def test_a_synthetic_trace_asks_for_the_load_that_was_wanted() -> None:
    table = built_in()
    gap_s = gap_for(0.5, FLEET, table)
    assert gap_for(1.0, FLEET, table) == pytest.approx(gap_s / 2)
    trace = generate(3000, gap_s, table, seed=3)
    reference = reference_type(table)
    asked = sum(job.steps / job.speeds[reference] * job.gang for job in trace.jobs)
    assert asked / trace.jobs[-1].arrival_s * gap_s == pytest.approx(114_700.0 * 1.0, rel=0.1)
    gangs = [job.gang for job in trace.jobs]
    assert gangs.count(1) / len(gangs) == pytest.approx(0.7, abs=0.03)
    assert generate(10, 60.0, table, seed=3) == generate(10, 60.0, table, seed=3)
    with pytest.raises(TraceError, match="load"):
        gap_for(0.0, FLEET, table)


def test_clusters_are_written_in_a_line_or_a_table(tmp_path: Path) -> None:
    fleet = parsed_fleet("v100=8,k80=4", {}, 8)
    assert fleet.devices == {"v100": 8, "k80": 4}
    assert fleet.prices == {"v100": 2.48, "k80": 0.45}
    assert parsed_fleet("h100=8", {}, 8).prices == {}
    assert parsed_prices(["h100=4.5"]) == {"h100": 4.5}
    nodes = _file(
        tmp_path,
        "nodes.csv",
        "gpu_model,gpu_capacity_num,cpu_num",
        "A10,1,8",
        "H800,8,9",
        "A10,2,8",
    )
    assert parsed_fleet(str(nodes), {}, 8).devices == {"H800": 8, "A10": 3}
    for text, said in (("v100=", "v100=8"), ("v100=8,=2", "v100=8"), ("v100=0", "at least one")):
        with pytest.raises(TraceError, match=said):
            parsed_fleet(text, {}, 8)
    with pytest.raises(TraceError, match="dollars"):
        parsed_prices(["v100=cheap"])
