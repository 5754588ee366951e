# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The decision runs in a child: a hang or a crash costs one decision, never the operator."""

import asyncio
import os
import pickle
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from ullage.app.solver import Solver, SolverCrashed, SolverNotStarted, SolverTimeout, solve
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings

SNAPSHOT = Snapshot(version=7, taken_at=1000.0)
SETTINGS = DecideSettings(epoch=1)


def hang(_: bytes) -> bytes:
    time.sleep(600)
    return b""


def die(_: bytes) -> bytes:
    os._exit(11)


def fail(_: bytes) -> bytes:
    raise ValueError("no such node")


async def test_an_empty_cluster_is_decided_in_the_child() -> None:
    solver = Solver(deadline_s=60)
    try:
        plan, actions = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    finally:
        solver.close()
    assert plan.version == 7
    assert actions == ()


async def test_a_hanging_decision_is_abandoned_and_the_next_one_works() -> None:
    solver = Solver(deadline_s=0.5, work=hang)
    try:
        with pytest.raises(SolverTimeout, match=r"within 1\.5 s"):  # a new child gets more time
            await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert solver.timeouts == 1
        solver._work, solver._deadline_s = solve, 60.0
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    finally:
        solver.close()
    assert plan.version == 7


async def test_a_dead_child_is_reported_and_replaced() -> None:
    solver = Solver(deadline_s=60, work=die)
    try:
        with pytest.raises(SolverCrashed, match="process died"):
            await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        solver._work = solve
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    finally:
        solver.close()
    assert plan.version == 7
    assert solver.crashes == 1


async def test_an_error_of_the_pure_code_names_itself() -> None:
    solver = Solver(deadline_s=60, work=fail)
    try:
        with pytest.raises(SolverCrashed, match="ValueError: no such node"):
            await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    finally:
        solver.close()


def test_the_same_input_gives_the_same_bytes() -> None:
    payload = pickle.dumps((SNAPSHOT, 1000.0, SETTINGS))
    assert solve(payload) == solve(payload)


async def test_a_child_that_starts_slowly_is_no_decision_that_misses_its_deadline() -> None:
    solver = Solver(deadline_s=0.2)
    solver._ready()
    solver._under_way = Future()  # its imports are not done
    try:
        asked = asyncio.create_task(solver.run(SNAPSHOT, 1000.0, SETTINGS))
        await asyncio.sleep(1.0)
        assert not asked.done()
        assert solver.timeouts == 0
        solver._deadline_s = 60.0
        solver._under_way.set_result(0)
        plan, _ = await asked
    finally:
        solver.close()
    assert plan.version == 7


async def test_a_child_that_never_starts_is_the_fault_of_no_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ullage.app.solver.START_S", 0.1)
    solver = Solver(deadline_s=60)
    try:
        for _ in range(5):
            solver._ready()
            solver._under_way = Future()
            with pytest.raises(SolverNotStarted, match="is not ready"):
                await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert not solver.aside.searching
    finally:
        solver.close()


async def test_a_leadership_that_ends_keeps_the_warm_child() -> None:
    solver = Solver(deadline_s=60)
    try:
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        child = solver.pid()
        solver.forget()
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert plan.version == 7, "the whole picture was sent"
        assert solver.pid() == child
    finally:
        solver.close()


def slow(payload: bytes) -> bytes:
    time.sleep(1.0)
    return solve(payload)


@pytest.mark.parametrize(("work", "kept"), [(slow, True), (fail, True), (hang, False)])
async def test_a_child_that_is_asked_by_a_caller_that_left_is_waited_for_within_the_deadline(
    work: Callable[[bytes], bytes], kept: bool
) -> None:
    solver = Solver(deadline_s=60)
    try:
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        child = solver.pid()
        solver._work = work
        asked = asyncio.create_task(solver.run(SNAPSHOT, 1000.0, SETTINGS))
        await asyncio.sleep(0.1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        solver.forget()
        solver._work = solve
        if not kept:
            solver._deadline_s = 0.2
            with pytest.raises(SolverNotStarted):
                await solver.run(SNAPSHOT, 1000.0, SETTINGS)
            solver._deadline_s = 60.0
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        assert plan.version == 7
        assert (solver.pid() == child) is kept
    finally:
        solver.close()


async def test_a_child_that_died_between_two_decisions_is_replaced() -> None:
    solver = Solver(deadline_s=60)
    try:
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        child = solver.pid()
        assert child is not None
        os.kill(child, signal.SIGKILL)
        await asyncio.sleep(0.5)
        with pytest.raises(SolverCrashed, match="process died"):
            await solver.run(SNAPSHOT, 1000.0, SETTINGS)
        plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    finally:
        solver.close()
    assert plan.version == 7
