# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cycle that follows what changed decides as one that reads everything, byte for byte."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from bench.decide_rough import Rough, Twice
from fakes.examples import examples
from ullage.scheduling.model.plan import DecideSettings

CYCLES = 12


@examples(6, many=25)
@given(st.integers(0, 1_000_000))
def test_decisions_under_churn_are_those_made_from_nothing(seed: int) -> None:
    rough, twice = Rough.drawn(random.Random(seed)), Twice()
    for cycle in range(CYCLES):
        settings = DecideSettings(epoch=rough.epoch)
        actions, same = twice.decided(rough.snapshot(), rough.world.now, settings)
        assert same, f"seed {seed}, cycle {cycle}"
        rough.go_on(actions)
