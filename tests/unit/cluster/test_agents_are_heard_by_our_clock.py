# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node's clock may be wrong or jump: an agent was heard when we saw it speak, by our clock."""

from __future__ import annotations

import pytest

from builders import NOW, a_device, a_slice
from builders_raw import raw_gpu_node
from ullage.api.times import rfc3339
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams

HOUR = 3600.0


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(effect_of)


def _says(state: ClusterState, stamp: float, *, at: float, **more: object) -> float:
    """The agent's last word has this moment in it, and we see it at another; when it was heard."""
    beat = rfc3339(stamp) if stamp else ""
    raw = raw_gpu_node(devices=[a_device()], heartbeat=beat, **more)  # type: ignore[arg-type]
    if not stamp:
        del raw["status"]["heartbeat"]
    state.upsert(streams.GPU_NODES, raw, at)
    return state.freeze(at).gpu_nodes["node-1"].heartbeat


@pytest.mark.parametrize("jump", [-24 * HOUR, -61, -1, 1, 24 * HOUR], ids=str)
def test_a_clock_that_jumps_makes_no_one_silent_nor_keeps_anyone_alive(
    state: ClusterState, jump: float
) -> None:
    _says(state, NOW, at=NOW)
    assert _says(state, NOW + 60 + jump, at=NOW + 60) == NOW + 60
    assert _says(state, NOW + 60 + jump, at=NOW + 500) == NOW + 60


def test_a_clock_that_is_always_wrong_is_no_harm_once_it_was_heard(state: ClusterState) -> None:
    assert _says(state, NOW - HOUR, at=NOW) == NOW - HOUR
    assert _says(state, NOW - HOUR + 60, at=NOW + 61) == NOW + 61


def test_no_one_spoke_later_than_now(state: ClusterState) -> None:
    assert _says(state, NOW + HOUR, at=NOW) == NOW


def test_who_never_spoke_was_not_heard(state: ClusterState) -> None:
    assert _says(state, 0.0, at=NOW) == 0.0
    assert _says(state, NOW - HOUR, at=NOW + 5) == NOW + 5


def test_our_own_writes_and_relists_are_no_sign_of_life(state: ClusterState) -> None:
    _says(state, NOW, at=NOW)
    assert _says(state, NOW, at=NOW + 30, desired=[a_slice()]) == NOW
    raw = raw_gpu_node(devices=[a_device()], heartbeat=rfc3339(NOW))
    state.replace(streams.GPU_NODES, [raw], NOW + 60)
    assert state.freeze(NOW + 60).gpu_nodes["node-1"].heartbeat == NOW


def test_another_object_of_the_name_begins_again(state: ClusterState) -> None:
    _says(state, NOW, at=NOW)
    raw = raw_gpu_node(devices=[a_device()], heartbeat=rfc3339(NOW - HOUR))
    raw["metadata"]["uid"] = "another"  # type: ignore[index]
    state.replace(streams.GPU_NODES, [raw], NOW + 60)
    assert state.freeze(NOW + 60).gpu_nodes["node-1"].heartbeat == NOW - HOUR
