# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A load is the difference of two fresh pages; what is not known is absent, never 0."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage_node.model.devices import ContainerKey
from ullage_node.telemetry.histograms import (
    COUNT_MOST,
    DEFAULT_METRIC,
    LatencyHistogram,
    read_histogram,
)
from ullage_node.telemetry.loads import Loads, late_milli
from ullage_node.telemetry.windows import HistogramPage
from ullage_node.times import BUCKET_MOST_S, LATENCY_SUM_MOST_S, LOAD_SPAN_S, PAGE_STALE_S

SERVER = ContainerKey(pod_uid="uid-1", container="main")
BOUNDS = (0.01, 0.02, 0.05, 0.1, math.inf)
SLO = LatencyObjective(latency_ms=50, percentile="90")


class Server:
    """A server that answers requests, and the loads over its pages."""

    def __init__(self) -> None:
        self.loads = Loads()
        self.restart()
        self.now = 100.0

    def restart(self) -> None:
        self.counts = [0] * len(BOUNDS)
        self.sum_seconds = 0.0

    def answer(self, seconds: float, requests: int) -> None:
        for index, bound in enumerate(BOUNDS):
            self.counts[index] += requests if seconds <= bound else 0
        self.sum_seconds += seconds * requests

    def page(self, after_s: float, requests: float | None = None) -> ObservedLoad | None:
        self.now += after_s
        made = LatencyHistogram(
            bounds=BOUNDS,
            cumulative=tuple(float(count) for count in self.counts),
            sum_seconds=self.sum_seconds,
            requests=float(self.counts[-1]) if requests is None else requests,
        )
        self.loads.take(SERVER, HistogramPage(at_s=self.now, histogram=made))
        return self.loads.of(SERVER, SLO, self.now)


def test_a_load_counts_what_was_answered_between_two_pages() -> None:
    server = Server()
    server.answer(0.09, 1000)  # long ago, and slow
    assert server.page(0.0) is None
    server.answer(0.015, 90)
    server.answer(0.08, 10)
    load = server.page(5.0)
    assert load is not None
    assert (load.seconds, load.requests_milli) == (5, 20_000)
    assert load.request_micros == round((90 * 0.015 + 10 * 0.08) / 100 * 1e6)
    assert load.latency_micros == 20_000
    assert load.late_milli == 100


def test_no_request_is_a_load_of_nothing_and_no_page_is_none() -> None:
    server = Server()
    server.page(0.0)
    idle = server.page(5.0)
    assert idle == ObservedLoad(seconds=5)
    assert server.loads.of(SERVER, SLO, server.now + PAGE_STALE_S - 1) == idle
    assert server.loads.of(SERVER, SLO, server.now + PAGE_STALE_S + 1) is None


def test_it_reaches_back_over_the_span_and_no_further() -> None:
    server = Server()
    for _ in range(8):
        server.answer(0.015, 500)
        server.page(5.0)
    server.answer(0.015, 5)
    for _ in range(3):
        load = server.page(5.0)
    assert load is not None
    assert load.seconds == LOAD_SPAN_S
    assert load.requests_milli == round(5 / 15 * 1000)


def test_a_server_that_began_anew_is_measured_anew() -> None:
    server = Server()
    server.answer(0.015, 500)
    server.page(0.0)
    server.page(5.0)
    server.restart()
    server.answer(0.015, 10)
    assert server.page(5.0) is None
    server.answer(0.015, 10)
    load = server.page(5.0)
    assert load is not None
    assert load.requests_milli == 2000


def test_pages_far_apart_are_no_load() -> None:
    server = Server()
    server.page(0.0)
    server.answer(0.015, 500)
    assert server.page(600.0) is None
    server.answer(0.015, 5)
    assert server.page(5.0) is None, "the older page still stands"
    assert server.page(15.0) is not None


def test_tokens_are_no_requests() -> None:
    server = Server()
    server.page(0.0, requests=0.0)
    server.answer(0.015, 500)
    assert server.page(5.0, requests=10.0) is None


def test_others_are_forgotten() -> None:
    server = Server()
    server.page(0.0)
    server.page(5.0)
    server.loads.keep([])
    assert server.loads.of(SERVER, SLO, server.now) is None


@pytest.mark.parametrize(
    ("limit_s", "late"), [(0.005, 1000), (0.01, 1000), (0.015, 500), (0.02, 0), (0.2, 0)]
)
def test_what_is_late_is_read_inside_the_bucket(limit_s: float, late: int) -> None:
    made = LatencyHistogram(
        bounds=BOUNDS, cumulative=(0.0, 40.0, 40.0, 40.0, 40.0), sum_seconds=1.0, requests=40.0
    )
    assert late_milli(made, limit_s) == late


@given(
    counts=st.lists(st.integers(0, 2**50), min_size=5, max_size=5),
    limit_s=st.floats(1e-6, 1e6),
)
def test_a_part_is_a_part(counts: list[int], limit_s: float) -> None:
    cumulative = tuple(float(sum(counts[: at + 1])) for at in range(5))
    made = LatencyHistogram(
        bounds=BOUNDS, cumulative=cumulative, sum_seconds=1.0, requests=cumulative[-1]
    )
    assert 0 <= late_milli(made, limit_s) <= 1000


@given(count=st.floats(0, COUNT_MOST), seconds=st.floats(0, LATENCY_SUM_MOST_S))
@example(count=1e-300, seconds=1e12)
@example(count=1e-9, seconds=1e12)
@example(count=5e-324, seconds=0.0)
def test_any_page_that_is_read_makes_a_load_that_the_api_takes(
    count: float, seconds: float
) -> None:
    loads = Loads()
    for at_s, ended, took in ((0.0, 0.0, 0.0), (10.0, count, seconds)):
        page = read_histogram(
            [
                f'{DEFAULT_METRIC}_bucket{{le="0.1"}} {ended!r}',
                f'{DEFAULT_METRIC}_bucket{{le="+Inf"}} {ended!r}',
                f"{DEFAULT_METRIC}_sum {took!r}",
            ],
            DEFAULT_METRIC,
        )
        loads.take(SERVER, HistogramPage(at_s=at_s, histogram=page))
    load = loads.of(SERVER, SLO, 10.0)
    assert load is not None
    figures = json.loads(json.dumps(load.to_wire(), allow_nan=False))
    assert all(0 <= figure <= 2**53 for figure in figures.values())
    assert load.request_micros <= BUCKET_MOST_S * 1e6
