# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.api import lanes as wire
from ullage.api.lanes import LaneRefusal, Message
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import LaneMember
from ullage_node.lanes.reports import StepFault

SHARER = LaneMember(job="a", memory_mib=400, persistent_mib=100, ephemeral_mib=200)


@pytest.fixture(params=[True, False], ids=["counts memory", "limits memory"])
def enforce(request: pytest.FixtureRequest) -> bool:
    """Whether the device only counts memory."""
    return bool(request.param)


def device(enforce: bool) -> tuple[DeviceLanes, list[Message]]:
    """A device of 1000 MiB, job ``a`` in a step of 200 MiB."""
    said: list[Message] = []
    lanes = DeviceLanes(capacity_mib=1000, send=lambda _, m: said.append(m), enforce=enforce)
    lanes.hold(SHARER, 0.0)
    lanes.hear("a", wire.Hello(session="s", persistent_mib=100, ephemeral_mib=200), 0.0)
    lanes.hear("a", wire.Acquire(), 0.0)
    return lanes, said


def lease_of(said: list[Message]) -> int:
    """The newest grant."""
    return next(one.lease for one in reversed(said) if isinstance(one, wire.Grant))


def test_a_step_beyond_its_lane_fails_where_memory_is_only_counted(enforce: bool) -> None:
    lanes, said = device(enforce)
    lanes.hear("a", wire.Release(lease=lease_of(said), peak_mib=250), 1.0)
    assert [(one.job, one.fault) for one in lanes.reports] == [("a", StepFault.EXCEEDED)]
    assert "250 MiB, declared 200 MiB" in lanes.reports[0].message
    last = said[-1]
    if enforce:
        assert isinstance(last, wire.Refused)
        assert last.reason is LaneRefusal.EXCEEDS_LANE
    else:
        assert isinstance(last, wire.Done)


def test_a_peak_beyond_what_was_declared_is_reserved_from_then_on() -> None:
    lanes, said = device(False)
    lanes.hear("a", wire.Release(lease=lease_of(said), peak_mib=250), 1.0)
    lanes.hear("a", wire.Acquire(), 2.0)
    grant = said[-1]
    assert isinstance(grant, wire.Grant)
    assert grant.size_mib == 250


def test_a_lie_about_persistent_memory_is_reported() -> None:
    lanes, said = device(False)
    lanes.hear("a", wire.Release(lease=lease_of(said), persistent_mib=150), 1.0)
    assert [one.message for one in lanes.reports] == ["keeps 150 MiB, declared 100 MiB"]


def test_within_the_contract_nothing_is_reported(enforce: bool) -> None:
    lanes, said = device(enforce)
    release = wire.Release(lease=lease_of(said), peak_mib=200, persistent_mib=100)
    lanes.hear("a", release, 1.0)
    assert not lanes.reports
    assert isinstance(said[-1], wire.Done)


def test_a_step_that_never_ends_is_reported_once_and_keeps_its_lane() -> None:
    lanes, _ = device(False)
    lanes.tick(1_000.0)
    lanes.tick(2_000.0)
    assert [(one.job, one.fault) for one in lanes.reports] == [("a", StepFault.STALLED)]
    assert lanes.table.memory.residents["a"].lease is not None


def test_a_container_without_a_lane_has_its_memory_to_itself() -> None:
    said: list[tuple[str, Message]] = []
    lanes = DeviceLanes(capacity_mib=1000, send=lambda job, one: said.append((job, one)))
    lanes.hold(LaneMember(job="plain", memory_mib=700), 0.0)
    lanes.hold(SHARER, 0.0)
    lanes.hear("a", wire.Hello(session="s", persistent_mib=100, ephemeral_mib=200), 0.0)
    assert isinstance(said[-1][1], wire.InLane)
    lanes.hold(LaneMember(job="b", memory_mib=300, persistent_mib=100, ephemeral_mib=200), 0.0)
    lanes.hear("b", wire.Hello(session="t", persistent_mib=100, ephemeral_mib=200), 0.0)
    assert isinstance(said[-1][1], wire.InQueue)
    lanes.drop("plain", 1.0)
    job, message = said[-1]
    assert job == "b"
    assert isinstance(message, wire.InLane)


def test_who_shares_no_lane_may_not_greet() -> None:
    said: list[Message] = []
    lanes = DeviceLanes(capacity_mib=1000, send=lambda _, one: said.append(one))
    lanes.hold(LaneMember(job="plain", memory_mib=700), 0.0)
    lanes.hear("plain", wire.Hello(session="s", persistent_mib=1, ephemeral_mib=1), 0.0)
    refused = said[-1]
    assert isinstance(refused, wire.Refused)
    assert refused.reason is LaneRefusal.EXCEEDS_SLICE
