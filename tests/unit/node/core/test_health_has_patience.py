# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ullage.api.reasons import Reason
from ullage_node.health import HealthTracker
from ullage_node.model.devices import DeviceReading
from ullage_node.times import RECOVERY_MOST_S

GOOD = DeviceReading(uuid="gpu-0", healthy=True)
SOFT = DeviceReading(uuid="gpu-0", healthy=False, message="no answer")
HARD = DeviceReading(uuid="gpu-0", healthy=False, hard=True, message="Xid 79")
STEP = 5.0


class Clock:
    """Probes every five seconds."""

    def __init__(self, tracker: HealthTracker | None = None) -> None:
        self.tracker = tracker or HealthTracker(30.0)
        self.now = 0.0

    def feed(self, *readings: DeviceReading) -> list[bool]:
        """Probe by probe: is the device healthy?"""
        verdicts = []
        for reading in readings:
            self.tracker.take([reading], now=self.now, wall=1000.0 + self.now)
            self.now += STEP
            verdicts.append(self.tracker.refusal("gpu-0") is None)
        return verdicts

    def until_healthy(self) -> float:
        """Seconds of good probes until the device is back."""
        begun = self.now
        while not self.feed(GOOD)[0]:
            assert self.now < begun + 10_000
        return self.now - STEP - begun


def test_a_hard_fault_counts_at_once() -> None:
    clock = Clock()
    assert clock.feed(GOOD, HARD) == [True, False]
    refusal = clock.tracker.refusal("gpu-0")
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (Reason.DEVICE_UNHEALTHY, "gpu-0: Xid 79")


def test_soft_faults_count_when_three_of_five_are_bad() -> None:
    assert Clock().feed(SOFT, GOOD, SOFT, GOOD, GOOD, SOFT, GOOD, SOFT) == [True] * 8
    assert Clock().feed(SOFT, GOOD, SOFT, GOOD, SOFT) == [True] * 4 + [False]


def test_it_comes_back_after_thirty_clean_seconds() -> None:
    clock = Clock()
    clock.feed(HARD)
    assert clock.until_healthy() == 30.0


def test_a_bad_probe_starts_the_wait_again() -> None:
    clock = Clock()
    clock.feed(HARD, GOOD, GOOD, GOOD, SOFT)
    assert clock.until_healthy() == 30.0


def test_flapping_doubles_the_wait() -> None:
    clock = Clock()
    waits = []
    for _ in range(4):
        clock.feed(HARD)
        waits.append(clock.until_healthy())
    assert waits == [30.0, 60.0, 120.0, 240.0]


def test_a_quiet_while_ends_flapping() -> None:
    clock = Clock()
    for _ in range(3):
        clock.feed(HARD)
        clock.until_healthy()
    clock.now += 700
    clock.feed(HARD)
    assert clock.until_healthy() == 30.0


def test_worse_news_replaces_better() -> None:
    clock = Clock()
    clock.feed(SOFT, SOFT, SOFT)
    lost = DeviceReading(
        uuid="gpu-0", healthy=False, hard=True, reason=Reason.DEVICE_LOST, message="gone"
    )
    clock.feed(lost, SOFT)
    refusal = clock.tracker.refusal("gpu-0")
    assert refusal is not None
    assert refusal.reason is Reason.DEVICE_LOST


def test_changes_are_told_once() -> None:
    tracker = HealthTracker(30.0)
    told = [
        [change.refusal is None for change in tracker.take([HARD], now=at, wall=at)]
        for at in (0.0, 5.0)
    ]
    assert told == [[False], []]


def test_quarantine_outlives_the_agent() -> None:
    before = Clock()
    before.feed(HARD)
    assert before.tracker.quarantine == {"gpu-0": 1030.0}
    after = HealthTracker(30.0)
    after.restore(before.tracker.quarantine, wall=1010.0)
    clock = Clock(after)
    assert clock.feed(GOOD) == [False]
    assert clock.until_healthy() <= 20.0
    assert clock.tracker.quarantine == {}


def test_a_quarantine_that_is_over_is_no_more() -> None:
    tracker = HealthTracker(30.0)
    tracker.restore({"gpu-0": 1030.0}, wall=1031.0)
    assert tracker.refusal("gpu-0") is None


def test_a_clock_that_was_set_back_keeps_nothing_away_for_long() -> None:
    tracker = HealthTracker(30.0)
    tracker.restore({"gpu-0": 1e9}, wall=1010.0)
    clock = Clock(tracker)
    assert clock.feed(GOOD) == [False]
    assert clock.until_healthy() <= RECOVERY_MOST_S


def test_while_it_runs_only_the_monotonic_clock_counts() -> None:
    tracker = HealthTracker(30.0)
    tracker.take([HARD], now=0.0, wall=1000.0)
    for second, wall in enumerate((0.0, 1e12, 5.0, 1e9, 1000.0)):
        tracker.take([GOOD], now=float(second), wall=wall)
        assert tracker.refusal("gpu-0") is not None
    tracker.take([GOOD], now=31.0, wall=0.0)
    assert tracker.refusal("gpu-0") is None
