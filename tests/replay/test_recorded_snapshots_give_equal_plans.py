# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What was decided about recorded snapshots is decided again, byte for byte."""

from __future__ import annotations

import pytest

from replay.recording import Recording, decided, recordings
from ullage.scheduling.assignment.cycle_cache import CycleCache

RECORDINGS = recordings()
LEAST = 50
"""Fewer recordings would leave parts of a decision without a net."""


def test_there_are_enough_recordings_of_every_source() -> None:
    assert len(RECORDINGS) >= LEAST
    sources = {one.name.partition("-")[0] for one in RECORDINGS}
    assert sources == {"cluster", "fill", "simulated", "stress"}


@pytest.mark.slow
def test_what_one_cycle_leaves_for_the_next_changes_no_plan() -> None:
    cache = CycleCache()
    for _ in range(2):
        for recording in RECORDINGS:
            now = decided(recording.inputs(), cache)
            assert now == recording.plan(), recording.name


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: str(one.name))
def test_a_recorded_snapshot_gives_an_equal_plan(recording: Recording) -> None:
    before, now = recording.plan(), decided(recording.inputs())
    assert now.keys() == before.keys()
    for part in before:
        assert now[part] == before[part], part
