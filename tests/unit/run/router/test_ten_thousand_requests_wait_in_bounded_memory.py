# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests that wait take no more memory than the queue counts for them, and all get an answer."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from ullage.engines.batching.chooser import BatchChooser, BatchRules
from ullage.engines.batching.histogram import TimeHistogram
from ullage.engines.batching.waiting import BatchRequest
from ullage_router.calls import RouterCall
from ullage_router.open_inference import read
from ullage_router.request_queue import CALL_BYTES, RequestQueue
from ullage_router.run_times import first_costs

COUNT = 10_000
BODY = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,50],"data":[%b]}]}' % b",".join(
    [b"0.5"] * 50
)


@pytest.mark.slow
async def test_they_take_no_more_than_is_counted() -> None:
    queue = RequestQueue(most_calls=COUNT, most_bytes=1 << 30)
    loop = asyncio.get_running_loop()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(COUNT):
            body = bytes(bytearray(BODY))
            assert queue.reserve(CALL_BYTES + len(body))
            infer = read(body)
            kind = number % 100 if number % 2 else None
            call = RouterCall(
                request=BatchRequest(number=number, arrival_s=0.0, deadline_s=1 + number / COUNT),
                method="POST", path="/v2/models/m/infer", headers={"Content-Type": "x"},
                body=body, answer=loop.create_future(), infer=infer, group=kind,
            )  # fmt: skip
            assert queue.offer(call)
        assert not queue.offer(call)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < queue.held_bytes


async def test_all_of_them_leave_in_batches_or_at_their_deadline() -> None:
    queue = RequestQueue(most_calls=COUNT, most_bytes=1 << 30)
    loop = asyncio.get_running_loop()
    for number in range(COUNT):
        request = BatchRequest(
            number=number, arrival_s=0.0, deadline_s=1 + number / COUNT, app="a/1"
        )
        call = RouterCall(
            request=request, method="POST", path="/", headers={}, body=b"",
            answer=loop.create_future(), group=number % 7,
        )  # fmt: skip
        queue.offer(call)
    rules = BatchRules()
    known = {"a/1": TimeHistogram.of([0.01, 0.02, 0.03])}
    chooser = BatchChooser(rules=rules, costs=first_costs(rules.sizes, 0.0), histograms=known)
    left = 0
    for _ in range(100):
        picked = queue.pick(chooser, 0.5, 0)
        assert picked is not None
        left += len(picked.run) + len(picked.dropped)
    left += len(queue.expired(3.0))
    assert left == COUNT
    assert not queue
    assert queue.pick(chooser, 3.0, 0) is None
