# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Observations reach the profiles once, in any order, over restarts; garbage teaches nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import NOW, a_gpu_node, a_job, a_profile, a_snapshot
from fakes.deciding import decided
from ullage.api.observations import Fingerprint, Observation, ObservedPartner
from ullage.api.reasons import Reason
from ullage.cluster.codecs.profile import profile_as_stored
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.profile import ProfileRecord, SoloEntry, StepRow
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.engines.admission.query import Account
from ullage.engines.admission.records import Partner
from ullage.scheduling.learning.loop import ProfileUpdates, profiles_to_write
from ullage.scheduling.learning.merge import MOST_ROWS, kept
from ullage.scheduling.learning.sift import Dropped
from ullage.scheduling.model.plan import CreateProfile, SetProfile
from ullage.scheduling.prediction.rows import class_profiles, rows_of, share_curve
from ullage.scheduling.times import MIXTURE_HALF_LIFE_S, PROFILE_WRITE_S

START = int(NOW) - 5_000
CLASS = "resnet"


def row(number: int = 0, **changes: Any) -> Observation:
    """Alone on the whole device, 10 ms a step."""
    return replace(
        Observation(
            id=f"node-1/{number}",
            workload_class=CLASS,
            namespace="default",
            accelerator="emulated",
            percent=100,
            step_micros=10_000,
            solo_step_micros=10_000,
            at_s=START + number,
            family="example/resnet",
        ),
        **changes,
    )


def beside(number: int, *klasses: str, step: int = 15_000, **changes: Any) -> Observation:
    partners = tuple(
        ObservedPartner(workload_class=workload_class, percent=50) for workload_class in klasses
    )
    return row(number, percent=50, partners=partners, step_micros=step, **changes)


def world(*seen: Observation, profile: ProfileRecord | None = None) -> Snapshot:
    node = replace(a_gpu_node(), observations=seen)
    return a_snapshot(node, a_job(), *([profile] if profile else []))


def mine(**changes: Any) -> ProfileRecord:
    return replace(
        a_profile(profile_name(CLASS), workload_class=CLASS), uid="uid-profile", **changes
    )


def after(lessons: ProfileUpdates, profile: ProfileRecord) -> ProfileRecord:
    """The profile once the writes have been carried out."""
    for action in lessons.actions:
        assert isinstance(action, SetProfile)
        profile = replace(profile, status=profile_as_stored(action.status))
    return profile


def taught(*seen: Observation, profile: ProfileRecord | None = None) -> ProfileRecord:
    held = profile or mine()
    now = max(NOW, held.status.updated + PROFILE_WRITE_S)
    return after(profiles_to_write(world(*seen, profile=held), now, 7), held)


def test_a_class_without_a_profile_gets_one_and_then_its_rows() -> None:
    (made,) = profiles_to_write(world(row()), NOW, 7).actions
    assert isinstance(made, CreateProfile)
    assert (made.target.namespace, made.target.name) == ("default", profile_name(CLASS))
    assert made.workload_class == CLASS
    asked_for = world(row(), profile=replace(mine(), uid=""))
    assert profiles_to_write(asked_for, NOW, 7).actions == ()
    (written,) = profiles_to_write(world(row(), profile=mine()), NOW, 7).actions
    assert isinstance(written, SetProfile)
    assert [one.id for one in written.status.step_time] == ["node-1/0"]
    assert written.target.uid == "uid-profile"


def test_a_profile_that_people_made_for_the_class_learns_it() -> None:
    theirs = replace(a_profile("theirs", workload_class=CLASS), uid="uid-theirs")
    (written,) = profiles_to_write(world(row(), profile=theirs), NOW, 7).actions
    assert isinstance(written, SetProfile)
    assert written.target.name == "theirs"


def test_somebodys_profile_of_that_name_is_left_alone() -> None:
    foreign = replace(a_profile(profile_name(CLASS), workload_class="other"), uid="uid-foreign")
    lessons = profiles_to_write(world(row(), profile=foreign), NOW, 7)
    assert lessons.actions == ()
    assert lessons.dropped == {Dropped.NAME_TAKEN: 1}


def test_nothing_is_written_twice() -> None:
    seen = (row(0), beside(1, "bert"))
    profile = taught(*seen)
    later = profiles_to_write(world(*seen, profile=profile), NOW + 1000, 8)
    assert later.actions == ()


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(6)), cuts=st.sets(st.integers(1, 5)))
def test_the_rows_do_not_depend_on_when_they_were_seen(order: list[int], cuts: set[int]) -> None:
    seen = [beside(n, "bert") if n % 2 else row(n, step_micros=10_000 + n) for n in range(6)]
    at_once = taught(*seen)
    profile = mine()
    for first, last in pairwise([0, *sorted(cuts), 6]):
        profile = taught(*(seen[n] for n in order[first:last]), profile=profile)
    assert profile.status.step_time == at_once.status.step_time
    assert [one.steps_per_second for one in profile.status.solo] == [
        one.steps_per_second for one in at_once.status.solo
    ]
    assert profile.status.interference == at_once.status.interference


def test_writes_of_a_profile_keep_their_distance() -> None:
    profile = taught(row(0))
    soon = profiles_to_write(world(row(0), row(1), profile=profile), NOW + 10, 7)
    assert soon.actions == ()
    assert soon.wake_at == NOW + PROFILE_WRITE_S
    (written,) = profiles_to_write(world(row(0), row(1), profile=profile), NOW + 31, 7).actions
    assert isinstance(written, SetProfile)
    assert len(written.status.step_time) == 2


def test_the_newest_rows_stay_and_old_ones_do_not_come_back() -> None:
    profile = mine()
    for start in range(0, MOST_ROWS + 100, 100):
        profile = taught(*(beside(n, "bert") for n in range(start, start + 100)), profile=profile)
    held = profile.status.step_time
    assert len(held) == MOST_ROWS
    assert held[0].id == f"node-1/{MOST_ROWS + 99}"
    again = profiles_to_write(world(beside(3, "bert"), profile=profile), NOW + 1e4, 7)
    assert again.actions == ()


def test_times_alone_are_medians_and_counters_running_means() -> None:
    prints = [Fingerprint(sm_permille=600, peak_memory_mib=100 * n) for n in (1, 3, 2)]
    times = (10_000, 90_000, 12_000)
    seen = [
        row(n, step_micros=step, solo_step_micros=0, fingerprint=one)
        for n, (step, one) in enumerate(zip(times, prints, strict=True))
    ]
    (solo,) = taught(*seen).status.solo
    assert solo.steps_per_second == pytest.approx(1 / 0.012, rel=1e-4)
    assert solo.fingerprint.sm == pytest.approx(0.6)
    assert solo.fingerprint.dram is None
    assert solo.fingerprint.peak_memory_mib == pytest.approx(300, rel=1e-4)
    assert solo.samples == 3


def test_another_image_starts_again_and_late_rows_of_the_old_one_are_left_out() -> None:
    old = taught(*(row(n, image="sha256:a") for n in range(4)))
    assert old.status.source_hash == "sha256:a"
    late = row(12, image="sha256:a")
    new = taught(row(11, image="sha256:b", step_micros=20_000), late, profile=old)
    assert (new.status.source_hash, new.status.former_hash) == ("sha256:b", "sha256:a")
    assert [one.id for one in new.status.step_time] == ["node-1/11"]
    assert new.status.solo[0].steps_per_second == pytest.approx(50)
    fresh = new.status.condition("Fresh")
    assert fresh is not None
    assert (fresh.status, fresh.reason) == ("False", "ImageChanged")
    seen = world(*(row(n, image="sha256:a") for n in range(4)), late, profile=new)
    assert profiles_to_write(seen, NOW + 1000, 7).actions == ()


def test_times_that_wander_off_make_the_class_unknown_until_it_has_new_rows() -> None:
    profile = taught(*(beside(n, "bert") for n in range(12)))
    assert class_profiles(world(profile=profile), "emulated")[f"default/{CLASS}"].rows == 12
    slow = taught(*(beside(n, "bert", step=30_000) for n in range(12, 16)), profile=profile)
    assert slow.status.novel
    assert class_profiles(world(profile=slow), "emulated")[f"default/{CLASS}"].rows == 0
    fresh = slow.status.condition("Fresh")
    assert fresh is not None
    assert fresh.reason == "Drifted"
    known = taught(*(beside(n, "bert", step=30_000) for n in range(16, 30)), profile=slow)
    assert not known.status.novel
    healed = known.status.condition("Fresh")
    assert healed is not None
    assert healed.status == "True"


def test_one_odd_row_is_no_drift() -> None:
    profile = taught(*(beside(n, "bert") for n in range(12)), beside(12, "bert", step=300_000))
    assert not profile.status.novel
    assert len(profile.status.step_time) == 13


def test_a_declared_speed_that_measuring_does_not_bear_out_is_told() -> None:
    declared = SoloEntry(device="emulated", share=100, steps_per_second=200)
    told = taught(row(), profile=mine(solo=(declared,))).status.condition("Conflicting")
    assert told is not None
    assert "declared 200 steps/s, measured 100" in told.message
    right = mine(solo=(replace(declared, steps_per_second=101),))
    assert taught(row(), profile=right).status.condition("Conflicting") is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"step_micros": -5}, Dropped.STEP_TIME),
        ({"step_micros": 0}, Dropped.STEP_TIME),
        ({"step_micros": 10**12}, Dropped.STEP_TIME),
        ({"percent": 0}, Dropped.SHARE),
        ({"percent": 400}, Dropped.SHARE),
        ({"partners": (ObservedPartner(workload_class="x", percent=-1),)}, Dropped.SHARE),
        ({"solo_step_micros": -1}, Dropped.SLOWDOWN),
        ({"solo_step_micros": 1}, Dropped.SLOWDOWN),
        ({"requests_milli": -1}, Dropped.SLOWDOWN),
        ({"workload_class": ""}, Dropped.NO_CLASS),
        ({"accelerator": "nvidia-h100"}, Dropped.OTHER_ACCELERATOR),
        ({"at_s": int(NOW) + 10_000}, Dropped.FUTURE),
        ({"at_s": 0}, Dropped.FUTURE),
    ],
)
def test_garbage_teaches_nothing_and_is_counted(changes: dict[str, Any], why: Dropped) -> None:
    lessons = profiles_to_write(world(row(**changes), profile=mine()), NOW, 7)
    assert lessons.actions == ()
    assert lessons.dropped == {why: 1}


def test_an_unbelievable_fingerprint_costs_only_itself() -> None:
    lessons = profiles_to_write(
        world(row(fingerprint=Fingerprint(sm_permille=60_000)), profile=mine()), NOW, 7
    )
    (written,) = lessons.actions
    assert isinstance(written, SetProfile)
    assert written.status.solo[0].fingerprint.sm is None
    assert lessons.dropped == {Dropped.FINGERPRINT: 1}


def test_interference_counts_both_ways() -> None:
    victim = replace(
        taught(
            beside(1, CLASS, step=40_000, workload_class="bert"),
            profile=mine(workload_class="bert"),
        ),
        name="of-bert",
        uid="uid-bert",
    )
    seen = a_snapshot(replace(a_gpu_node(), observations=(beside(2, "bert"),)), victim, mine())
    (written,) = profiles_to_write(seen, NOW + 60, 7).actions
    assert isinstance(written, SetProfile)
    (entry,) = written.status.interference
    assert (entry.sensitivity, entry.aggressiveness) == (
        pytest.approx(1.5),
        pytest.approx(4.0),
    )


def test_rows_and_classes_come_in_the_words_of_admission() -> None:
    profile = taught(
        row(0, step_micros=10_000),
        row(1, percent=50, step_micros=16_000),
        beside(2, "bert", solo_step_micros=0, max_slowdown_percent=130, requests_milli=12_000),
    )
    snapshot = world(profile=profile)
    rows = rows_of(snapshot, "emulated")
    assert [one.id for one in rows] == ["node-1/0", "node-1/1", "node-1/2"]
    assert rows[2].slowdown == pytest.approx(1.5)
    assert (rows[2].max_slowdown, rows[2].requests_per_s) == (1.3, 12.0)
    assert [one.workload_class for one in rows[2].partners] == ["default/bert"]
    assert rows_of(snapshot, "other") == ()
    known = class_profiles(snapshot, "emulated")[f"default/{CLASS}"]
    assert known.curve is not None
    assert known.curve.seconds(1.0) == pytest.approx(0.010, rel=1e-4)
    assert known.curve.seconds(0.5) == pytest.approx(0.016, rel=1e-4)
    assert (known.family, known.rows) == ("default/example/resnet", 1)


@pytest.mark.parametrize(
    ("times", "fixed", "scaled"),
    [
        ({100: 0.01}, 0.0, 0.01),
        ({100: 0.01, 50: 0.01, 25: 0.01}, 0.01, 0.0),
        ({100: 0.02, 50: 0.01}, 0.015, 0.0),
        ({100: 0.01, 50: 0.05}, 0.0, 0.022),
        ({100: 0.03, 50: 0.05}, 0.01, 0.02),
    ],
)
def test_a_share_curve_is_never_negative(
    times: dict[int, float], fixed: float, scaled: float
) -> None:
    rows = [SoloEntry(device="d", share=p, steps_per_second=1 / t) for p, t in times.items()]
    curve = share_curve(rows)
    assert curve is not None
    assert (curve.fixed_s, curve.scaled_s) == (pytest.approx(fixed), pytest.approx(scaled))
    assert share_curve([SoloEntry(device="d", share=10)]) is None


def test_what_trials_cost_is_remembered_once() -> None:
    spent = Account(workload_class=CLASS, spent_s=40.5, rows=3)
    trials = {("default", CLASS): spent}
    (written,) = profiles_to_write(world(profile=mine()), NOW, 7, trials).actions
    assert isinstance(written, SetProfile)
    status = written.status
    assert (status.trial_s, status.trial_rows) == (40.5, 3)
    known = world(profile=mine(status=profile_as_stored(status)))
    assert profiles_to_write(known, NOW + 100, 7, trials).actions == ()
    (made,) = profiles_to_write(world(), NOW, 7, trials).actions
    assert isinstance(made, CreateProfile)


def test_a_decision_carries_the_lessons_and_counts_the_garbage() -> None:
    node = replace(a_gpu_node(), observations=(row(0), row(1, percent=0)))
    found = decided(node, a_job())
    assert [one.workload_class for one in found.all(CreateProfile)] == [CLASS]
    assert found.plan.dropped == {"Share": 1}


def test_nothing_is_created_where_no_one_is_left() -> None:
    node = replace(a_gpu_node(), observations=(row(0),))
    lessons = profiles_to_write(a_snapshot(node), NOW, 1)
    assert lessons.actions == ()
    assert lessons.dropped == {Dropped.NOBODY_LEFT: 1}


def test_a_refused_profile_is_not_asked_for_again_before_its_time() -> None:
    why = RefusedWrite(reason=Reason.CREATE_REFUSED, message="forbidden")
    refused = {("WorkloadProfile", "default", profile_name(CLASS)): why}
    picture = replace(world(row(0)), refused_writes=refused)
    assert profiles_to_write(picture, NOW, 1).actions == ()


def test_hours_beside_one_partner_displace_no_other_partner() -> None:
    profile = taught(*(beside(n, "rare") for n in range(5)))
    for start in range(5, MOST_ROWS + 205, 100):
        profile = taught(*(beside(n, "bert") for n in range(start, start + 100)), profile=profile)
    names = [row.partners[0].workload_class for row in profile.status.step_time]
    assert len(names) == MOST_ROWS
    assert names.count("rare") == 5


def kept_row(number: int, *partners: str, share: int = 50, **changes: Any) -> StepRow:
    return replace(
        StepRow(
            id=f"{number}.{share}.{'.'.join(partners)}",
            accelerator="nvidia-a",
            share=share,
            partners=tuple(Partner(workload_class=name, percent=50) for name in partners),
            step_s=0.1,
            at_s=float(number),
        ),
        **changes,
    )


def test_one_partner_at_ever_new_shares_displaces_no_other_partner() -> None:
    rare = [kept_row(n, "rare") for n in range(5)]
    shares = [kept_row(1000 + n, "bert", share=1 + n % 100) for n in range(2 * MOST_ROWS)]
    names = Counter(one.partners[0].workload_class for one in kept([*rare, *shares]))
    assert names == {"rare": 5, "bert": MOST_ROWS - 5}


def test_a_namespace_of_ever_new_classes_displaces_only_its_own() -> None:
    ours = [kept_row(n, f"ours-{n % 50}") for n in range(100)]
    alone = [kept_row(n) for n in range(200, 220)]
    flood = [kept_row(1000 + n, f"evil/{n}") for n in range(5 * MOST_ROWS)]
    names = Counter(
        one.partners[0].workload_class if one.partners else "" for one in kept([*ours, *alone])
    )
    left = kept([*ours, *alone, *flood])
    assert sum(any("evil/" in one.workload_class for one in row.partners) for row in left) == 100
    told = {one.partners[0].workload_class if one.partners else "" for one in left}
    assert set(names) <= told


def test_each_type_of_device_keeps_its_half() -> None:
    here = [kept_row(n, "bert") for n in range(MOST_ROWS)]
    there = [kept_row(5000 + n, f"c{n}", accelerator="nvidia-b") for n in range(2 * MOST_ROWS)]
    left = Counter(one.accelerator for one in kept([*here, *there]))
    assert left == {"nvidia-a": MOST_ROWS // 2, "nvidia-b": MOST_ROWS // 2}


def test_windows_alone_displace_no_pauses() -> None:
    pauses = [kept_row(n, counterfactual=True) for n in range(4)]
    windows = [kept_row(1000 + n) for n in range(2 * MOST_ROWS)]
    assert set(pauses) <= set(kept([*pauses, *windows]))


def test_a_share_of_long_ago_gives_way_to_that_of_today() -> None:
    later = 4 * MIXTURE_HALF_LIFE_S
    before = [kept_row(n, "bert", share=20) for n in range(MOST_ROWS)]
    today = [kept_row(n, "bert", share=60, at_s=later + n, id=f"t{n}") for n in range(MOST_ROWS)]
    left = Counter(one.share for one in kept([*before, *today]))
    assert left[60] == pytest.approx(16 * left[20], rel=0.1)
    assert left.total() == MOST_ROWS


def test_three_pauses_say_how_fast_the_class_is_alone() -> None:
    windows = [row(n, step_micros=12_000) for n in range(9)]
    pauses = [row(n, frozen=True, step_micros=10_000 + n) for n in range(10, 13)]
    (few,) = taught(*windows, *pauses[:2]).status.solo
    assert few.steps_per_second == pytest.approx(1 / 0.012, rel=1e-4)
    (enough,) = taught(*windows, *pauses).status.solo
    assert enough.steps_per_second == pytest.approx(1 / 0.010011, rel=1e-4)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 999),
            st.sampled_from(["", "a", "b", "x/a", "x/b", "y/c"]),
            st.sampled_from([20, 50]),
            st.booleans(),
        ),
        unique=True,
        max_size=600,
    ),
    st.integers(0, 600),
    st.sampled_from([1.0, 1e4, MIXTURE_HALF_LIFE_S / 100]),
)
def test_what_is_kept_does_not_depend_on_how_often_it_was_sifted(
    seen: list[tuple[int, str, int, bool]], cut: int, apart_s: float
) -> None:
    rows = [
        kept_row(
            number,
            *([name] if name else []),
            share=share,
            counterfactual=paused,
            at_s=number * apart_s,
            id=f"{number}.{name}.{share}.{paused}",
        )
        for number, name, share, paused in seen
    ]
    assert kept([*kept(rows[:cut]), *rows[cut:]]) == kept(rows)
