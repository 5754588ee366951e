# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A loss is told apart from a node that someone wanted to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.pool_watch import MINUTE_S, START_S, PoolWatch, a_member, a_pool, notice, tainted
from ullage.api.interruptions import InterruptionKind
from ullage.cluster.records.pool import CapacityType
from ullage.scheduling.inventory.pool_membership import PoolMembership, pool_of

A, B, C, D = (a_member(name) for name in "abcd")


@pytest.fixture
def watch() -> PoolWatch:
    found = PoolWatch()
    found.look(A, B, C, D)
    found.look(A, B, C, D, after_s=5.0)
    return found


def test_a_node_that_vanishes_is_lost(watch: PoolWatch) -> None:
    seen = watch.look(A, B, C, after_s=5.0)
    assert (seen.lost, seen.before, seen.nodes) == (1, 4, 3)
    assert watch.look(A, B, C, after_s=5.0).lost == 0


def test_a_notice_is_a_loss_at_once_and_the_end_of_the_node_no_second_one(
    watch: PoolWatch,
) -> None:
    told = replace(A, interruption=notice(InterruptionKind.TERMINATE, "ec2"))
    assert watch.look(told, B, C, D, after_s=5.0).lost == 1
    assert watch.look(B, C, D, after_s=120.0).lost == 0


def test_a_notice_counts_though_the_node_was_cordoned_before(watch: PoolWatch) -> None:
    cordoned = replace(A, unschedulable=True)
    watch.look(cordoned, B, C, D, after_s=5.0)
    told = replace(cordoned, interruption=notice(InterruptionKind.TERMINATE, "ec2"))
    assert watch.look(told, B, C, D, after_s=5.0).lost == 1


@pytest.mark.parametrize(
    "wanted",
    [
        replace(A, unschedulable=True),
        replace(A, deleting=True),
        tainted(A, "ToBeDeletedByClusterAutoscaler"),
        replace(
            tainted(A, "karpenter.sh/disrupted"),
            interruption=notice(InterruptionKind.REBALANCE, "karpenter.sh/disrupted"),
        ),
        replace(
            tainted(A, "karpenter.sh/disrupted"),
            interruption=notice(InterruptionKind.TERMINATE, "karpenter.sh/disrupted"),
            deleting=True,
        ),
        replace(
            tainted(A, "karpenter.sh/disruption"),
            interruption=notice(InterruptionKind.TERMINATE, "karpenter.sh/disruption"),
            deleting=True,
        ),
    ],
    ids=["cordoned", "deleted", "cluster-autoscaler", "planned", "karpenter", "karpenter-0.3x"],
)
def test_what_someone_wants_to_go_is_no_loss(watch: PoolWatch, wanted: object) -> None:
    assert watch.look(wanted, B, C, D, after_s=5.0).lost == 0  # type: ignore[arg-type]
    unready = replace(wanted, ready=False, ready_since=watch.now)  # type: ignore[type-var]
    assert watch.look(unready, B, C, D, after_s=400.0).lost == 0  # type: ignore[arg-type]
    seen = watch.look(B, C, D, after_s=5.0)
    assert (seen.lost, seen.nodes) == (0, 3)


def test_what_an_autoscaler_plans_is_no_warning_of_the_provider(watch: PoolWatch) -> None:
    planned = replace(
        tainted(A, "karpenter.sh/disrupted"),
        interruption=notice(InterruptionKind.REBALANCE, "karpenter.sh/disrupted"),
    )
    seen = watch.look(planned, B, C, D, after_s=5.0)
    assert (seen.warned, seen.advised, seen.lost) == (False, False, 0)


def test_marks_that_come_after_a_node_went_unready_excuse_nothing(watch: PoolWatch) -> None:
    unready = replace(A, ready=False, ready_since=watch.now)
    watch.look(unready, B, C, D, after_s=5.0)
    watch.look(replace(unready, unschedulable=True, deleting=True), B, C, D, after_s=5.0)
    assert watch.look(B, C, D, after_s=5.0).lost == 1


def test_a_node_that_stays_unready_is_lost_and_one_that_comes_back_soon_is_not(
    watch: PoolWatch,
) -> None:
    unready = replace(A, ready=False, ready_since=watch.now)
    seen = watch.look(unready, B, C, D, after_s=4 * MINUTE_S)
    assert (seen.lost, seen.nodes) == (0, 4)
    assert watch.look(A, B, C, D, after_s=5.0).gained == 0
    unready = replace(A, ready=False, ready_since=watch.now)
    assert watch.look(unready, B, C, D, after_s=6 * MINUTE_S).lost == 1
    back = watch.look(replace(A, ready_since=watch.now), B, C, D, after_s=5.0)
    assert (back.gained, back.launched, back.nodes) == (1, 0, 4)


def test_a_node_of_other_labels_is_moved_not_lost(watch: PoolWatch) -> None:
    seen = watch.look(replace(A, labels={"pool": "elsewhere"}), B, C, D, after_s=5.0)
    assert (seen.lost, seen.nodes) == (0, 3)
    back = watch.look(A, B, C, D, after_s=5.0)
    assert (back.gained, back.nodes) == (1, 4)


def test_nodes_of_other_pools_do_not_count(watch: PoolWatch) -> None:
    assert watch.look(A, B, C, D, a_member("x", "other"), after_s=5.0).nodes == 4


def test_a_launch_fails_after_a_quarter_hour_and_only_once(watch: PoolWatch) -> None:
    made_at = watch.now
    late = a_member("late", created=made_at, ready=False, ready_since=made_at)
    assert watch.look(A, B, C, D, late, after_s=14 * MINUTE_S).failed == 0
    assert watch.look(A, B, C, D, late, after_s=2 * MINUTE_S).failed == 1
    assert watch.look(A, B, C, D, late, after_s=2 * MINUTE_S).failed == 0
    seen = watch.look(A, B, C, D, after_s=5.0)
    assert (seen.failed, seen.lost) == (0, 0)


def test_a_node_that_vanishes_before_it_was_ready_is_a_launch_that_failed(
    watch: PoolWatch,
) -> None:
    young = a_member("young", created=watch.now, ready=False, ready_since=watch.now)
    watch.look(A, B, C, D, young, after_s=5.0)
    seen = watch.look(A, B, C, D, after_s=60.0)
    assert (seen.failed, seen.lost) == (1, 0)


def test_a_new_node_is_gained_when_it_is_ready(watch: PoolWatch) -> None:
    young = a_member("young", created=watch.now, ready=False, ready_since=watch.now)
    assert watch.look(A, B, C, D, young, after_s=5.0).gained == 0
    seen = watch.look(A, B, C, D, replace(young, ready=True), after_s=60.0)
    assert (seen.gained, seen.launched, seen.nodes) == (1, 1, 5)


def test_what_vanished_while_no_one_looked_counts_on_spot_and_only_for_a_while() -> None:
    for kind, down_s, lost in (
        (CapacityType.SPOT, 60.0, 2),
        (CapacityType.SPOT, 3 * 3600.0, 0),
        (CapacityType.ON_DEMAND, 60.0, 0),
    ):
        watch = PoolWatch(a_pool(capacity_type=kind))
        watch.look(A, B, C, D)
        watch.look(A, B, C, D, after_s=5.0)
        watch.restart(down_s)
        seen = watch.look(A, B)
        assert (seen.lost, seen.gap) == (lost, True)


def test_a_restart_counts_nothing_twice(watch: PoolWatch) -> None:
    made_at = watch.now
    late = a_member("late", created=made_at, ready=False, ready_since=made_at)
    told = replace(A, interruption=notice(InterruptionKind.TERMINATE, "ec2"))
    watch.look(told, B, C, D, late, after_s=16 * MINUTE_S)
    before = watch.status
    watch.restart(30.0)
    seen = watch.look(told, B, C, D, late)
    assert (seen.lost, seen.failed, seen.gained, seen.warned) == (0, 0, 0, False)
    assert watch.status.launch_failures == before.launch_failures == 1
    assert watch.status.loss_events == pytest.approx(1.0, abs=0.01)


def test_a_warning_is_told_once_and_stands_as_long_as_it_stands(watch: PoolWatch) -> None:
    told = replace(A, interruption=notice(InterruptionKind.REBALANCE, "ec2"))
    seen = watch.look(told, B, C, D, after_s=5.0)
    assert (seen.warned, seen.advised, seen.lost) == (True, True, 0)
    seen = watch.look(told, B, C, D, after_s=5.0)
    assert (seen.warned, seen.advised) == (False, True)
    assert not watch.look(A, B, C, D, after_s=5.0).advised


def test_a_node_belongs_to_the_first_pool_all_of_whose_labels_it_has() -> None:
    pools = {
        name: a_pool(name, node_selector=labels)
        for name, labels in {
            "zone": {"zone": "a"},
            "both": {"zone": "a", "type": "p3"},
            "never": {},
        }.items()
    }
    found = {
        "both": pool_of({"zone": "a", "type": "p3", "x": "y"}, pools),
        "zone": pool_of({"zone": "a", "type": "p4"}, pools),
        "": pool_of({"type": "p3"}, pools),
    }
    assert {name: one.name if one else "" for name, one in found.items()} == {n: n for n in found}
    assert PoolMembership([]).pool_of({"zone": "a"}) is None


def test_the_first_look_at_a_new_pool_finds_no_losses() -> None:
    watch = PoolWatch()
    seen = watch.look(A, B)
    assert (seen.nodes, seen.lost) == (2, 0)
    assert watch.status.exposure_hours == 0.0
    assert watch.now == START_S
