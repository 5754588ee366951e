# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Between the write of a profile and its echo the picture shows what was written."""

from __future__ import annotations

import pytest

from builders import NOW
from builders_raw import raw_meta, raw_profile
from ullage.api.reasons import Reason
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.profile import profile_as_stored, profile_status_to_wire
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import ProfileStatus
from ullage.cluster.values import streams
from ullage.scheduling.model.plan import CreateProfile, SetProfile

KEY = ("default", "resnet")
TARGET = ObjectRef(kind="WorkloadProfile", namespace="default", name="resnet", uid="uid-resnet")
STATUS = ProfileStatus(source="Measured", family="resnet", updated=1.5e9 + 0.4)
CREATE = CreateProfile(
    target=TARGET, workload_class="resnet", epoch=7, reason=Reason.MEASURED, text=""
)
SET = SetProfile(target=TARGET, status=STATUS, epoch=7, reason=Reason.MEASURED, text="")


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(effect_of)


def test_a_profile_that_was_asked_for_is_there_without_a_uid(state: ClusterState) -> None:
    state.assume([CREATE], NOW)
    record = state.freeze(NOW).profiles[KEY]
    assert (record.workload_class, record.uid) == ("resnet", "")
    assert state.upsert(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    assert state.freeze(NOW).profiles[KEY].uid == "uid-resnet"
    assert state.assumed == 0


def test_a_status_counts_at_once_and_its_echo_is_no_news(state: ClusterState) -> None:
    state.upsert(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    state.assume([SET], NOW)
    assert state.freeze(NOW).profiles[KEY].status == profile_as_stored(STATUS)
    echo = {**raw_profile(), "status": profile_status_to_wire(STATUS)}
    assert not state.upsert(streams.WORKLOAD_PROFILES, echo, NOW)
    assert state.freeze(NOW).profiles[KEY].status == profile_as_stored(STATUS)
    assert state.assumed == 0


def test_a_failed_write_is_forgotten(state: ClusterState) -> None:
    state.upsert(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    state.assume([SET], NOW)
    state.forget(SET)
    assert state.freeze(NOW).profiles[KEY].status == ProfileStatus()
    state.assume([CREATE], NOW)
    state.expire(NOW + 1000)
    assert state.assumed == 0


def test_a_profile_that_goes_takes_its_assumption_along(state: ClusterState) -> None:
    state.upsert(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    state.assume([SET], NOW)
    assert state.remove(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    assert KEY not in state.freeze(NOW).profiles
    assert state.assumed == 0


def test_a_change_by_people_is_news_though_our_status_is_on_its_way(state: ClusterState) -> None:
    state.upsert(streams.WORKLOAD_PROFILES, raw_profile(), NOW)
    state.assume([SET], NOW)
    row = {"device": "emulated", "share": 100, "smUtil": 0.25}
    changed = raw_profile(solo=[row])
    changed["metadata"] = raw_meta("resnet", generation=2)
    assert state.upsert(streams.WORKLOAD_PROFILES, changed, NOW)
    record = state.freeze(NOW).profiles[KEY]
    assert record.solo[0].sm_util == 0.25
    assert record.status.family == "resnet"
