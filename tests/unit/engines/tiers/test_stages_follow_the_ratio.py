# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stages change beyond the band, after a rest, and at once when all owners are gone."""

from __future__ import annotations

import itertools

import pytest

from ullage.engines.tiers.stages import (
    Hold,
    StageRule,
    TierStage,
    nearest_other,
    ratio,
    settle,
    target,
)

RULE = StageRule()


@pytest.mark.parametrize(
    ("transient", "reliable", "stage"),
    [
        (0, 1, TierStage.RELIABLE),
        (1, 1, TierStage.RELIABLE),
        (3, 2, TierStage.BACKED),
        (60, 4, TierStage.BACKED),  # 15:1 of the paper
        (63, 1, TierStage.TRANSIENT),  # 63:1 of the paper
        (5, 0, TierStage.TRANSIENT),
    ],
)
def test_the_ratio_names_the_stage(transient: int, reliable: int, stage: TierStage) -> None:
    assert target(ratio(transient, reliable), RULE) is stage


@pytest.mark.parametrize(
    ("q", "current", "stage", "hold"),
    [
        (1.1, TierStage.RELIABLE, TierStage.RELIABLE, Hold.BAND),
        (1.3, TierStage.RELIABLE, TierStage.BACKED, Hold.FREE),
        (0.9, TierStage.BACKED, TierStage.BACKED, Hold.BAND),
        (0.7, TierStage.BACKED, TierStage.RELIABLE, Hold.FREE),
        (17.0, TierStage.BACKED, TierStage.BACKED, Hold.BAND),
        (19.0, TierStage.BACKED, TierStage.TRANSIENT, Hold.FREE),
        (13.0, TierStage.TRANSIENT, TierStage.TRANSIENT, Hold.BAND),
        (11.0, TierStage.TRANSIENT, TierStage.BACKED, Hold.FREE),
        (40.0, TierStage.RELIABLE, TierStage.TRANSIENT, Hold.FREE),
        (
            16.0,
            TierStage.RELIABLE,
            TierStage.BACKED,
            Hold.BAND,
        ),  # one threshold clear, the other not
        (0.0, TierStage.TRANSIENT, TierStage.RELIABLE, Hold.FREE),
    ],
)
def test_a_threshold_is_passed_by_more_than_the_band(
    q: float, current: TierStage, stage: TierStage, hold: Hold
) -> None:
    assert settle(q, current, since_s=301, owner_lost=False, rule=RULE) == (stage, hold)


def test_a_stage_rests_unless_an_owner_was_lost() -> None:
    young = settle(5.0, TierStage.RELIABLE, since_s=299, owner_lost=False, rule=RULE)
    assert young == (TierStage.RELIABLE, Hold.REST)
    rested = settle(5.0, TierStage.RELIABLE, since_s=RULE.rest_s, owner_lost=False, rule=RULE)
    assert rested == (TierStage.BACKED, Hold.FREE)
    lost = settle(5.0, TierStage.RELIABLE, since_s=0, owner_lost=True, rule=RULE)
    assert lost == (TierStage.BACKED, Hold.FREE)


@pytest.mark.parametrize("edge", [1.0, 15.0])
@pytest.mark.parametrize("begin", list(TierStage))
def test_nothing_flaps_inside_the_band(edge: float, begin: TierStage) -> None:
    stages = [begin]
    for q in itertools.islice(itertools.cycle([edge * 0.81, edge * 1.19]), 200):
        stage, _ = settle(q, stages[-1], since_s=1e9, owner_lost=False, rule=RULE)
        stages.append(stage)
    changes = sum(one is not two for one, two in itertools.pairwise(stages))
    assert changes <= 1


def test_the_runner_up_is_the_stage_beyond_the_nearest_threshold() -> None:
    assert nearest_other(0.5, TierStage.RELIABLE, RULE) is TierStage.BACKED
    assert nearest_other(2.0, TierStage.BACKED, RULE) is TierStage.RELIABLE
    assert nearest_other(9.0, TierStage.BACKED, RULE) is TierStage.TRANSIENT


@pytest.mark.parametrize(
    "wrong", [{"backed_above": 15.0}, {"band": 1.0}, {"rest_s": -1.0}, {"rest_s": float("nan")}]
)
def test_a_rule_that_cannot_be_followed_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="stages"):
        StageRule(**wrong)
