# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What was decided about recorded snapshots is decided again, byte for byte."""

from __future__ import annotations

import pytest

from replay.recording import Recording, decided, recordings

RECORDINGS = recordings()
LEAST = 50
"""Fewer recordings would leave parts of a decision without a net."""


def test_there_are_enough_recordings_of_every_source() -> None:
    assert len(RECORDINGS) >= LEAST
    sources = {one.name.partition("-")[0] for one in RECORDINGS}
    assert sources == {"cluster", "fill", "simulated", "stress"}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: str(one.name))
def test_a_recorded_snapshot_gives_an_equal_plan(recording: Recording) -> None:
    before, now = recording.plan(), decided(recording.inputs())
    assert now.keys() == before.keys()
    for part in before:
        assert now[part] == before[part], part
