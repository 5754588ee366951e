# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.engines.lanes.records import Granted, JobDemand, Waits
from ullage.engines.lanes.safety import UnsafeLanes
from ullage.engines.lanes.settings import EXACT, LaneAim, LaneSettings
from ullage.engines.lanes.table import LaneTable

SETTINGS = LaneSettings(capacity_mib=10_000, margins=EXACT, aim=LaneAim.RULES_ALONE)


def a_table() -> LaneTable:
    table = LaneTable(settings=SETTINGS)
    for name, persistent in (("a", 1000), ("b", 1000), ("c", 4000)):
        demand = JobDemand(name=name, persistent_mib=persistent, ephemeral_mib=5000)
        table.arrive(demand, 0.0)
    return table


def test_a_restored_table_grants_no_lane_twice() -> None:
    table = a_table()
    turn, _ = table.acquire("a", 1.0)
    assert isinstance(turn, Granted)
    restored = LaneTable.restored(SETTINGS, table.record(), 2.0)
    assert restored.acquire("b", 3.0)[0] == Waits(job="b", lane=1, others=0)
    (grant,) = restored.release(turn.lease.lease, 4.0)
    assert isinstance(grant, Granted)
    assert (grant.job, grant.lease.lease) == ("b", turn.lease.lease + 1)


def test_a_restored_table_records_the_same() -> None:
    table = a_table()
    table.acquire("a", 1.0)
    record = table.record()
    assert LaneTable.restored(SETTINGS, record, 2.0).record() == record
    assert [one.name for one in record.queue] == ["c"]


def test_a_record_that_does_not_fit_the_device_is_refused() -> None:
    record = a_table().record()
    with pytest.raises(UnsafeLanes):
        LaneTable.restored(replace(SETTINGS, capacity_mib=6000), record, 0.0)


def test_a_record_with_two_steps_in_a_lane_is_refused() -> None:
    table = a_table()
    table.acquire("a", 1.0)
    record = table.record()
    (lane,) = record.lanes
    first, second = lane.residents
    assert first.lease is not None
    forged = replace(second, lease=replace(first.lease, job="b"))
    wild = replace(record, lanes=(replace(lane, residents=(first, forged)),))
    with pytest.raises(ValueError, match="run in lane 1"):
        LaneTable.restored(SETTINGS, wild, 2.0)
