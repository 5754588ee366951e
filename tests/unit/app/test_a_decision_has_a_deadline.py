# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The decision runs in a child: a hang or a crash costs one decision, never the operator."""

import os
import pickle
import time

import pytest

from ullage.app.solver import Solver, SolverCrashed, SolverTimeout, solve
from ullage.decide.model import DecideSettings
from ullage.state.records import Snapshot

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
