# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's choice on traces knows of a zone what its own instances and launches showed."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from bench.capacity import day, main, zone
from bench.capacity_live import live
from ullage.api.spot import SpotTerms
from ullage_simulate.spot.market import Bools, Series, SpotMarket, market
from ullage_simulate.spot.play import SpotJob, SpotRun, play, restarts

TICKS = 400
GANG = 4
JOB = SpotJob(work=GANG * 3600.0 * 10, speed=float, toll=restarts(300))


def zones(**up: Bools) -> SpotMarket:
    prices = {"cheap": 0.9, "dear": 1.1}
    series = [
        Series(name=name, tick_s=600, up=there, price=np.full(TICKS, prices[name]))
        for name, there in up.items()
    ]
    return market(series, None)


def run(here: SpotMarket, start: int = 0) -> SpotRun:
    return play(here, JOB, live(GANG, JOB.work, 36_000.0, SpotTerms()), start)


def always(there: bool = True) -> Bools:
    return np.full(TICKS, there)


def test_what_happens_in_a_zone_without_instances_changes_nothing() -> None:
    flapping = always()
    flapping[::3] = False
    calm, wild = (run(zones(cheap=always(), dear=there)) for there in (always(), flapping))
    assert calm.history == wild.history
    assert calm.evictions == 0


def test_a_launch_that_fails_sends_the_job_elsewhere() -> None:
    done = run(zones(cheap=always(there=False), dear=always()))
    assert done.paid_s[0] == 0
    idle_s = sum(600 for _, _, spot, other in done.history if not spot + other)
    assert idle_s == 600, "one launch had to fail before it knew"


def test_a_loss_is_one_eviction_and_the_rest_is_done_elsewhere() -> None:
    cheap = always()
    cheap[210:] = False
    done = run(zones(cheap=cheap, dear=always()), 200)
    assert done.evictions == 1
    assert min(done.paid_s) > 0


@pytest.mark.parametrize("text", ["mars-1", "us-east-1x=", "a=-1", "a=x", "a=inf", "a=nan"])
def test_a_zone_without_a_price_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="give the price"):
        zone(text)


def test_a_zone_may_be_priced_by_hand() -> None:
    assert zone("mars-1=1.5") == ("mars-1", 1.5)
    assert zone("us-east-1a") == ("us-east-1a", 0.98)


def test_a_pool_whose_launches_fail_is_tried_again_within_the_longest_wait() -> None:
    # the cheap zone gives nothing for a day, then all; no other zone is there
    cheap = always(there=False)
    cheap[144:] = True
    done = run(zones(cheap=cheap))
    began = next(at for at, (_, _, spot, other) in enumerate(done.history) if spot + other)
    assert 144 <= began <= 144 + 1800 // 600 + 1


@pytest.mark.parametrize("text", ["", "later", "-1", "nan", "inf"])
def test_a_day_is_a_number_from_0_on(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="number of days"):
        day(text)


def test_the_last_day_does_not_come_before_the_first() -> None:
    assert day("2.5") == 2.5
    with pytest.raises(SystemExit):
        main(["--days", "9", "3"])
