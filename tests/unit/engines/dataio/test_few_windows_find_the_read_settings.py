# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The climb against all settings of simulated devices."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.dataio.climb import ReadSettings, climb

REQUESTS = [1, 2, 4, 8, 16, 32, 64, 128]
SIZES = [1 << shift for shift in range(16, 25)]
Device = Callable[[ReadSettings], float]


def device(
    latency_s: float, bytes_per_s: float, iops: float = math.inf, cliff: int = 1 << 30
) -> Device:
    """Rate at settings: hidden latency, the device's bandwidth and requests, a collapse."""

    def rate(at: ReadSettings) -> float:
        stream = at.size / (latency_s + at.size / bytes_per_s)
        most = min(at.requests * stream, bytes_per_s, iops * at.size)
        return most if at.requests <= cliff else most * (cliff / at.requests) ** 2 * 0.3

    return rate


def run(
    rate: Device, noise: float = 0.0, seed: int = 0, **more: object
) -> tuple[ReadSettings, int]:
    search, windows, draw = climb(REQUESTS, SIZES, **more), 0, random.Random(seed)  # type: ignore[arg-type]
    try:
        tried = next(search)
        while True:
            windows += 1
            tried = search.send(rate(tried) * draw.gauss(1, noise))
    except StopIteration as ended:
        return ended.value, windows


DEVICES = {
    "local": device(80e-6, 3e9),
    "remote": device(2e-3, 200e6, 5000),
    "store": device(40e-3, 2.5e9, cliff=48),
    "slow store": device(100e-3, 300e6, cliff=20),
    "disk": device(8e-3, 150e6, 120),
}


@pytest.mark.parametrize("name", DEVICES)
def test_the_best_of_the_grid_is_nearly_reached(name: str) -> None:
    rate = DEVICES[name]
    best = max(rate(ReadSettings(k, b)) for k in REQUESTS for b in SIZES)
    good = 0
    for seed in range(40):
        settings_, windows = run(rate, noise=0.01, seed=seed)
        assert windows <= 12
        good += rate(settings_) >= 0.95 * best
    assert good >= 38


def test_it_ends_at_what_the_reader_needs() -> None:
    rate = DEVICES["local"]
    settings_, windows = run(rate, wanted=100e6)
    assert rate(settings_) >= 120e6 / 1.05
    assert windows <= 4


def test_known_settings_are_tried_first() -> None:
    known = ReadSettings(16, 1 << 20)
    search = climb(REQUESTS, SIZES, known=known)
    assert next(search) == known


@settings(max_examples=100)
@given(
    st.lists(st.floats(0, 1e12), min_size=20, max_size=20),
    st.integers(1, 20),
    st.sampled_from([REQUESTS, [1], [1, 2]]),
    st.sampled_from([SIZES, [4096]]),
)
def test_whatever_is_measured_it_ends_within_the_grid(
    rates: list[float], windows: int, requests: list[int], sizes: list[int]
) -> None:
    search, tries = climb(requests, sizes, windows=windows), []
    try:
        tries.append(next(search))
        while True:
            tries.append(search.send(rates[len(tries) - 1]))
    except StopIteration as ended:
        tries.append(ended.value)
    assert all(t.requests in requests and t.size in sizes for t in tries)
    assert len(tries) <= windows + 1
