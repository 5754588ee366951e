# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace becomes a bounded table of operations, and a bad one is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.profiles import traces
from ullage.engines.profiles.chakra import read_chakra
from ullage.engines.profiles.kineto import read_kineto
from ullage.engines.profiles.traces import MOST_OPS, OpTraceError, TracedOp, together

DATA = Path(__file__).parents[3] / "data" / "traces"
KINETO = (DATA / "kineto-two-steps.json").read_text("utf-8")
CHAKRA = (DATA / "chakra-one-step.json").read_text("utf-8")


def event(name: str = "aten::mul", start: float = 0.0, length: float = 1.0, **more: Any) -> Any:
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length,
        "args": {}, **more,
    }  # fmt: skip


def kineto(*events: Any) -> str:
    return json.dumps({"traceEvents": list(events)})


def test_kernels_give_their_time_to_the_operation_that_started_them() -> None:
    trace = read_kineto(KINETO)
    rows = {op.type: op for op in trace.ops}
    assert set(rows) == {"aten::addmm", "aten::mm", "aten::add_"}  # linear only calls addmm
    assert rows["aten::addmm"].count == 2
    assert rows["aten::addmm"].seconds == pytest.approx(40e-6)
    assert rows["aten::mm"].seconds == pytest.approx(80e-6)
    assert [op.count for op in trace.ops if op.type == "aten::add_"] == [1]


def test_a_trace_tells_step_time_memory_format_and_device() -> None:
    trace = read_kineto(KINETO)
    assert (trace.steps, trace.device, trace.precision) == (2, "NVIDIA L4", "FP16")
    assert trace.step_s == pytest.approx(10e-3)
    assert trace.peak_memory_bytes == 1_500_000  # of the device, not of the host


def test_sizes_and_products_follow_from_the_arguments() -> None:
    (addmm,) = [op for op in read_kineto(KINETO).ops if op.type == "aten::addmm"]
    assert addmm.flops == 2 * 64 * 512 * 256
    assert addmm.bytes_read == 2 * (256 + 64 * 512 + 512 * 256)


def test_an_execution_trace_has_sizes_and_no_times() -> None:
    trace = read_chakra(CHAKRA)
    rows = {op.type: op for op in trace.ops}
    assert set(rows) == {"aten::addmm", "aten::relu"}
    assert rows["aten::relu"].bytes_written == 2 * 64 * 256
    assert rows["aten::addmm"].flops == 2 * 64 * 512 * 256
    assert (trace.step_s, trace.steps, trace.precision) == (None, 1, "FP16")
    assert all(op.seconds is None for op in trace.ops)


def test_the_older_spelling_of_execution_traces_is_read_too() -> None:
    node = {
        "name": "aten::mm", "id": 2, "parent": 1, "input_shapes": [[2, 3], [3, 4]],
        "input_types": ["Tensor(float)"] * 2, "output_shapes": [[2, 4]],
        "output_types": ["Tensor(float)"],
    }  # fmt: skip
    trace = read_chakra(json.dumps({"schema": "1.0.4", "nodes": [node]}))
    (row,) = trace.ops
    assert (row.flops, row.bytes_read, row.bytes_written) == (48.0, 72.0, 32.0)


def test_without_kernels_an_operation_has_the_time_its_inner_ones_leave() -> None:
    text = kineto(
        event("aten::linear", 0.0, 100.0),
        event("aten::addmm", 10.0, 70.0),
        event("aten::copy_", 20.0, 30.0),
        event("aten::relu", 100.0, 5.0),
        event("aten::relu", 0.0, 7.0, tid=2),
    )
    rows = {op.type: op for op in read_kineto(text, steps=1).ops}
    spent = {name: round(op.count * (op.seconds or 0) * 1e6) for name, op in rows.items()}
    assert spent == {"aten::linear": 30, "aten::addmm": 40, "aten::copy_": 30, "aten::relu": 12}


def test_events_outside_the_marked_steps_do_not_count() -> None:
    mark = event("ProfilerStep#7", 100.0, 50.0, cat="user_annotation")
    text = kineto(event("aten::warm", 0.0, 90.0), mark, event("aten::real", 110.0, 10.0))
    assert [op.type for op in read_kineto(text).ops] == ["aten::real"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"traceEvents": [{"ph": "X", "ts": NaN}]}', "holds NaN, which is no number"),
        ('{"traceEvents": [{"ph": "X", "ts": 0, "dur": -Infinity}]}', "holds -Infinity"),
        ('{"traceEvents": {}}', "traceEvents: expected a list"),
        ('"text"', "traceEvents: expected a list"),
        ("[1]", r"traceEvents\[0\]: expected an object"),
        (kineto(event(length=-3)), r"traceEvents\[0\]\.dur: -3 must be a finite number"),
        (kineto(event(start="soon")), r"traceEvents\[0\]\.ts: expected a number, got str"),
        (kineto(event()), "marks no steps: call step.. on the profiler"),
        (kineto(), "marks no steps"),
        (kineto(event("ProfilerStep#1", cat="user_annotation")), "holds no operations"),
        (
            kineto(
                event("ProfilerStep#1", 0, 9, cat="user_annotation"), event(args={"flops": -1.0})
            ),
            r"traceEvents\[1\]\.args\.flops: -1\.0 must be",
        ),
        ("[" * 100_000, "nested too deeply|no JSON"),
    ],
)
def test_what_is_wrong_with_a_kineto_trace_is_named(text: str, says: str) -> None:
    with pytest.raises(OpTraceError, match=says):
        read_kineto(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "holds no execution trace"),
        ('{"nodes": []}', "schema '' is not known"),
        ('{"schema": "9.9", "nodes": []}', "schema '9.9' is not known; 1.0 and 1.1 are"),
        ('{"schema": "1.1.1", "nodes": []}', "holds no operations"),
        ('{"schema": "1.1.1", "nodes": [7]}', r"nodes\[0\]: expected an object"),
    ],
)
def test_what_is_wrong_with_an_execution_trace_is_named(text: str, says: str) -> None:
    with pytest.raises(OpTraceError, match=says):
        read_chakra(text)


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 2)
    with pytest.raises(OpTraceError, match="3 entries, at most 2; trace fewer steps"):
        read_kineto(kineto(event(), event(), event()), steps=1)


ops = st.builds(
    TracedOp,
    type=st.sampled_from([f"op{n}" for n in range(6)]),
    count=st.integers(1, 50).map(float),
    seconds=st.none() | st.floats(0, 1e3),
    flops=st.none() | st.floats(0, 1e15),
    bytes_read=st.none() | st.integers(0, 400).map(float),
)


@settings(max_examples=60, deadline=None)
@given(listed=st.lists(ops, min_size=1, max_size=60), most=st.integers(1, 20))
def test_the_table_is_bounded_and_keeps_the_time(listed: list[TracedOp], most: int) -> None:
    rows, _ = together(listed, 1, most)
    assert 1 <= len(rows) <= most
    timed = sum(op.count * (op.seconds or 0.0) for op in listed)
    if all(op.seconds is not None for op in listed):
        assert sum(op.count * (op.seconds or 0.0) for op in rows) == pytest.approx(timed)
    again, _ = together(reversed(listed), 1, most)
    assert [op.type for op in again] == [op.type for op in rows]
    assert all(op.count >= 1 for op in rows)


def test_small_kinds_are_put_together_first() -> None:
    listed = [TracedOp(type="mm", seconds=float(n), bytes_read=float(n)) for n in range(400)]
    rows, merged = together(listed, 1)
    assert len(rows) == MOST_OPS
    assert merged == 400 - (MOST_OPS - 1)
    assert rows[0].seconds == 399.0 or rows[0].count > 1


def test_what_runs_less_than_once_a_step_counts_with_its_part() -> None:
    (row,), _ = together([TracedOp(type="save", seconds=4.0)], 4)
    assert (row.count, row.seconds) == (1.0, 1.0)
