# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes on this machine's cores, at real-time priority."""

from __future__ import annotations

import asyncio
import multiprocessing
import os

import pytest

from bench import mixed_speed
from bench.mixed_record import Speed


@pytest.mark.slow
async def test_a_process_measures_each_core_until_it_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    core = min(os.sched_getaffinity(0))
    found: list[Speed] = []
    started = asyncio.get_running_loop().time()
    task = asyncio.create_task(mixed_speed.measure_apart({"node-1": core}, started, found))
    while len(found) < 2 and not task.done():
        await asyncio.sleep(0.05)
    if task.done():
        await task
        assert "Operation not permitted" in capfd.readouterr().err
        pytest.skip("real-time priority is not permitted here")
    (child,) = multiprocessing.active_children()
    assert len(os.listdir(f"/proc/{child.pid}/task")) == 1, "others would not have its priority"
    first, second = found[:2]
    assert first.node == second.node == "node-1"
    assert first.unit_s > 0
    assert second.at_s - first.at_s >= mixed_speed.EVERY_S
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    seen = len(found)
    await asyncio.sleep(1.5 * mixed_speed.EVERY_S)
    assert len(found) <= seen + 1, "one may have been on its way"


async def test_a_core_that_is_not_there_is_told_and_measured_by_no_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found: list[Speed] = []
    await mixed_speed.measure_apart({"node-1": 4096}, 0.0, found)
    assert found == []
    assert "the speed of core 4096 is not measured" in capfd.readouterr().err
