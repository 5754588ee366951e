# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every transition between stages, with notice, without, in part and in bulk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.engines.tiers.decide import decide
from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.records import (
    OnNotice,
    Situation,
    StateSource,
    TierMember,
    TierSettings,
    TierWhy,
)
from ullage.engines.tiers.stages import TierStage

WAY = 200e6 / 8
LINK = Link(
    state_bytes=50_000_000,
    dirty_bytes_per_step=50_000_000,
    host_bytes_per_s=WAY,
    state_store_bytes_per_s=WAY,
)
SMALL = TierSettings(shards=4, blocks=12)
STATE_STORE = TierMember(name="keep", node="n-keep", pool="on-demand", reliable=True)


def spot(number: int, **fields: object) -> TierMember:
    pool = "ab"[number % 2]
    made = TierMember(name=f"s{number}", node=f"n{number}", pool=pool, hazard_per_hour=0.1 * number)
    return replace(made, **fields)  # type: ignore[arg-type]


def begin(
    first_members: tuple[TierMember, ...], settings: TierSettings = SMALL, **fields: object
) -> Situation:
    """A job whose first maps hold and whose copy is one step behind."""
    first = Situation(members=first_members, link=LINK, notice_s=30.0)
    maps = decide(first, settings).maps
    seen = replace(first, maps=maps, since_s=1000.0, step=10, step_s=2.5, committed=9)
    return replace(seen, **fields)  # type: ignore[arg-type]


THREE = (STATE_STORE, spot(1), spot(2), spot(3))


def test_the_first_maps_put_owners_on_spot_and_the_copy_on_the_reliable_one() -> None:
    found = decide(Situation(members=THREE, link=LINK, notice_s=30.0), SMALL)
    assert found.reason is TierWhy.STARTED
    assert found.chosen.stage is TierStage.BACKED
    assert set(found.maps.owners) == {"s1", "s2"}  # half, two pools, least hazard
    assert set(found.maps.backups) == {"keep"}
    assert set(found.maps.workers) == {"keep", "s1", "s2", "s3"}
    assert found.runner_up is not None
    assert found.runner_up.stage is TierStage.RELIABLE
    assert "3:1" in found.text


def test_nothing_new_changes_nothing() -> None:
    seen = begin(THREE)
    found = decide(seen, SMALL)
    assert found.reason is TierWhy.KEPT
    assert found.maps is seen.maps


def test_a_notice_flushes_hands_over_and_loses_no_step() -> None:
    seen = begin(THREE)
    warned = (STATE_STORE, replace(spot(1), notice_left_s=28.0), spot(2), spot(3))
    found = decide(replace(seen, members=warned), SMALL)
    assert found.reason is TierWhy.FLUSHED
    assert found.lost_steps == 0
    assert "s1 under notice" in found.text
    assert "s1" not in {*found.maps.owners, *found.maps.workers}
    assert found.maps.epoch == 2
    again = replace(seen, members=warned, maps=found.maps)
    assert decide(again, SMALL).maps is found.maps  # the same notice twice does nothing


def test_a_notice_too_short_for_the_flush_rolls_back_like_a_loss() -> None:
    seen = begin(THREE)
    warned = (STATE_STORE, replace(spot(1), notice_left_s=0.5), spot(2), spot(3))
    found = decide(replace(seen, members=warned), SMALL)
    assert found.reason is TierWhy.ROLLED_BACK
    assert (found.source, found.lost_steps) == (StateSource.STATE_STORE, 1)


def test_owners_under_notice_flush_at_once_and_divide_the_way() -> None:
    seen = begin(THREE)
    hurried = [replace(spot(number), notice_left_s=1.5) for number in (1, 2)]
    one = decide(replace(seen, members=(STATE_STORE, hurried[0], spot(2), spot(3))), SMALL)
    assert one.reason is TierWhy.FLUSHED  # half of the state takes a second
    both = decide(replace(seen, members=(STATE_STORE, *hurried, spot(3))), SMALL)
    assert (both.reason, both.source) == (TierWhy.ALL_OWNERS_LOST, StateSource.STATE_STORE)


def test_a_lost_owner_rolls_all_back_to_the_cut() -> None:
    found = decide(begin(THREE, members=(STATE_STORE, spot(2), spot(3))), SMALL)
    assert found.reason is TierWhy.ROLLED_BACK
    assert found.lost_steps == 1
    assert "s1 lost" in found.text
    assert "step 9" in found.text


def test_a_lost_worker_costs_no_step() -> None:
    found = decide(begin(THREE, members=(STATE_STORE, spot(1), spot(2))), SMALL)
    assert found.reason is TierWhy.MEMBERS_CHANGED
    assert (found.source, found.lost_steps) == (StateSource.NONE, 0)


def test_when_all_owners_are_lost_the_copy_owns_at_once() -> None:
    seen = begin((*THREE, spot(4)), since_s=0.0)
    assert seen.maps is not None
    rest = tuple(one for one in seen.members if one.name not in seen.maps.owners)
    found = decide(replace(seen, members=rest), SMALL)
    assert found.reason is TierWhy.ALL_OWNERS_LOST
    assert found.chosen.stage is TierStage.RELIABLE
    assert set(found.maps.owners) == {"keep"}
    assert found.lost_steps == 1


def test_a_bulk_loss_leaves_the_reliable_member_with_everything() -> None:
    found = decide(begin(THREE, members=(STATE_STORE,)), SMALL)
    assert found.chosen.stage is TierStage.RELIABLE
    assert set(found.maps.workers) == {"keep"}


def test_without_a_cut_a_lost_owner_means_the_last_checkpoint() -> None:
    seen = begin(THREE, members=(STATE_STORE, spot(2), spot(3)), committed=None)
    found = decide(seen, SMALL)
    assert found.reason is TierWhy.STATE_LOST
    assert found.source is StateSource.CHECKPOINT
    assert found.lost_steps is None


def test_a_lost_keeper_is_replaced_and_the_job_runs_on() -> None:
    both = (
        STATE_STORE,
        replace(STATE_STORE, name="keep2", node="n-keep2"),
        spot(1),
        spot(2),
        spot(3),
    )
    seen = begin(both)
    found = decide(replace(seen, members=both[1:]), SMALL)
    assert found.reason is TierWhy.STATE_STORE_MOVED
    assert set(found.maps.backups) == {"keep2"}
    alone = decide(begin(THREE, members=THREE[1:]), SMALL)
    assert alone.maps.backups == ()
    assert "reliableReplicas" in alone.text


def test_from_stage_one_to_two_state_is_copied_and_old_owners_keep_the_copy() -> None:
    seen = begin((STATE_STORE, spot(1)))
    assert seen.maps is not None
    assert seen.maps.stage is TierStage.RELIABLE
    found = decide(replace(seen, members=THREE), SMALL)
    assert found.reason is TierWhy.STAGE_CHANGED
    assert set(found.maps.backups) == {"keep"}
    assert set(found.maps.owners) == {"s1", "s2"}
    young = decide(replace(seen, members=THREE, since_s=10.0), SMALL)
    assert young.chosen.stage is TierStage.RELIABLE
    assert young.runner_up is not None
    assert young.runner_up.stage is TierStage.BACKED


def test_stage_three_takes_work_off_the_reliable_and_two_gives_it_back() -> None:
    many = (STATE_STORE, *(spot(number) for number in range(1, 20)))
    settings = TierSettings(shards=20, blocks=40)
    seen = begin(THREE, settings)
    up = decide(replace(seen, members=many), settings)
    assert up.chosen.stage is TierStage.TRANSIENT
    assert "keep" not in up.maps.workers
    assert up.chosen.owners == 10
    assert up.chosen.workers == 19
    down = decide(replace(seen, maps=up.maps, members=many[:6]), settings)
    assert down.source is StateSource.STATE_STORE  # owners went with the rest
    assert down.chosen.stage is TierStage.BACKED
    assert "keep" in down.maps.workers


def test_from_stage_two_to_one_owners_hand_over_without_loss() -> None:
    two = tuple(replace(STATE_STORE, name=f"keep{n}", node=f"k{n}") for n in range(4))
    seen = begin((*two[:1], spot(1), spot(2), spot(3)))
    found = decide(replace(seen, members=(*two, spot(1), spot(2))), SMALL)
    assert found.reason is TierWhy.STAGE_CHANGED
    assert found.chosen.stage is TierStage.RELIABLE
    assert found.lost_steps == 0
    assert set(found.maps.owners) == {one.name for one in two}


def test_a_newcomer_computes() -> None:
    found = decide(begin(THREE, members=(*THREE, spot(4))), SMALL)
    assert found.reason is TierWhy.MEMBERS_CHANGED
    assert "s4" in found.maps.workers


def test_data_goes_back_to_who_had_it() -> None:
    seen = begin(THREE)
    assert seen.maps is not None
    more = decide(replace(seen, members=(*THREE, spot(4))), SMALL)
    back = decide(replace(seen, maps=more.maps), SMALL)
    assert back.maps.workers == seen.maps.workers


def test_an_interrupted_transition_is_decided_again_under_an_epoch_no_one_knows() -> None:
    seen = begin(THREE)
    more = replace(seen, members=(*THREE, spot(4)))
    tried = decide(more, SMALL).maps.epoch
    # the newcomer is gone before all had the maps: some have heard of them
    found = decide(replace(seen, heard=tried), SMALL)
    assert found.maps.epoch == tried + 1
    assert seen.maps is not None
    assert found.maps.owners == seen.maps.owners
    lost = replace(seen, heard=tried, members=(STATE_STORE, spot(2), spot(3)))
    assert decide(lost, SMALL).source is StateSource.STATE_STORE
    assert decide(lost, SMALL).maps.epoch == tried + 1


def test_notices_can_be_ignored_or_answered_with_a_checkpoint() -> None:
    seen = begin(THREE)
    warned = replace(
        seen, members=(STATE_STORE, replace(spot(1), notice_left_s=28.0), spot(2), spot(3))
    )
    assert decide(warned, replace(SMALL, on_notice=OnNotice.IGNORE)).reason is TierWhy.KEPT
    found = decide(warned, replace(SMALL, on_notice=OnNotice.CHECKPOINT))
    assert (found.reason, found.source) == (TierWhy.FLUSHED, StateSource.CHECKPOINT)


def test_when_everyone_is_told_to_go_all_is_saved() -> None:
    seen = begin(THREE)
    warned = tuple(replace(one, notice_left_s=28.0) for one in THREE)
    found = decide(replace(seen, members=warned), SMALL)
    assert "s1, s2 under notice" in found.text
    assert found.maps is seen.maps


def test_a_reliable_owner_that_drains_hands_over_itself() -> None:
    other = replace(STATE_STORE, name="other", node="n-other")
    seen = begin((STATE_STORE, other))
    going = replace(STATE_STORE, notice_left_s=120.0)
    found = decide(replace(seen, members=(going, other)), SMALL)
    assert set(found.maps.owners) == {"other"}
    assert found.lost_steps == 0


def test_more_members_own_where_a_notice_asks_for_it() -> None:
    slow = replace(LINK, host_bytes_per_s=WAY / 8)  # 16 s from one, 4 s from four
    seen = Situation(
        members=(STATE_STORE, *(spot(n) for n in range(1, 5))), link=slow, notice_s=10.0
    )
    found = decide(seen, SMALL)
    assert found.chosen.owners == 4
    assert found.chosen.flush.feasible
    tight = decide(replace(seen, notice_s=7.0), SMALL)
    assert not tight.chosen.flush.feasible
    assert "half of the notice is 3.5 s" in tight.text


def test_a_copy_in_one_process_is_filled_by_one_way() -> None:
    """However many members stay: only one machine takes the flush, and more of them do not help."""
    slow = replace(LINK, state_bytes=1_000_000_000, dirty_bytes_per_step=1_000_000_000)
    stay = (STATE_STORE, replace(STATE_STORE, name="keep2"))
    members = (*stay, *(spot(number) for number in range(1, 7)))
    seen = Situation(members=members, link=slow, notice_s=60.0)
    each, one = decide(seen, SMALL).chosen.flush, decide(seen, replace(SMALL, state_stores=1))
    assert one.chosen.flush.flush_s == pytest.approx(2 * each.flush_s)
    assert each.feasible
    assert not one.chosen.flush.feasible
    assert "reliableReplicas" not in one.text


def test_a_pinned_stage_is_kept_as_far_as_members_allow() -> None:
    one = replace(SMALL, pinned=TierStage.RELIABLE)
    assert decide(Situation(members=THREE, link=LINK), one).chosen.stage is TierStage.RELIABLE
    three = replace(SMALL, pinned=TierStage.TRANSIENT)
    assert (
        decide(Situation(members=(STATE_STORE,), link=LINK), three).chosen.stage
        is TierStage.RELIABLE
    )


def test_a_situation_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="without members"):
        Situation(members=(), link=LINK)
    with pytest.raises(ValueError, match="one name"):
        Situation(members=(STATE_STORE, STATE_STORE), link=LINK)
    with pytest.raises(ValueError, match="after step"):
        Situation(members=(STATE_STORE,), link=LINK, step=3, committed=4)


@pytest.mark.parametrize(
    "wrong", [{"shards": 0}, {"blocks": 0}, {"owner_part": 0.0}, {"owner_part": 1.5}]
)
def test_settings_that_divide_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least 1 shard and block"):
        replace(SMALL, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [0.1, 1.0])
def test_one_shard_one_block_and_any_part_of_owners_will_do(part: float) -> None:
    assert TierSettings(shards=1, blocks=1, owner_part=part).owner_part == part
