# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from ullage.api.observations import LatencyObjective
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import GuardSubject, ObjectiveWindow, Windows, WindowVerdict
from ullage_node.telemetry.histograms import LatencyHistogram
from ullage_node.telemetry.windows import HistogramPage, LatencyWindows, TenantWindows

SERVER = ContainerKey(pod_uid="uid-1", container="main")
TRAINER = ContainerKey(pod_uid="uid-2", container="main")
BOUNDS = (0.01, 0.02, 0.05, 0.1, math.inf)


class Server:
    """A server's page as time goes by."""

    def __init__(self, *, latency_ms: int = 50, percentile: str = "90", seconds: int = 5) -> None:
        self.slo = LatencyObjective(
            latency_ms=latency_ms, percentile=percentile, window_seconds=seconds
        )
        self.counts = [0] * len(BOUNDS)
        self.sum_seconds = 0.0
        self.windows = LatencyWindows()

    def answer(self, seconds: float, requests: int) -> None:
        for index, bound in enumerate(BOUNDS):
            self.counts[index] += requests if seconds <= bound else 0
        self.sum_seconds += seconds * requests

    def page(self, at_s: float) -> ObjectiveWindow | None:
        made = LatencyHistogram(
            bounds=BOUNDS,
            cumulative=tuple(float(count) for count in self.counts),
            sum_seconds=self.sum_seconds,
            requests=float(self.counts[-1]),
        )
        self.windows.take(SERVER, HistogramPage(at_s=at_s, histogram=made))
        return self.windows.ended(SERVER, self.slo)


def test_a_window_is_the_difference_of_two_pages() -> None:
    server = Server()
    server.answer(0.1, 1000)  # long ago, and slow
    assert server.page(100.0) is None
    server.answer(0.015, 50)
    window = server.page(105.0)
    assert window is not None
    assert (window.begin_s, window.at_s, window.verdict) == (100.0, 105.0, WindowVerdict.MET)
    assert (window.step_micros, window.latency_micros) == (15_000, 19_000)
    assert window.percentile == "90"
    assert window.requests_milli == 10_000
    assert window.ratio == pytest.approx(0.38)


@pytest.mark.parametrize(
    ("latency_ms", "verdict"),
    [
        (106, WindowVerdict.MET),
        (105, WindowVerdict.AT_RISK),
        (95, WindowVerdict.AT_RISK),
        (94, WindowVerdict.VIOLATED),
    ],
)
def test_the_percentile_is_set_against_the_objective(
    latency_ms: int, verdict: WindowVerdict
) -> None:
    server = Server(latency_ms=latency_ms)  # all of 100 requests between 50 and 100 ms: p90 = 95
    server.page(0.0)
    server.answer(0.08, 100)
    window = server.page(5.0)
    assert window is not None
    assert window.verdict is verdict


def test_pages_within_a_window_do_not_end_it_and_a_little_early_does() -> None:
    server = Server(seconds=5)
    server.page(0.0)
    ended = []
    for at in (1.0, 2.0, 4.4, 4.6, 9.0, 9.2):
        server.answer(0.01, 1)
        ended.append(server.page(at) is not None)
    assert ended == [False, False, False, True, False, True]


def test_windows_are_never_shorter_than_two_seconds() -> None:
    server = Server(seconds=1)
    server.page(0.0)
    server.answer(0.01, 1)
    assert server.page(1.0) is None
    assert server.page(2.0) is not None


def test_without_a_request_there_is_no_verdict() -> None:
    server = Server()
    server.page(0.0)
    assert server.page(5.0) is None
    server.answer(0.01, 1)
    assert server.page(10.0) is not None


def test_a_restart_and_a_gap_begin_again() -> None:
    server = Server()
    server.answer(0.01, 100)
    server.page(0.0)
    server.counts = [1, 1, 1, 1, 1]
    assert server.page(5.0) is None
    server.answer(0.01, 1)
    assert server.page(10.0) is not None
    server.answer(0.01, 1)
    assert server.page(200.0) is None


def test_a_clock_that_goes_back_begins_again() -> None:
    server = Server()
    for at in (100.0, 50.0):
        server.answer(0.01, 1)
        assert server.page(at) is None
    server.answer(0.01, 1)
    window = server.page(55.0)
    assert window is not None
    assert window.begin_s == 50.0


def test_a_cut_begins_with_the_first_page_after_it() -> None:
    server = Server()
    server.page(0.0)
    server.answer(0.1, 50)
    server.windows.cut(SERVER, 3.0)
    assert server.page(2.9) is None
    server.answer(0.1, 50)
    assert server.page(3.1) is None
    server.answer(0.01, 50)
    window = server.page(8.1)
    assert window is not None
    assert (window.begin_s, window.verdict) == (3.1, WindowVerdict.MET)


def test_above_the_last_bucket_is_a_violation_only_beyond_doubt() -> None:
    sure, unsure = Server(latency_ms=100), Server(latency_ms=150)
    for server in (sure, unsure):
        server.page(0.0)
        server.answer(0.3, 50)
    window, other = sure.page(5.0), unsure.page(5.0)
    assert window is not None
    assert window.verdict is WindowVerdict.VIOLATED
    assert other is not None
    assert other.verdict is WindowVerdict.NO_DATA
    assert unsure.windows.problems[SERVER] == (
        "the last bucket ends at 0.1 s, below the objective of 0.15 s; "
        "give the histogram buckets above it"
    )
    unsure.answer(0.01, 5000)
    unsure.page(10.0)
    assert not unsure.windows.problems


class Steps:
    """Windows of steps that a test gives."""

    def __init__(self) -> None:
        self.asked: list[ContainerKey] = []
        self.cuts: list[ContainerKey] = []

    def next(self, subjects: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        self.asked = [one.key for one in subjects]
        return tuple(
            ObjectiveWindow(key=one.key, begin_s=now - 1, at_s=now, ratio=0.5) for one in subjects
        )

    def cut(self, key: ContainerKey, now: float) -> None:
        self.cuts.append(key)


def test_latency_where_it_was_promised_and_steps_elsewhere() -> None:
    steps, hurried = Steps(), list[ContainerKey]()
    server = Server()
    both = tuple(
        GuardSubject(key=k, max_slowdown_percent=150, solo_micros=10) for k in (SERVER, TRAINER)
    )
    windows = TenantWindows(steps, lambda: {SERVER: server.slo}, hurried.append)
    as_protocol: Windows = windows
    server.windows = windows.latency
    assert [one.key for one in as_protocol.next(both, 0.0)] == [TRAINER]
    server.windows.take(SERVER, a_page(server, 0.0))
    server.answer(0.01, 10)
    server.windows.take(SERVER, a_page(server, 5.0))
    assert [one.key for one in windows.next(both, 5.0)] == [SERVER, TRAINER]
    assert [one.key for one in windows.next(both, 5.25)] == [TRAINER], "a window is told once"
    windows.cut(SERVER, 6.0)
    windows.cut(TRAINER, 6.0)
    assert (hurried, steps.cuts) == ([SERVER], [TRAINER])
    windows.next((), 7.0)
    server.windows.take(SERVER, a_page(server, 7.0))
    server.windows.take(SERVER, a_page(server, 12.0))
    assert [one.key for one in windows.next(both[:1], 12.0)] == [], "forgotten, so begun again"


def a_page(server: Server, at_s: float) -> HistogramPage:
    counts = tuple(float(count) for count in server.counts)
    made = LatencyHistogram(bounds=BOUNDS, cumulative=counts, sum_seconds=1.0, requests=counts[-1])
    return HistogramPage(at_s=at_s, histogram=made)
