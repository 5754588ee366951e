# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.app.fit_schedule import FitState
from ullage.app.times import BACKGROUND_BACKOFF_MOST_S
from ullage.process.doubling import doubled_s


@pytest.mark.parametrize(
    ("times", "wait_s"), [(0, 0.5), (1, 1.0), (5, 16.0), (6, 20.0), (5_000, 20.0)]
)
def test_a_wait_doubles_up_to_its_limit(times: int, wait_s: float) -> None:
    assert doubled_s(0.5, times, 20.0) == wait_s


def test_lessons_may_fail_for_weeks() -> None:
    lessons = FitState(accelerator="a").lessons
    for _ in range(1_100):
        lessons.failed("late", 0.0)
    assert lessons.until == BACKGROUND_BACKOFF_MOST_S
