# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When a stopped aggressor counts as having let its victim go."""

from __future__ import annotations

from itertools import accumulate

import pytest

from bench.gpu.freezing import freeze_figures


def ends_s(durations_ms: list[float]) -> list[float]:
    return [total / 1000 for total in accumulate(durations_ms)]


def test_the_last_slow_iteration_after_the_stop_is_the_latency() -> None:
    durations = [20.0] * 50 + [20.0] * 3 + [10.0] * 90
    found = freeze_figures(durations, ends_s(durations), 1.0)
    assert found["before_ms"] == pytest.approx(20.0)
    assert found["after_ms"] == pytest.approx(10.0)
    assert found["latency_ms"] == pytest.approx(60.0)


def test_a_victim_that_stays_slow_has_no_latency() -> None:
    durations = [20.0] * 100
    found = freeze_figures(durations, ends_s(durations), 1.0)
    assert found["after_ms"] == pytest.approx(20.0)
    assert found["latency_ms"] is None


def test_too_few_iterations_say_nothing() -> None:
    durations = [300.0] * 6
    assert set(freeze_figures(durations, ends_s(durations), 1.0).values()) == {None}
