# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The decision runs in a child: a hang or a crash costs one decision, never the operator."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from ullage.app.set_aside import SetAside
from ullage.app.solver import Solver, SolverCrashed, SolverNotStarted, SolverTimeout, solve
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings

SNAPSHOT = Snapshot(version=7, taken_at=1000.0)
SETTINGS = DecideSettings(epoch=1)


@pytest.fixture(scope="module")
def shared() -> Iterator[Solver]:
    """Owns one child for all tests that need one: to start a child costs a second."""
    made = Solver(deadline_s=60)
    yield made
    made.close()


@pytest.fixture
def solver(shared: Solver) -> Solver:
    """As it was made, but for its child, which may be warm, and for its counts."""
    shared._work, shared._deadline_s = solve, 60.0
    shared.timeouts = shared.crashes = 0
    shared.aside = SetAside()
    shared.forget()
    return shared


@pytest.fixture
async def warm(solver: Solver) -> Solver:
    """Its child has answered, and has tidied up: that counts against the next deadline."""
    plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7
    assert solver._under_way is not None
    await asyncio.wrap_future(solver._under_way)
    return solver


def hang(_: bytes) -> bytes:
    time.sleep(600)
    return b""


def die(_: bytes) -> bytes:
    os._exit(11)


def fail(_: bytes) -> bytes:
    raise ValueError("no such node")


@pytest.mark.slow
async def test_an_empty_cluster_is_decided_in_the_child(solver: Solver) -> None:
    plan, actions = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7
    assert actions == ()
    assert solver.pid() not in (None, os.getpid())


@pytest.mark.slow
async def test_a_hanging_decision_is_abandoned_and_the_next_one_works(warm: Solver) -> None:
    warm._work, warm._deadline_s = hang, 0.2
    with pytest.raises(SolverTimeout, match=r"within 0\.2 s"):
        await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    assert warm.timeouts == 1
    with pytest.raises(SolverTimeout, match=r"within 0\.6 s"):  # a new child gets more time
        await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    warm._work, warm._deadline_s = solve, 60.0
    plan, _ = await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7


@pytest.mark.slow
async def test_a_dead_child_is_reported_and_replaced(solver: Solver) -> None:
    solver._work = die
    with pytest.raises(SolverCrashed, match="process died"):
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    solver._work = solve
    plan, _ = await solver.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7
    assert solver.crashes == 1


async def test_an_error_of_the_pure_code_names_itself(solver: Solver) -> None:
    solver._work = fail
    with pytest.raises(SolverCrashed, match="ValueError: no such node"):
        await solver.run(SNAPSHOT, 1000.0, SETTINGS)


def test_the_same_input_gives_the_same_bytes() -> None:
    payload = pickle.dumps((SNAPSHOT, 1000.0, SETTINGS))
    assert solve(payload) == solve(payload)


@pytest.mark.slow
async def test_a_child_that_starts_slowly_is_no_decision_that_misses_its_deadline() -> None:
    solver = Solver(deadline_s=0.2)
    solver._ready()
    solver._under_way = Future()  # its imports are not done
    try:
        asked = asyncio.create_task(solver.run(SNAPSHOT, 1000.0, SETTINGS))
        await asyncio.sleep(0.7)  # beyond three deadlines
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
    monkeypatch.setattr("ullage.app.solver.CHILD_START_S", 0.1)
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


async def test_a_leadership_that_ends_keeps_the_warm_child(warm: Solver) -> None:
    child = warm.pid()
    warm.forget()
    plan, _ = await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7, "the whole picture was sent"
    assert warm.pid() == child


def slow(payload: bytes) -> bytes:
    time.sleep(0.3)
    return solve(payload)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "kept"), [(slow, True), (fail, True), (hang, False)])
async def test_a_child_that_is_asked_by_a_caller_that_left_is_waited_for_within_the_deadline(
    warm: Solver, work: Callable[[bytes], bytes], kept: bool
) -> None:
    child = warm.pid()
    warm._work = work
    before = warm._under_way
    asked = asyncio.create_task(warm.run(SNAPSHOT, 1000.0, SETTINGS))
    while not asked.done() and (warm._under_way in (None, before) or not _begun(warm)):
        await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    warm.forget()
    warm._work = solve
    if not kept:
        warm._deadline_s = 0.2
        with pytest.raises(SolverNotStarted):
            await warm.run(SNAPSHOT, 1000.0, SETTINGS)
        warm._deadline_s = 60.0
    plan, _ = await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7
    assert (warm.pid() == child) is kept


@pytest.mark.slow
async def test_a_child_that_died_between_two_decisions_is_replaced(warm: Solver) -> None:
    child = warm.pid()
    assert child is not None
    os.kill(child, signal.SIGKILL)
    async with asyncio.timeout(60):
        while _lives(child):
            await asyncio.sleep(0.01)
    with pytest.raises(SolverCrashed, match="process died"):
        await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    plan, _ = await warm.run(SNAPSHOT, 1000.0, SETTINGS)
    assert plan.version == 7


def _begun(solver: Solver) -> bool:
    """Whether the child has what it was asked: a future that waits would be cancelled."""
    asked = solver._under_way
    return asked is not None and (asked.running() or asked.done())


def _lives(pid: int) -> bool:
    """Whether the pool still takes its child for one that runs."""
    return any(one.pid == pid for one in multiprocessing.active_children())
