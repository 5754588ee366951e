# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from ullage_node import tasks
from ullage_node.tasks import UNHEALTHY_SECONDS, Supervisor, end, fault_text


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(tasks, "MOST_SECONDS", 0.001)


async def test_a_task_that_fails_begins_again_and_the_others_go_on() -> None:
    supervisor, begun, done = Supervisor(), list[int](), asyncio.Event()

    async def fails() -> None:
        begun.append(len(begun))
        if len(begun) < 4:
            raise RecursionError("too deep")
        done.set()
        await asyncio.Event().wait()

    async def works() -> None:
        await asyncio.Event().wait()

    running = supervisor.spawn(fails=fails, works=works)
    await done.wait()
    assert supervisor.failures == {"fails": 3}
    assert not any(task.done() for task in running)
    await end(running)
    assert all(task.cancelled() for task in running)


async def test_failures_over_a_minute_make_the_process_unhealthy_and_silence_heals_it() -> None:
    now = [0.0]
    supervisor = Supervisor(clock=lambda: now[0])
    fail = ValueError("x" * 5000 + "\n")
    for second in range(0, int(UNHEALTHY_SECONDS) + 1, 10):
        assert supervisor.failing == ""
        now[0] = float(second)
        supervisor._failed("observe", fail)
    assert supervisor.failing.startswith("observe fails: ValueError: xxx")
    now[0] += UNHEALTHY_SECONDS
    assert supervisor.failing == ""
    supervisor._failed("observe", fail)
    assert supervisor.failing == "", "a single later failure is none that lasts"


def test_what_is_said_of_a_fault_is_one_short_line() -> None:
    said = fault_text(ValueError("a\nb\t" + "c" * 10_000))
    assert said.startswith("ValueError: a b ccc")
    assert len(said) == 300
