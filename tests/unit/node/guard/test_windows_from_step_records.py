# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fakes.guard_rig import key_of
from ullage.api.readers import WireError
from ullage.api.steps import StepRecord
from ullage_node.guard.windows import StepWindows
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import GuardSubject, ObjectiveWindow, WindowVerdict

KEY = key_of("a")
SUBJECT = GuardSubject(key=KEY, max_slowdown_percent=130, solo_micros=10_000)
"""13 ms a step are allowed."""


@dataclass
class Worker:
    """A container that makes steps of one length, and the windows over it."""

    step_s: float = 0.01
    now: float = 1000.0
    subject: GuardSubject = SUBJECT
    keeps_busy: bool = True
    steps: float = 1.0
    busy_s: float = 0.01
    broken: bool = False
    found: list[ObjectiveWindow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.windows = StepWindows(self._read)

    def _read(self, key: ContainerKey) -> StepRecord | None:
        if self.broken:
            raise WireError("garbage")
        return StepRecord(
            steps=int(self.steps),
            last_step_ns=int((self.now - (self.steps % 1) * self.step_s) * 1e9),
            ewma_ns=1,
            items=0,
            sm_count=0,
            last_checkpoint_ns=0,
            busy_ns=int(self.busy_s / max(self.steps, 1e-9) * int(self.steps) * 1e9)
            if self.keeps_busy
            else 0,
        )

    def work(self, seconds: float, look_s: float = 0.25) -> list[ObjectiveWindow]:
        """Let it work; the windows that ended meanwhile."""
        fresh: list[ObjectiveWindow] = []
        for _ in range(round(seconds / look_s)):
            self.now += look_s
            self.steps += look_s / self.step_s
            self.busy_s += look_s
            fresh += self.windows.next((self.subject,), self.now)
        self.found += fresh
        return fresh


def test_windows_of_a_second_hold_the_mean_step_against_the_largest_allowed() -> None:
    worker = Worker()
    worker.work(7)
    fresh = worker.work(3)
    assert [one.verdict for one in fresh] == [WindowVerdict.MET] * 3
    assert [one.ratio for one in fresh] == pytest.approx([10 / 13] * 3, rel=0.05)
    assert all(one.at_s - one.begin_s == pytest.approx(1) for one in fresh)


@pytest.mark.parametrize("keeps_busy", [True, False])
def test_a_slowdown_shows_in_the_next_whole_window(keeps_busy: bool) -> None:
    worker = Worker(keeps_busy=keeps_busy)
    worker.work(7)
    worker.step_s = 0.02
    worker.busy_s = worker.steps * 0.02  # the record keeps one sum
    fresh = worker.work(3)
    assert [one.verdict for one in fresh[1:]] == [WindowVerdict.VIOLATED] * 2


def test_loading_and_tuning_are_no_slowdown() -> None:
    worker = Worker(step_s=0.05)
    early = worker.work(5)
    assert {one.verdict for one in early} == {WindowVerdict.NO_DATA}
    assert worker.work(2)[-1].verdict is WindowVerdict.VIOLATED


def test_a_container_that_starts_again_warms_up_again() -> None:
    worker = Worker(step_s=0.05)
    worker.work(8)
    worker.steps, worker.busy_s = 1.0, 0.05
    assert {one.verdict for one in worker.work(5)} == {WindowVerdict.NO_DATA}


def test_a_window_without_a_finished_step_says_nothing() -> None:
    worker = Worker(
        step_s=4.0, subject=GuardSubject(key=KEY, max_slowdown_percent=130, solo_micros=1)
    )
    verdicts = [one.verdict for one in worker.work(60)]
    assert verdicts.count(WindowVerdict.NO_DATA) > verdicts.count(WindowVerdict.VIOLATED) > 5


def test_after_a_cut_the_step_under_way_does_not_count() -> None:
    worker = Worker(
        step_s=0.4, subject=GuardSubject(key=KEY, max_slowdown_percent=130, solo_micros=1)
    )
    worker.work(8)
    worker.windows.cut(KEY, worker.now)
    cut_at = worker.now
    (first,) = worker.work(1)
    assert first.begin_s == cut_at
    assert first.verdict is WindowVerdict.VIOLATED
    worker.step_s = 3.0
    worker.windows.cut(KEY, worker.now)
    assert {one.verdict for one in worker.work(3)} == {WindowVerdict.NO_DATA}


def test_a_slow_step_that_a_cut_falls_into_slows_no_window_after_it() -> None:
    worker = Worker(keeps_busy=False)
    worker.work(7)
    worker.step_s = 2.0
    worker.work(1.5)
    worker.windows.cut(KEY, worker.now)
    worker.work(0.25)
    worker.steps, worker.step_s = float(int(worker.steps) + 1), 0.01
    assert [one.verdict for one in worker.work(2)] == [WindowVerdict.MET] * 2


def test_a_record_of_garbage_pauses_no_one_and_ends_nothing() -> None:
    worker = Worker()
    worker.work(7)
    worker.broken = True
    assert worker.work(3) == []
    worker.broken = False
    assert worker.work(2)[-1].verdict is WindowVerdict.MET


def test_an_agent_that_stood_still_itself_draws_no_conclusion() -> None:
    worker = Worker(step_s=0.05)
    worker.work(8)
    worker.step_s = 0.2
    assert [one.verdict for one in worker.work(8, look_s=8.0)] == [WindowVerdict.NO_DATA]


@pytest.mark.parametrize(
    "subject",
    [
        GuardSubject(key=KEY, max_slowdown_percent=130, solo_micros=0),
        GuardSubject(key=KEY, max_slowdown_percent=0, solo_micros=10),
    ],
)
def test_without_a_reference_nothing_is_said(subject: GuardSubject) -> None:
    worker = Worker(subject=subject)
    assert {one.verdict for one in worker.work(10)} == {WindowVerdict.NO_DATA}


def test_others_are_forgotten_and_cutting_them_is_harmless() -> None:
    worker = Worker()
    worker.work(7)
    assert worker.windows.next((), worker.now) == ()
    worker.windows.cut(KEY, worker.now)
    assert worker.work(0.5) == []
