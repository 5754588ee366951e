# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A policy, profile or pool that cannot be read: its last good version stands and it is told so."""

from __future__ import annotations

from typing import Any, Final

import pytest

from builders import NOW
from builders_raw import raw_device_profile, raw_policy, raw_pool, raw_profile, raw_tuning_job
from ullage.api.labels import MANAGER_READER
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream
from ullage.kube.requests import RequestBuilder
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.model.plan import DecideSettings, SetConditions

Raw = dict[str, Any]
BAD: Final[dict[Stream, tuple[Raw, Raw, str]]] = {
    streams.SCHEDULING_POLICIES: (
        raw_policy(roundSeconds=60),
        raw_policy(roundSeconds=0),
        "spec.roundSeconds: 0 must be from 1 to 86400",
    ),
    streams.WORKLOAD_PROFILES: (
        raw_profile(),
        raw_profile(solo=[{"device": "a", "share": 101}]),
        "spec.solo.share: 101 must be from 1 to 100",
    ),
    streams.DEVICE_PROFILES: (
        raw_device_profile(),
        raw_device_profile(memory="9" * 70),
        "spec.memory: ",
    ),
    streams.CAPACITY_POOLS: (
        raw_pool(),
        raw_pool(nodeSelector={}),
        "spec.nodeSelector: nodeSelector must name at least one label",
    ),
    streams.TUNING_JOBS: (
        raw_tuning_job(),
        raw_tuning_job(searchSpace=[]),
        "spec.searchSpace: 0 entries, at least 1",
    ),
}


def told(state: ClusterState) -> list[SetConditions]:
    snapshot = state.freeze(NOW)
    plan = decide(snapshot, NOW, DecideSettings(epoch=1))
    return [one for one in plan.steps if isinstance(one, SetConditions) and one.reading]


def with_status(raw: Raw, body: Raw) -> Raw:
    """The object once what was told stands in its status."""
    return {**raw, "status": {**raw.get("status", {}), **body["status"]}}


@pytest.mark.parametrize("stream", BAD, ids=lambda one: one.name)
def test_the_last_good_version_stands_and_a_condition_says_what_is_wrong(stream: Stream) -> None:
    good, bad, why = BAD[stream]
    heard: list[tuple[str, str, str]] = []
    state = ClusterState(effect_of, complain=lambda *words: heard.append(words))
    state.upsert(stream, good, NOW)
    assert not told(state)
    before = state.counts()
    assert state.upsert(stream, bad, NOW), "a decision tells it"
    assert state.counts() == before
    (news,) = told(state)
    (condition,) = news.conditions
    assert (condition.type, condition.status, condition.reason) == (
        "Invalid",
        "True",
        "InvalidObject",
    )
    assert why in condition.message
    assert heard[0][0] == stream.name
    assert heard[0][1].endswith(str(good["metadata"]["name"]))
    request = RequestBuilder(state, pre_stop_sleep_s=0).request(news)
    assert (request.manager, request.subresource) == (MANAGER_READER, "status")
    assert set(request.body["status"]) == {"conditions"}  # type: ignore[call-overload]
    state.upsert(stream, with_status(bad, dict(request.body)), NOW)
    assert not told(state), "once is enough"


@pytest.mark.parametrize("stream", BAD, ids=lambda one: one.name)
def test_what_was_told_is_taken_back_once_it_can_be_read(stream: Stream) -> None:
    good, bad, _ = BAD[stream]
    state = ClusterState(effect_of)
    state.upsert(stream, bad, NOW)
    (news,) = told(state)
    body = dict(RequestBuilder(state, pre_stop_sleep_s=0).request(news).body)
    state.upsert(stream, with_status(good, body), NOW)
    (again,) = told(state)
    assert again.conditions == ()
    state.upsert(stream, good, NOW)
    assert not told(state)


@pytest.mark.parametrize("stream", BAD, ids=lambda one: one.name)
def test_what_is_gone_is_told_nothing(stream: Stream) -> None:
    _, bad, _ = BAD[stream]
    state = ClusterState(effect_of)
    state.upsert(stream, bad, NOW)
    state.remove(stream, bad, NOW)
    assert not state.freeze(NOW).unread
    state.upsert(stream, bad, NOW)
    state.replace(stream, [], NOW)
    assert not state.freeze(NOW).unread


def test_a_policy_that_does_not_bind_is_told_that_alone() -> None:
    state = ClusterState(effect_of)
    state.upsert(streams.SCHEDULING_POLICIES, raw_policy("other", roundSeconds=0), NOW)
    assert not told(state)
