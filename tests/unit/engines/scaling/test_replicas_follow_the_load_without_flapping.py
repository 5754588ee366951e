# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Up at once, down after a hold; square waves, backlogs, and every request is answered once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.scaling.autoscaler import ScalingTerms, decide_replicas
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.simulator import RequestLoad, ScalerView, play_requests
from ullage.engines.scaling.stabilisation import ReplicaNeed, desired_replicas

ONE = Configuration(
    accelerator="l4",
    share_percent=50,
    service=ServiceTime(mean_s=0.4, sigma=0.6),
    cost=1.0,
)
TERMS = ScalingTerms(
    target=LatencyTarget(limit_s=2.0, quantile=0.99), least=1, most=50, bin_s=15.0, launch_s=45.0
)


def decided(rates: list[float], current: int = 1, waiting: int = 0) -> int:
    return decide_replicas(
        rates, [], ONE, TERMS, now_s=15.0 * len(rates), current=current, waiting=waiting
    ).replicas


def test_a_higher_load_gets_more_at_once() -> None:
    assert decided([20.0] * 30) > decided([5.0] * 30) >= 3  # 5 a second of 0.4 s keep 2 busy


def test_what_waits_already_counts() -> None:
    assert decided([5.0] * 30, waiting=300) > decided([5.0] * 30)


def test_replicas_stay_within_their_bounds() -> None:
    assert decided([0.0] * 30) == 1
    assert decided([1e6] * 30) == 50


def test_fewer_only_when_fewer_were_enough_all_the_time() -> None:
    needs = [
        ReplicaNeed(at_s=0, replicas=9),
        ReplicaNeed(at_s=60, replicas=3),
        ReplicaNeed(at_s=100, replicas=2),
    ]
    assert desired_replicas(needs, 100, 120, 9) == 9
    assert desired_replicas(needs, 100, 100, 9) == 3
    assert desired_replicas(needs, 100, 40, 9) == 2
    assert desired_replicas(needs, 100, 300, 9) == 9  # not seen for so long
    with pytest.raises(ValueError, match="at least one need"):
        desired_replicas([], 0, 60, 1)


def test_a_square_wave_faster_than_the_hold_changes_nothing() -> None:
    needs: list[ReplicaNeed] = []
    current, seen = 8, set()
    for at in range(0, 3600, 15):
        needs.append(ReplicaNeed(at_s=at, replicas=8 if at // 60 % 2 else 2))
        current = desired_replicas(needs, at, 120, current)
        seen.add(current)
    assert seen == {8}


@given(
    replicas=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    hold_s=st.floats(0, 300),
    current=st.integers(1, 100),
)
def test_it_is_never_below_the_need_and_never_above_both(
    replicas: list[int], hold_s: float, current: int
) -> None:
    needs = [ReplicaNeed(at_s=15.0 * at, replicas=count) for at, count in enumerate(replicas)]
    found = desired_replicas(needs, needs[-1].at_s, hold_s, current)
    assert replicas[-1] <= found <= max(replicas[-1], current)


@given(
    seed=st.integers(0, 2**32 - 1),
    wanted=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    launch_s=st.floats(0, 60),
)
def test_every_request_is_served_once_whatever_the_scaler_says(
    seed: int, wanted: list[int], launch_s: float
) -> None:
    generator = np.random.default_rng(seed)
    requests = RequestLoad(
        arrival_s=np.cumsum(generator.exponential(0.3, 400)),
        service_s=generator.exponential(0.8, 400),
    )
    asked = iter(wanted * 40)
    seen: list[ScalerView] = []

    def scaler(one: ScalerView) -> int:
        seen.append(one)
        return next(asked)

    played = play_requests(requests, scaler, limit_s=1, bin_s=5, launch_s=launch_s, first=2)
    assert (played.latency_s >= requests.service_s - 1e-9).all()
    assert played.replica_s >= requests.service_s.sum() - 1e-6
    assert all(one.ready >= 1 and one.current >= one.ready and one.waiting >= 0 for one in seen)
    assert all(count >= 1 for _, count in played.changes)
    assert sum(one.ended for one in seen) <= 400


def test_a_replica_serves_after_its_launch_and_is_paid_for_before() -> None:
    requests = RequestLoad(arrival_s=np.asarray([0.0, 0.1, 20.0]), service_s=np.asarray([10.0] * 3))
    played = play_requests(requests, lambda _: 2, limit_s=1, bin_s=1.0, launch_s=4.0, first=1)
    assert played.latency_s.tolist() == pytest.approx([10.0, 14.9, 10.0])
    assert played.replica_s == pytest.approx(30 + 29)  # the second one from its order on


def test_no_replica_from_the_beginning_is_refused() -> None:
    requests = RequestLoad(arrival_s=np.asarray([0.0]), service_s=np.asarray([1.0]))
    with pytest.raises(ValueError, match="from the beginning"):
        play_requests(requests, lambda _: 1, limit_s=1, bin_s=1, launch_s=1, first=0)
