# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Readers of traces, tables and clusters: what is taken, what is told, what is refused."""

from __future__ import annotations

import contextlib
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage_simulate.fleets import parsed_fleet, parsed_prices
from ullage_simulate.readers import COLUMNS, Format, published, read_trace
from ullage_simulate.readers_sia import holds_step_times, read_step_times
from ullage_simulate.reading import ReadingOptions
from ullage_simulate.speeds import SpeedTable, built_in, read_speeds
from ullage_simulate.synthetic import gap_for, generate, reference_type
from ullage_simulate.trace import Fleet, JobTraceError, TraceJob

OPTIONAL = ("weight", "priority", "checkpoint", "deadline_s", "slo", "priority_weight", "gpu_spec")
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
    trace = read_trace(path, reading=ReadingOptions(select={"vc": "a"}))
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
    first, again = read_trace(path, reading=ReadingOptions(seed=1)), read_trace(path, Format.PHILLY)
    assert [job.arrival_s for job in first.jobs] == [0.0, 60.0]
    assert [job.gang for job in first.jobs] == [1, 8]
    for job in first.jobs:
        length = job.steps / job.speeds[reference_type(built_in())]
        assert length == pytest.approx({1: 1000.0, 8: 500.0}[job.gang], rel=0.01)
    assert first == read_trace(path, reading=ReadingOptions(seed=1))
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
    trace = read_trace(jobs, reading=ReadingOptions(table=read_step_times(steps)))
    small, large = trace.jobs
    assert small.gang == large.gang == 2
    assert small.speeds["t4"] == pytest.approx(1 / 0.6)
    # Twice the largest batch that was measured: two passes for a step.
    assert large.speeds == pytest.approx({"t4": 1 / 1.6, "a100": 1 / 0.4})
    hours = small.steps / small.speeds["t4"] * small.gang / 3600
    assert 1.0 <= hours <= 10.0
    assert any("1 jobs of applications" in note for note in trace.notes)
    with pytest.raises(JobTraceError, match="step_times"):
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
    trace = read_trace(path, reading=ReadingOptions(types=("a10",)))
    assert [(job.name, job.arrival_s, job.steps, job.gang) for job in trace.jobs] == [
        ("i0", 0.0, 500, 1),
        ("i1", 100.0, 400, 2),
    ]
    assert not any(job.checkpointable for job in trace.jobs)
    assert trace.jobs[0].speeds == {"a10": 1.0}
    assert trace.notes[0] == "1 that ask for no GPU were left out."


_OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time"
)


def test_parts_of_gpus_are_kept_as_parts(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "openb_pod_list_default.csv",
        _OPENB,
        "p0,6000,12288,1,460,,LS,Running,0,500,0",
        "p1,6000,12288,1,1000,V100M16|V100M32,BE,Succeeded,100,300,120",
        "p2,6000,12288,8,1000,,LS,Running,100,,100",
        "p3,6000,12288,0,0,,LS,Running,100,200,100",
        "p4,6000,12288,1,500,G2,LS,Pending,100,200,",
        "p5,6000,12288,1,500,,LS,Failed,200,200,",
    )
    trace = read_trace(path, reading=ReadingOptions(types=("V100M32", "T4")))
    assert [(job.name, job.gang, job.milli, job.steps) for job in trace.jobs] == [
        ("p0", 1, 460, 500),
        ("p1", 1, 1000, 200),
        ("p2", 8, 1000, 400),
    ]
    assert trace.jobs[1].speeds == {"V100M32": 1.0, "T4": 0.0}
    assert trace.notes[:3] == (
        "1 that ask for no GPU were left out.",
        "1 that end when they begin were left out.",
        "1 that ask for models which this cluster lacks were left out.",
    )
    nodes = _file(
        tmp_path, "openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model",
        "n0,64000,262144,2,T4", "n1,64000,262144,8,V100M32", "n2,64000,262144,0,",
    )  # fmt: skip
    assert parsed_fleet(str(nodes), {}, 8).devices == {"V100M32": 8, "T4": 2}


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


OWN = "arrival_s,gang,job_type,steps,duration_s,weight,priority,checkpoint,deadline_s"


@pytest.mark.parametrize(
    ("head", "line", "said"),
    [
        ("colour,size", "red,1", "t.csv: line 1: .*no format that is known"),
        ("arrival_s,gang,steps", "0,1", "line 2: 2 cells instead of 3"),
        ("arrival_s,gang,steps", "0,1,5,6", "line 2: 4 cells instead of 3"),
        ("arrival_s,gang,gang", "0,1,1", "line 1: two columns are called gang"),
        (OWN, "0,1,A3C,,,,,,", "line 2, column steps: '' is empty: give steps or duration_s"),
        (OWN, "soon,1,A3C,5,,,,,", "line 2, column arrival_s: 'soon' is no number .*: write sec"),
        (OWN, "nan,1,A3C,5,,,,,", "line 2, column arrival_s: 'nan' is no number"),
        (OWN, "inf,1,A3C,5,,,,,", "column arrival_s: 'inf' is no number"),
        (OWN, "-1,1,A3C,5,,,,,", "column arrival_s: '-1' is no number from 0"),
        (OWN, "0,0,A3C,5,,,,,", "column gang: '0' is no number from 1"),
        (OWN, "0,1.5,A3C,5,,,,,", "column gang: '1.5' is no whole number"),
        (OWN, "0,1,Unheard of,5,,,,,", "column job_type: 'Unheard of' has no speeds .*--speeds"),
        (OWN, "0,1,A3C,-5,,,,,", "column steps: '-5' is no number from 1"),
        (OWN, "0,1,A3C,1e999,,,,,", "column steps: '1e999' is no number"),
        (OWN, "0,1,A3C,,-3,,,,", "column duration_s: '-3' is no number from 0"),
        (OWN, "0,1,A3C,5,,0,,,", "column weight: '0' gives no share"),
        (OWN, "0,1,A3C,5,,,high,,", "column priority: 'high' is no number"),
        (OWN, "0,1,A3C,5,,,,maybe,", "column checkpoint: 'maybe' is neither true nor false"),
        (OWN, "0,1,A3C,5,,,,,never", "column deadline_s: 'never' is no number"),
        (OWN, "0,1,A3C," + "9" * 200_000 + ",,,,,", "line 2: no CSV"),
        (OWN, "0,1,A3C," + "9" * 999 + ",,,,,", r"column steps: '9{40}\.\.\.' is no number"),
        ("timestamp,duration_s,num_gpus", "yesterday,5,1", "line 2, column timestamp: 'yesterday'"),
        ("instance_sn,gpu_request,creation_time,deletion_time", "a,.5,0,9", "is no whole number"),
        (
            _OPENB,
            "p,1,1,2,500,,LS,Running,0,9,0",
            "column gpu_milli: '500' is .* part of each of 2",
        ),
        (_OPENB, "p,1,1,1,1500,,LS,Running,0,9,0", "column gpu_milli: '1500' is more than a dev"),
        ("submit_time_s,application,num_replicas,batch_size", "x,bert,1,8", "give --speeds"),
    ],
)
def test_what_makes_no_sense_is_refused_with_file_line_column_and_remedy(
    tmp_path: Path, head: str, line: str, said: str
) -> None:
    with pytest.raises(JobTraceError, match=said):
        read_trace(_file(tmp_path, "t.csv", head, line))


def test_a_byte_order_mark_quotes_and_empty_lines_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = '"arrival_s", "gang","steps"\r\n\r\n"0","1","5"\r\n ,,\r\n'
    path.write_text(text, encoding="utf-8-sig", newline="")
    assert [job.steps for job in read_trace(path).jobs] == [5]
    packed = tmp_path / "packed.csv"
    packed.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    assert [job.steps for job in read_trace(packed).jobs] == [5]


def test_what_is_no_text_or_no_whole_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"arrival_s,gang,steps\n0,1,\xff\xfe\n")
    with pytest.raises(JobTraceError, match=r"t\.csv: line 2: no UTF-8 text"):
        read_trace(path)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"arrival_s,gang,steps\n0,1,5\n" * 999)[:40])
    with pytest.raises(JobTraceError, match=r"cut\.csv\.gz"):
        read_trace(cut)
    with pytest.raises(JobTraceError, match="directory"):
        read_trace(tmp_path)


@given(st.binary(max_size=300), st.sampled_from(list(Format)))
def test_any_bytes_are_read_or_refused_by_name(data: bytes, form: Format) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        path.write_bytes(data)
        with pytest.raises(JobTraceError, match=r"any\.csv"):
            read_trace(path, form)


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Fails unless an error names the file."""
    try:
        yield
    except JobTraceError as error:
        if name not in str(error):
            pytest.fail(f"the error does not name {name}: {error}")
        raise


CELLS = st.sampled_from(["", "0", "1", "-1", "nan", "inf", "1e400", "2", " 3", "x", '"', "a,b"])


@pytest.mark.slow
@given(st.data(), st.sampled_from([form for form in Format if form is not Format.AUTO]))
def test_any_cells_are_read_or_refused_with_their_line(data: st.DataObject, form: Format) -> None:
    columns = sorted(COLUMNS[form]) + data.draw(st.lists(st.sampled_from(OPTIONAL), unique=True))
    lines = data.draw(st.lists(st.lists(CELLS, min_size=1, max_size=12), max_size=4))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.csv"
        path.write_text("\n".join(",".join(line) for line in [columns, *lines]), encoding="utf-8")
        jobs: tuple[TraceJob, ...] = ()
        with contextlib.suppress(JobTraceError), naming("any.csv"):
            jobs = read_trace(path, form).jobs
    for job in jobs:
        assert 0 <= job.arrival_s < math.inf
        assert 0 < job.weight < math.inf
        assert min(job.steps, job.gang) >= 1


def test_files_that_are_not_there_and_columns_that_are_not_are_named(tmp_path: Path) -> None:
    with pytest.raises(JobTraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere.csv")
    path = _file(tmp_path, "t.csv", "arrival_s,gang,steps", "0,1,5")
    with pytest.raises(JobTraceError, match="no column vc"):
        read_trace(path, reading=ReadingOptions(select={"vc": "a"}))
    with pytest.raises(JobTraceError, match="needs the columns"):
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
    with pytest.raises(JobTraceError, match="line 2"):
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
    with pytest.raises(JobTraceError, match="load"):
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
        with pytest.raises(JobTraceError, match=said):
            parsed_fleet(text, {}, 8)
    with pytest.raises(JobTraceError, match="dollars"):
        parsed_prices(["v100=cheap"])
