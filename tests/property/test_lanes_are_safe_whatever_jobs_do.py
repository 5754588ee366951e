# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever jobs do, no memory is promised twice and every job gets its step.

Twenty thousand events by default; ``ULLAGE_STRESS_EVENTS`` sets another number.
"""

from __future__ import annotations

import os

import pytest

from bench.lanes_events import RandomEvents

pytestmark = pytest.mark.slow

EVENTS = int(os.environ.get("ULLAGE_STRESS_EVENTS", "20000"))
PER_RUN = 250
RUNS_PER_CASE = 4
CASES = max(1, EVENTS // (PER_RUN * RUNS_PER_CASE))


@pytest.mark.parametrize("case", range(CASES))
def test_lanes_are_safe_and_serve_every_job_under_stress(case: int) -> None:
    for seed in range(case * RUNS_PER_CASE, (case + 1) * RUNS_PER_CASE):
        run = RandomEvents(seed=seed)
        run.play(PER_RUN)
        assert run.account.unsafe == 0, f"seed {seed}"
        assert run.unserved == 0, f"seed {seed}"
        assert run.account.served, f"seed {seed} ran nothing"
