# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real members of a job in tiers are killed and stopped at random; its state ends the same."""

from __future__ import annotations

import os

import pytest

from bench.tiers_strokes import strike

STROKES = int(os.environ.get("ULLAGE_STROKES", "0"))


@pytest.mark.skipif(not STROKES, reason="two seconds each: make test-stress")
@pytest.mark.timeout(600)
def test_no_stroke_loses_a_state_that_the_store_holds() -> None:
    found = strike(STROKES, seed=7)
    assert found.faults == []
    assert (found.state_lost, found.differing) == (0, 0)
    assert found.lost_steps <= 2
    assert found.strokes == STROKES
