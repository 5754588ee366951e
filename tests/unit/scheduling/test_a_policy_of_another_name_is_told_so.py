# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Only the SchedulingPolicy named default binds; any other bears Invalid, written once."""

from dataclasses import replace

from builders import NOW, a_snapshot
from ullage.cluster.records.policy import PolicyRecord
from ullage.scheduling.status.policies import void_policies

OTHER = PolicyRecord(name="mine", uid="uid-mine", generation=2)


def test_another_name_is_told_that_it_is_not_in_force() -> None:
    snapshot = replace(a_snapshot(), idle_policies=(OTHER,))
    (told,) = void_policies(snapshot, NOW, 3)
    assert told.target.name == "mine"
    assert told.conditions[0].type == "Invalid"
    assert "default" in told.text


def test_it_is_told_once() -> None:
    snapshot = replace(a_snapshot(), idle_policies=(OTHER,))
    (told,) = void_policies(snapshot, NOW, 3)
    again = replace(snapshot, idle_policies=(replace(OTHER, conditions=told.conditions),))
    assert void_policies(again, NOW, 3) == []
