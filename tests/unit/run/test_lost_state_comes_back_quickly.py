# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""After a loss members load what they miss while their void step still computes, and only that."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import ullage_run
from fakes.toy_group import ToyJob, ToyMember, expected

STEPS = 40


def watched(job: ToyJob) -> list[int]:
    """Shards that the copy is asked for from now on."""
    found: list[int] = []
    shard = job.store.shard

    def noted(number: int) -> tuple[int, int, bytearray] | None:
        found.append(number)
        return shard(number)

    job.store.shard = noted  # type: ignore[method-assign]
    return found


def owner_dies(dead: list[ToyMember]) -> Callable[[ToyMember, int, str], None]:
    """A hook by which one owner is gone in the middle of step 20."""
    struck = threading.Event()

    def strike(one: ToyMember, now_at: int, now: str) -> None:
        if now_at >= 20 and now == "before" and one.group.shards and not struck.is_set():
            struck.set()
            dead.append(one)
            one.die()

    return strike


def test_owners_that_are_left_need_nothing_but_what_was_lost() -> None:
    dead: list[ToyMember] = []
    with ToyJob() as job:
        asked = watched(job)
        strike = owner_dies(dead)
        for name in ("r0", "s1", "s2", "s3"):
            job.member(name, until=STEPS, reliable=name == "r0", hook=strike)
        assert job.finish() == expected(STEPS)
        lost = set(dead[0].state.shards)
        assert lost
        assert lost <= set(asked)
        assert len(asked) == len(lost), "who was left had its own copy of that step"


def test_the_state_is_loaded_while_a_void_step_still_computes() -> None:
    dead: list[ToyMember] = []
    overlapped: list[bool] = []
    busy, loaded = threading.Event(), threading.Event()
    die = owner_dies(dead)

    def strike(one: ToyMember, step: int, now: str) -> None:
        die(one, step, now)
        if dead and one is not dead[0] and not one.reliable and not busy.is_set():
            busy.set()
            overlapped.append(loaded.wait(10))

    with ToyJob(members=3) as job:
        shard = job.store.shard

        def noted(number: int) -> tuple[int, int, bytearray] | None:
            loaded.set()
            return shard(number)

        job.store.shard = noted  # type: ignore[method-assign]
        for name in ("r0", "s1", "s2"):
            job.member(name, until=STEPS, reliable=name == "r0", hook=strike)
        assert job.finish() == expected(STEPS)
        assert overlapped == [True], "the copy was asked before the step had ended"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps at which a program was said to stand."""
    found: list[int] = []
    monkeypatch.setattr(ullage_run, "resumed", found.append)
    return found


def test_progress_counts_from_the_step_that_members_went_back_to(said: list[int]) -> None:
    with ToyJob() as job:
        strike = owner_dies([])
        for name in ("r0", "s1", "s2", "s3"):
            job.member(name, until=STEPS, reliable=name == "r0", hook=strike)
        assert job.finish() == expected(STEPS)
        back = int(str(job.seen("Recovered")[0]["step"]))
    assert said.count(0) == 4, "each once when it began"
    assert set(said) <= {0, back}
