# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The bench of tiers: a fair script of losses, a model that owners cannot change, honest bars."""

from __future__ import annotations

import numpy as np
import pytest

from bench.report import missed
from bench.spot_trace import Kind
from bench.tiers import PHASES, RESTART_S, script
from bench.tiers_judge import BARS, Arms, judged
from bench.tiers_member import BATCH, FEATURES, SHARDS, STATE_BYTES, Shard, sample
from bench.tiers_records import SETTINGS, SPOTS, Outcome


def test_losses_fall_into_all_phases_of_an_interval() -> None:
    first, second, third = script(60.0)
    assert first.at_s == pytest.approx(PHASES[0] * 60)
    assert (second.at_s - first.at_s - RESTART_S) % 60 == pytest.approx(PHASES[1] * 60)
    assert third.at_s - second.at_s - RESTART_S == pytest.approx(PHASES[2] * 60)
    assert sum(PHASES) / len(PHASES) == pytest.approx(0.5)
    assert third.what == "all"


def test_the_state_is_as_large_as_said_and_divided_among_shards() -> None:
    assert SHARDS * Shard(0).values.nbytes == pytest.approx(STATE_BYTES, rel=1e-5)
    features, labels = sample(3)
    assert features.max() < SHARDS * FEATURES
    found = [Shard(number).mine(features)[0].size for number in range(SHARDS)]
    assert sum(found) == features.size
    assert 0.1 < labels.mean() < 0.9
    again = sample(3)
    assert (features == again[0]).all()


def test_a_step_changes_the_whole_momentum_and_the_logits_of_its_samples() -> None:
    shard = Shard(0)
    assert not shard.logits(1).any()
    shard.apply(1, np.ones(BATCH, np.float32))
    before = shard.values.copy()
    shard.apply(2, np.zeros(BATCH, np.float32))
    touched = before[1] != 0
    assert (shard.values[1][touched] != before[1][touched]).all()
    assert shard.logits(1).any()


def test_half_or_more_of_the_transient_members_own() -> None:
    assert 0.5 <= SETTINGS.owner_part < 2 / len(SPOTS)


def test_what_is_not_measured_is_a_missed_bar() -> None:
    met = {
        "lost_steps_notice": 0,
        "lost_steps_kill": 2,
        "recovery_s": 2.9,
        "overhead": 0.01,
        "lost_vs_checkpoint": 5.0,
        "loss_equal": True,
    }
    assert missed(met, BARS) == []
    assert missed(met | {"recovery_s": None}, BARS) == ["recovery_s"]
    assert missed(met | {"loss_equal": False, "lost_steps_notice": 1}, BARS) == [
        "lost_steps_notice",
        "loss_equal",
    ]


def outcome(**what: object) -> Outcome:
    """An arm of ten steps of two seconds."""
    usual = {"losses": dict.fromkeys(range(10), 0.5), "step_s": [2.0] * 9, "wall_s": 20.0}
    return Outcome(**(usual | what))  # type: ignore[arg-type]


def test_losses_of_the_replayed_trace_count_as_much_as_those_of_the_script() -> None:
    lost = {"lost_steps": [1], "recovery_s": [2.0], "wall_s": 25.0}
    arms = Arms(
        plain=[outcome()],
        copied=[outcome()],
        notice=outcome(),
        killed=outcome(**lost),
        saved=outcome(lost_steps=[15], recovery_s=[2.0], wall_s=60.0),
        long=outcome(),
        replayed=outcome(
            told=[Kind.NOTICE, Kind.KILL],
            lost_to={Kind.NOTICE: [1], Kind.KILL: [3]},
            recovery_s=[4.0],
        ),
    )
    figures, rows = judged(arms, 2.0, 60.0)
    assert missed(figures, BARS) == ["lost_steps_notice", "lost_steps_kill", "recovery_s"]
    assert (figures["replayed_notices"], figures["replayed_kills"]) == (1, 1)
    assert any("1 notices, 1 kills" in row.what for row in rows)
    arms.replayed.losses[3] = 0.7  # type: ignore[union-attr]
    assert judged(arms, 2.0, 60.0)[0]["loss_equal"] is False
