# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A profile says what programs of its class took in lanes: the most of all, until a new image."""

from __future__ import annotations

from dataclasses import replace

import builders
from builders import NOW, a_gpu_node, a_job, a_profile, a_snapshot
from ullage.api.observations import Observation
from ullage.api.slices import SlicePhase
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.profile import ProfileRecord, ProfileStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.learning.loop import profiles_to_write
from ullage.scheduling.model.plan import CreateProfile, SetProfile
from ullage.scheduling.times import PROFILE_WRITE_S

CLASS = "small"
LATER = NOW + 2 * PROFILE_WRITE_S


def world(
    *took: tuple[int, int],
    profile: ProfileRecord | None = None,
    lane: int = 1,
    rows: tuple[Observation, ...] = (),
) -> Snapshot:
    """Jobs of the class on one device, each with what it took: persistent, ephemeral."""
    jobs = [
        a_job(f"job-{at}").in_lanes(1024, 8192).with_(workload_class=CLASS)
        for at in range(len(took))
    ]
    pods = [pod for job in jobs for pod in job.pods(PodStage.RUNNING, node="node-1")]
    slices = [
        replace(builders.a_slice(pod, device=builders.gpu("node-1")), lane=lane) for pod in pods
    ]
    seen = [
        replace(
            builders.reported(part, SlicePhase.ATTACHED),
            lane=lane,
            persistent_peak_mib=persistent,
            ephemeral_peak_mib=ephemeral,
        )
        for part, (persistent, ephemeral) in zip(slices, took, strict=True)
    ]
    node = replace(a_gpu_node("node-1", desired=slices, observed=seen), observations=rows)
    return a_snapshot(node, *jobs, *pods, *([profile] if profile else []))


def known(persistent: int = 0, ephemeral: int = 0, **more: object) -> ProfileRecord:
    status = ProfileStatus(
        lane_persistent_mib=persistent,
        lane_ephemeral_mib=ephemeral,
        **more,  # type: ignore[arg-type]
    )
    profile = a_profile(profile_name(CLASS), workload_class=CLASS)
    return replace(profile, uid="uid-profile", status=status)


def learned(snapshot: Snapshot, now: float = LATER) -> tuple[int, int] | None:
    """What the profile is to say; ``None`` = nothing is written."""
    for action in profiles_to_write(snapshot, now, 7).actions:
        assert isinstance(action, SetProfile)
        return action.status.lane_persistent_mib, action.status.lane_ephemeral_mib
    return None


def test_the_most_of_all_programs_counts() -> None:
    assert learned(world((700, 900), (200, 1200), profile=known())) == (700, 1200)


def test_less_than_before_is_no_news() -> None:
    assert learned(world((600, 1000), profile=known(700, 1200))) is None


def test_more_is_written_at_most_every_half_minute() -> None:
    profile = known(700, 1200, updated=NOW)
    snapshot = world((700, 1300), profile=profile)
    updates = profiles_to_write(snapshot, NOW + 1, 7)
    assert (updates.actions, updates.wake_at) == ((), NOW + PROFILE_WRITE_S)
    assert learned(snapshot, NOW + PROFILE_WRITE_S) == (700, 1300)


def test_a_class_without_a_profile_gets_one() -> None:
    (made,) = profiles_to_write(world((1, 1)), LATER, 7).actions
    assert isinstance(made, CreateProfile)
    assert made.workload_class == CLASS


def test_who_says_nothing_or_shares_no_lane_is_left_out() -> None:
    assert learned(world((0, 0), profile=known())) is None
    assert learned(world((5, 5), profile=known(), lane=0)) is None


def test_another_namespace_learns_nothing() -> None:
    elsewhere = replace(known(), namespace="other")
    (made,) = profiles_to_write(world((700, 900), profile=elsewhere), LATER, 7).actions
    assert isinstance(made, CreateProfile)
    assert made.target.namespace == "default"


def test_a_new_image_starts_again() -> None:
    row = Observation(
        id="node-1/1",
        workload_class=CLASS,
        namespace="default",
        accelerator="emulated",
        percent=100,
        step_micros=10_000,
        at_s=int(NOW),
        image="sha256:new",
    )
    profile = known(700, 1200, source_hash="sha256:old")
    assert learned(world((0, 0), profile=profile, rows=(row,))) == (0, 0)
