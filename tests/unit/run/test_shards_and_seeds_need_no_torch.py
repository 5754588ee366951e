# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How many shards a state has, and how its parts are seeded, is known before torch is."""

from __future__ import annotations

import pytest

from ullage_run.orders import ENV_SHARDS, MAX_DIGITS
from ullage_run.torch_state import _seed_of, _shards


@pytest.mark.parametrize("said", ["1", "12", "9" * MAX_DIGITS])
def test_the_number_of_shards_is_that_of_the_environment(said: str) -> None:
    assert _shards({ENV_SHARDS: said}) == int(said)


@pytest.mark.parametrize(
    "said", ["", "0", "00", "-1", "1.5", "two", "²", "٣", "9" * (MAX_DIGITS + 1)]
)
def test_what_is_no_number_of_shards_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="is no number of shards"):
        _shards({ENV_SHARDS: said})


def test_without_the_environment_shards_are_to_be_passed() -> None:
    with pytest.raises(ValueError, match="or pass shards="):
        _shards({})


def test_every_part_of_every_step_has_a_seed_of_its_own() -> None:
    seeds = {
        _seed_of(seed, step, part) for seed in (0, 7) for step in range(50) for part in range(8)
    }
    assert len(seeds) == 2 * 50 * 8
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert _seed_of(7, 3, 2) == _seed_of(7, 3, 2)
    assert 0 <= _seed_of(2**63, 2**40, 7) < 2**64
