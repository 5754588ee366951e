# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A summary fits its limit whatever the trace has, and keeps what other ranks keep."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.kineto_traces import event, gloo, kernel, nccl, operation, step, summary
from ullage.api.rank_traces import (
    MAX_COLLECTIVES,
    RANK_TRACE_BYTES,
    CollectiveColumns,
    RankTrace,
    StepColumns,
)
from ullage.api.readers import WireError
from ullage.engines.tracing.kineto_events import Use, use_of
from ullage.engines.tracing.summary import size_of, thinned


@given(
    st.integers(1, 80),
    st.integers(1, 12),
    st.integers(1, 10),
    st.sampled_from([1.0, 1e3, 1e6, 5e8]),
    st.text(max_size=80),
)
@settings(max_examples=25)
def test_a_summary_fits_and_is_read_again(
    steps: int, each: int, kinds: int, scale: float, name: str
) -> None:
    events = []
    for number in range(steps):
        start = number * 100.0 * scale
        events.append(step(number, start, 100.0 * scale))
        for at in range(each):
            where = start + at * 7.0 * scale
            group = {"Process_Group_Name": f"{at % kinds}{name}", "stream": 1}
            events.append(event("kernel", "ncclDevKernel_X" + name, where, scale, 7, **group))
            events.append(kernel(where, scale / 2, name=f"{name}{at}"))
    found = summary(events, ullage={"id": name, "rank": 7, "world": 9, "step": 10**9})
    assert size_of(found) <= RANK_TRACE_BYTES
    assert RankTrace.from_wire(json.loads(json.dumps(found.to_wire()))) == found
    assert len(found.collectives) <= MAX_COLLECTIVES


def test_two_ranks_keep_the_same_of_many() -> None:
    def rank(of_own: int) -> CollectiveColumns:
        events = [step(number, number * 1000, 1000) for number in range(4)]
        events += [operation(0, 1)]
        for number in range(4):
            events += [gloo(number * 1000 + at * 10, 5) for at in range(40)]
            events += [gloo(number * 1000 + at * 10 + 1, 5, "gloo:barrier") for at in range(of_own)]
        return summary(events).collectives

    def kept(columns: CollectiveColumns) -> set[tuple[int, int]]:
        rows = zip(columns.kind, columns.step, columns.ordinal, strict=True)
        return {
            (step, ordinal)
            for kind, step, ordinal in rows
            if columns.kinds[kind].name == "all_reduce"
        }

    few, many = kept(rank(0)), kept(rank(60))
    assert len(few) == 4 * 20
    assert 0 < len(many) < len(few)
    assert many < few


def test_thinning_reaches_any_number() -> None:
    events = [step(number, number * 100, 100) for number in range(40)]
    events += [nccl(number * 100 + 10, 5) for number in range(40)]
    columns = summary(events).collectives
    assert [len(thinned(columns, most)) for most in (40, 39, 20, 10, 1, 0)] == [
        40,
        20,
        20,
        10,
        1,
        0,
    ]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(WireError, match=r"steps\.columns of different lengths"):
        RankTrace.from_wire({"startMicros": 0, "steps": {"startsMicros": [1]}})
    with pytest.raises(WireError, match="kind: 3 is none of 0"):
        CollectiveColumns(
            kind=(3,), step=(0,), ordinal=(0,), of=(1,), starts_micros=(0,), spans_micros=(0,)
        )
    with pytest.raises(WireError, match="51 entries"):
        StepColumns.from_wire({"startsMicros": [0] * 51})
    with pytest.raises(WireError, match="at most 8"):
        CollectiveColumns.from_wire({"kinds": [{"name": "x"}] * 9})
    with pytest.raises(WireError, match="at most 8"):
        RankTrace.from_wire(
            {"startMicros": 0, "operations": [{"name": "x", "activity": "Copy"}] * 9}
        )


@pytest.mark.parametrize(
    ("category", "name", "use"),
    [
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", Use.COLLECTIVE),
        ("kernel", "ncclKernel_AllGather_RING_LL", Use.COLLECTIVE),
        ("kernel", "void gemm<nccl>", Use.KERNEL),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", Use.PAGEABLE_COPY),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", Use.COPY),
        ("gpu_memset", "Memset (Device)", Use.COPY),
        ("cuda_runtime", "cudaStreamSynchronize", Use.WAIT),
        ("cuda_runtime", "hipDeviceSynchronize", Use.WAIT),
        ("cuda_runtime", "cudaMemcpy", Use.WAIT),
        ("cuda_runtime", "cudaMemcpyAsync", Use.LAUNCH),
        ("cuda_driver", "cuLaunchKernel", Use.LAUNCH),
        ("cuda_runtime", "cudaMalloc", Use.ALLOCATION),
        ("cuda_driver", "cuMemMap", Use.ALLOCATION),
        ("user_annotation", "ProfilerStep#12", Use.STEP),
        ("cpu_op", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", Use.FETCH),
        ("user_annotation", "[pl][profile]run_training_epoch.train_dataloader_next", Use.FETCH),
        ("user_annotation", "gloo:all_reduce", Use.HOST_COLLECTIVE),
        ("user_annotation", "Optimizer.step#SGD.step", None),
        ("cpu_op", "c10d::allreduce_", Use.HOST_COMMUNICATION),
        ("cpu_op", "aten::mm", Use.OPERATION),
        ("Trace", "PyTorch Profiler (0)", None),
        ("ac2g", "ac2g", None),
        ("python_function", "f.py(1): g", None),
    ],
)
def test_events_are_told_by_category_and_name(category: str, name: str, use: Use | None) -> None:
    assert use_of(category, name) == use


@pytest.mark.parametrize(
    ("name", "stated", "called"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclArgs)", None, "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", None, "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", None, "reduce_scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", None, "send_recv"),
        ("ncclDevKernel_Generic(x)", "_allgather_base", "all_gather"),
        ("ncclDevKernel_Generic(x)", "allreduce", "all_reduce"),
        ("ncclDevKernel_Generic(x)", 7, "generic"),
    ],
)
def test_collectives_have_one_name(name: str, stated: object, called: str) -> None:
    arguments = {} if stated is None else {"Collective_name": stated}
    events = [step(1, 0, 100), event("kernel", name, 5, 10, 7, **arguments)]
    assert [kind.name for kind in summary(events).collectives.kinds] == [called]


def test_groups_are_their_name_and_ranks() -> None:
    named = {"Process_Group_Name": "3", "Process_Group_Ranks": "[0, 4]"}
    events = [step(1, 0, 100), event("kernel", "ncclDevKernel_AllReduce", 5, 10, 7, **named)]
    assert summary(events).collectives.kinds[0].group == "3 [0, 4]"
