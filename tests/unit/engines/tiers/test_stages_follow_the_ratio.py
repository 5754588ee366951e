# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stages change beyond the band, after a rest, and at once when all owners are gone."""

from __future__ import annotations

import itertools

import pytest

from ullage.engines.tiers.stages import Hold, Rule, Stage, nearest_other, ratio, settle, target

RULE = Rule()


@pytest.mark.parametrize(
    ("transient", "reliable", "stage"),
    [
        (0, 1, Stage.RELIABLE),
        (1, 1, Stage.RELIABLE),
        (3, 2, Stage.BACKED),
        (60, 4, Stage.BACKED),  # 15:1 of the paper
        (63, 1, Stage.TRANSIENT),  # 63:1 of the paper
        (5, 0, Stage.TRANSIENT),
    ],
)
def test_the_ratio_names_the_stage(transient: int, reliable: int, stage: Stage) -> None:
    assert target(ratio(transient, reliable), RULE) is stage


@pytest.mark.parametrize(
    ("q", "current", "stage", "hold"),
    [
        (1.1, Stage.RELIABLE, Stage.RELIABLE, Hold.BAND),
        (1.3, Stage.RELIABLE, Stage.BACKED, Hold.FREE),
        (0.9, Stage.BACKED, Stage.BACKED, Hold.BAND),
        (0.7, Stage.BACKED, Stage.RELIABLE, Hold.FREE),
        (17.0, Stage.BACKED, Stage.BACKED, Hold.BAND),
        (19.0, Stage.BACKED, Stage.TRANSIENT, Hold.FREE),
        (13.0, Stage.TRANSIENT, Stage.TRANSIENT, Hold.BAND),
        (11.0, Stage.TRANSIENT, Stage.BACKED, Hold.FREE),
        (40.0, Stage.RELIABLE, Stage.TRANSIENT, Hold.FREE),
        (16.0, Stage.RELIABLE, Stage.BACKED, Hold.BAND),  # one threshold clear, the other not
        (0.0, Stage.TRANSIENT, Stage.RELIABLE, Hold.FREE),
    ],
)
def test_a_threshold_is_passed_by_more_than_the_band(
    q: float, current: Stage, stage: Stage, hold: Hold
) -> None:
    assert settle(q, current, since_s=301, owner_lost=False, rule=RULE) == (stage, hold)


def test_a_stage_rests_unless_an_owner_was_lost() -> None:
    young = settle(5.0, Stage.RELIABLE, since_s=299, owner_lost=False, rule=RULE)
    assert young == (Stage.RELIABLE, Hold.REST)
    rested = settle(5.0, Stage.RELIABLE, since_s=RULE.rest_s, owner_lost=False, rule=RULE)
    assert rested == (Stage.BACKED, Hold.FREE)
    lost = settle(5.0, Stage.RELIABLE, since_s=0, owner_lost=True, rule=RULE)
    assert lost == (Stage.BACKED, Hold.FREE)


@pytest.mark.parametrize("edge", [1.0, 15.0])
@pytest.mark.parametrize("begin", list(Stage))
def test_nothing_flaps_inside_the_band(edge: float, begin: Stage) -> None:
    stages = [begin]
    for q in itertools.islice(itertools.cycle([edge * 0.81, edge * 1.19]), 200):
        stage, _ = settle(q, stages[-1], since_s=1e9, owner_lost=False, rule=RULE)
        stages.append(stage)
    changes = sum(one is not two for one, two in itertools.pairwise(stages))
    assert changes <= 1


def test_the_runner_up_is_the_stage_beyond_the_nearest_threshold() -> None:
    assert nearest_other(0.5, Stage.RELIABLE, RULE) is Stage.BACKED
    assert nearest_other(2.0, Stage.BACKED, RULE) is Stage.RELIABLE
    assert nearest_other(9.0, Stage.BACKED, RULE) is Stage.TRANSIENT


@pytest.mark.parametrize(
    "wrong", [{"backed_above": 15.0}, {"band": 1.0}, {"rest_s": -1.0}, {"rest_s": float("nan")}]
)
def test_a_rule_that_cannot_be_followed_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="stages"):
        Rule(**wrong)
