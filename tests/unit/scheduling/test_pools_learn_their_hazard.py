# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hazard, launches and availability follow from what was seen, and survive a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.pool_watch import HOUR_S, MINUTE_S, PoolWatch, a_member, a_pool, notice
from ullage.api.interruptions import InterruptionKind
from ullage.api.reasons import Reason
from ullage.cluster.records.pool import CapacityType
from ullage.engines.capacity.hazard import (
    DEFAULT_PRIOR_PER_HOUR,
    AdvisorBand,
    Hazard,
    band_rate_per_hour,
    prior,
)
from ullage.scheduling.capacity.hazard import Learning, prior_of

NODES = tuple(a_member(name) for name in "abcd")


@pytest.fixture
def watch() -> PoolWatch:
    found = PoolWatch()
    found.look(*NODES)
    found.hold(*NODES, hours=20)
    return found


def test_a_young_pool_has_the_hazard_of_its_prior() -> None:
    for band in (None, AdvisorBand.OVER_20):
        watch = PoolWatch(a_pool(advisor_band=band))
        watch.look()
        rate = DEFAULT_PRIOR_PER_HOUR if band is None else band_rate_per_hour(band)
        assert watch.status.hazard_per_hour == pytest.approx(rate)


def test_capacity_that_is_not_taken_away_starts_far_below_spot() -> None:
    spot, on_demand = a_pool(), a_pool(capacity_type=CapacityType.ON_DEMAND)
    one, other = (prior_of(pool, Learning()) for pool in (spot, on_demand))
    assert 0 < other.events * 50 < one.events


def test_exposure_counts_pool_hours_not_instance_hours(watch: PoolWatch) -> None:
    alone = PoolWatch()
    alone.look(NODES[0])
    alone.hold(NODES[0], hours=20)
    assert watch.status.exposure_hours == pytest.approx(alone.status.exposure_hours)
    assert 17 < watch.status.exposure_hours < 20


def test_an_empty_pool_forgets_and_is_not_exposed(watch: PoolWatch) -> None:
    before = watch.status.exposure_hours
    gone = [replace(node, unschedulable=True) for node in NODES]
    watch.look(*gone, after_s=5.0)
    watch.look(after_s=5.0)
    watch.hold(hours=48)
    assert watch.status.exposure_hours == pytest.approx(before / 2, rel=1e-3)
    assert watch.status.loss_events == 0.0


def test_a_bulk_loss_is_one_event_however_its_nodes_go(watch: PoolWatch) -> None:
    watch.look(*NODES[1:], after_s=5.0)
    watch.look(*NODES[2:], after_s=5 * MINUTE_S)
    watch.look(after_s=5 * MINUTE_S)
    loss = watch.status.last_loss
    assert loss is not None
    assert (loss.nodes, loss.lost, loss.open) == (4, 4, True)
    assert watch.status.loss_events == pytest.approx(1.0, abs=0.01)
    assert watch.status.mean_lost_fraction == pytest.approx(1.0, abs=0.01)
    assert not watch.status.available


@pytest.mark.parametrize("capacity_type", CapacityType)
def test_after_a_loss_of_spot_alone_nothing_is_started_for_a_while(
    capacity_type: CapacityType,
) -> None:
    watch = PoolWatch(a_pool(capacity_type=capacity_type))
    watch.look(*NODES)
    watch.look(*NODES[1:], after_s=5.0)
    assert watch.status.last_loss is not None
    assert watch.status.available is (capacity_type is not CapacityType.SPOT)


def test_partial_losses_are_remembered_as_a_fraction(watch: PoolWatch) -> None:
    watch.look(*NODES[1:], after_s=5.0)
    assert watch.status.mean_lost_fraction == pytest.approx(0.25)


def test_after_new_nodes_came_a_loss_is_an_event_of_its_own(watch: PoolWatch) -> None:
    watch.look(*NODES[1:], after_s=5.0)
    new = a_member("new", created=watch.now)
    watch.look(*NODES[1:], new, after_s=90.0)
    assert watch.status.last_loss is not None
    assert not watch.status.last_loss.open
    assert watch.status.available
    watch.look(*NODES[1:], after_s=90.0)
    assert watch.status.loss_events == pytest.approx(2.0, abs=0.01)


def test_the_figures_are_those_of_the_engine(watch: PoolWatch) -> None:
    expected = Hazard(prior=prior())
    for _ in range(240):
        expected = expected.after(300 / HOUR_S, held=True)
    expected = expected.after(5 / HOUR_S, held=True).lost(0.5)
    watch.look(*NODES[2:], after_s=5.0)
    assert watch.status.exposure_hours == pytest.approx(expected.hours)
    assert watch.status.hazard_per_hour == pytest.approx(expected.rate_per_hour)


def test_a_warning_is_weak_evidence_and_counts_once_a_quarter_hour(watch: PoolWatch) -> None:
    told = [replace(one, interruption=notice(InterruptionKind.REBALANCE)) for one in NODES]
    watch.look(told[0], *NODES[1:], after_s=5.0)
    watch.look(*told, after_s=5.0)
    assert watch.status.loss_events == pytest.approx(0.1, abs=0.001)
    assert not watch.status.available
    watch.look(*NODES, after_s=5.0)
    assert watch.status.available


def test_a_failed_launch_leaves_the_pool_alone_and_a_low_score_for_longer() -> None:
    waits = []
    for score in (9, 1):
        watch = PoolWatch(a_pool(placement_score=score))
        watch.look()
        made_at = watch.now
        late = a_member("late", created=made_at, ready=False, ready_since=made_at)
        watch.look(late, after_s=5.0)
        watch.look(late, after_s=16 * MINUTE_S)
        assert (watch.status.launch_failures, watch.status.available) == (1, False)
        failed_at = watch.now
        while not watch.status.available:
            watch.look(late, after_s=10.0)
        waits.append(watch.now - failed_at)
        watch.look(late, a_member("fine", created=made_at), after_s=5.0)
        assert watch.status.launch_failures == 0
    assert 60 <= waits[0] < waits[1]


def test_a_restart_loses_nothing(watch: PoolWatch) -> None:
    """The same story with and without restarts in between ends with the same figures."""
    other = PoolWatch()
    other.look(*NODES)
    other.hold(*NODES, hours=20)
    other.restart()
    for one in (watch, other):
        one.look(*NODES[1:], after_s=5.0)
        if one is other:
            one.restart()
        one.look(*NODES[2:], after_s=5 * MINUTE_S)
    other.restart(down_s=HOUR_S)
    watch.look(*NODES[2:], after_s=HOUR_S)
    other.look(*NODES[2:])
    assert other.status.last_loss == watch.status.last_loss
    for figure in ("hazard_per_hour", "exposure_hours", "loss_events", "mean_lost_fraction"):
        assert getattr(other.status, figure) == pytest.approx(
            getattr(watch.status, figure), rel=2e-3
        ), figure


def test_a_longer_memory_and_a_heavier_prior_are_the_policys_to_choose(watch: PoolWatch) -> None:
    slow = PoolWatch(learning=Learning(half_life_h=480.0, prior_hours=100.0))
    slow.look(*NODES)
    slow.hold(*NODES, hours=20)
    assert slow.status.exposure_hours > watch.status.exposure_hours
    for one in (watch, slow):
        one.look(after_s=5.0)
    assert slow.status.hazard_per_hour is not None
    assert watch.status.hazard_per_hour is not None
    assert slow.status.hazard_per_hour < watch.status.hazard_per_hour


def test_the_hazard_is_known_once_more_was_seen_than_the_prior_counts() -> None:
    watch = PoolWatch()
    watch.look(*NODES)
    (known,) = watch.status.conditions
    assert (known.status, known.reason) == ("False", Reason.HAZARD_FROM_PRIOR)
    watch.hold(*NODES, hours=12)
    (known,) = watch.status.conditions
    assert (known.status, known.reason) == ("True", Reason.HAZARD_LEARNED)
