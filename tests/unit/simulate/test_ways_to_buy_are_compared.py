# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Spot pools are drawn and read as told; every way to buy plays under the same laws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ullage.engines.capacity.records import CapacityType
from ullage_simulate.spot.comparison import (
    SpotComparison,
    SpotOutcome,
    SpotRequest,
    compare,
    to_json,
)
from ullage_simulate.spot.market import ON_DEMAND, Series, SpotMarket, generate, market
from ullage_simulate.spot.play import Counts, SpotJob, SpotRun, play, restarts
from ullage_simulate.spot.readers import read_series
from ullage_simulate.trace import JobTraceError

SMALL = SpotRequest(
    starts=2, work_h=6, deadline_h=9, replicas=2, select=("pool=zone-c", "pool=zone-w")
)


def compared(asked: SpotRequest) -> SpotComparison:
    return compare(asked, lambda _policy, _starts: lambda _done: None)


def with_(**changes: object) -> SpotRequest:
    return replace(SMALL, **changes)  # type: ignore[arg-type]


def a_series(up: list[int], name: str = "a", price: float = 1.0) -> Series:
    return Series(name=name, tick_s=600, up=np.array(up) > 0, price=np.full(len(up), price))


def test_on_demand_alone_costs_exactly_its_hours() -> None:
    found = compared(with_(restart_s=600.0))
    alone = found.outcomes[0]
    assert alone.policy == ON_DEMAND
    assert [one.dollars for one in alone.runs] == pytest.approx([2 * 3.06 * (6 + 600 / 3600)] * 2)
    figures = found.figures()[ON_DEMAND]
    assert (figures["saved"], figures["late"], figures["evictions"]) == (0.0, 0, 0.0)


def test_the_same_seed_gives_the_same_and_another_seed_another() -> None:
    first, again = (to_json(compared(SMALL), each=True) for _ in range(2))
    assert first == again
    assert to_json(compared(with_(seed=1)), each=True) != first
    body = json.loads(first)
    assert list(body["policies"]) == [ON_DEMAND, "greedy", "uniform-progress", "cost-per-work"]
    for one in body["policies"].values():
        assert one["dollars"] == pytest.approx(sum(each["dollars"] for each in one["each"]) / 2)


def test_deadlines_are_kept_with_and_without_notices() -> None:
    for asked in (SMALL, with_(notice_s=0.0, checkpoint_s=600.0)):
        figures = compared(asked).figures()
        assert figures["greedy"]["late"] == figures["uniform-progress"]["late"] == 0


def test_drawn_zones_have_the_hazards_and_gaps_that_were_asked_for() -> None:
    series = generate(days=400)
    by_name = {one.name: one for one in series}
    for name, hazard, part in (("zone-f", 0.44, 0.59), ("zone-x", 0.15, 0.887)):
        up = by_name[name].up
        losses = int(np.sum(up[:-1] & ~up[1:]))
        assert losses / (up.sum() / 6) == pytest.approx(hazard, rel=0.2)
        assert by_name[name].available == pytest.approx(part, abs=0.06)


class Fixed:
    """Holds one instance of the first pool whenever it gives."""

    def __call__(self, here: SpotMarket, run: SpotRun, tick: int) -> Counts:
        return (1, 0) if here.gives(tick)[0] else (0, 1)


def job(**changes: object) -> SpotJob:
    made: dict[str, object] = {"work": 6000.0, "speed": float, "toll": restarts(0.0)}
    return SpotJob(**(made | changes))  # type: ignore[arg-type]


LOSING = [1] * 5 + [0] + [1] * 40


def test_a_notice_saves_all_but_the_seconds_of_its_checkpoint() -> None:
    here = market([a_series(LOSING)], 3.0)
    run = play(here, job(noticed=True, flush_s=30.0), Fixed())
    assert (run.lost, run.evictions) == (30.0, 1)
    assert run.elapsed_s == 6030.0
    assert run.dollars == pytest.approx(600 / 3600 * 3 + 5430 / 3600)


def test_without_notice_a_loss_falls_back_to_the_last_checkpoint() -> None:
    here = market([a_series(LOSING)], 3.0)
    assert play(here, job(noticed=False, checkpoint_s=900.0), Fixed()).lost == 300.0
    assert play(here, job(noticed=False), Fixed()).lost == 3000.0


def test_whoever_loses_a_part_starts_again() -> None:
    both = market([a_series(LOSING, "a"), a_series([1] * 46, "b")], None)

    def rest(here: SpotMarket, run: SpotRun, tick: int) -> Counts:
        return (1, 1) if tick == 0 else run.held

    halves = job(speed=lambda count: count / 2, toll=restarts(120.0))
    run = play(both, halves, rest)
    # 120 s for the start, 5 ticks of both, 120 s for the loss, the rest by one at half the speed
    assert run.elapsed_s == 3000 + 120 + (6000 - 2880) * 2


def test_traces_that_end_too_early_are_told() -> None:
    with pytest.raises(ValueError, match="end before the job does"):
        play(market([a_series([1, 1])], None), job(), lambda *_: (1,))


def written(folder: Path, name: str, up: list[int], **more: object) -> Path:
    folder.mkdir(exist_ok=True)
    body = {"metadata": {"gap_seconds": 600}, "data": up} | more
    file = folder / f"{name}.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    return file


def test_files_say_when_instances_are_up(tmp_path: Path) -> None:
    written(tmp_path, "av__1-node__zone-1__v100", [1, 1, 0, 1], prices=[2, 2, 3, 3])
    written(tmp_path, "av__1-node__zone-2__v100", [0, 4, 4, 3])
    first, second = read_series(str(tmp_path))
    assert (first.name, first.up.tolist()) == ("zone-1", [True, True, False, True])
    assert first.price.tolist() == [2, 2, 3, 3]
    # a pool gives when it gives all the instances that were asked for
    assert (second.up.tolist(), len(second.price)) == ([False, True, True, False], 0)
    assert len(read_series(str(tmp_path / "*zone-2*"))) == 1


def test_an_index_that_says_otherwise_is_believed(tmp_path: Path) -> None:
    written(tmp_path, "a", [1, 0, 0, 0])
    index = "file,nodes_requested,mean_fraction_available\na.json,1,0.75\n"
    (tmp_path / "skypilot_index.csv").write_text(index, encoding="utf-8")
    with pytest.raises(JobTraceError, match="1 = up"):
        read_series(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policies": ("luck",)}, "no way to buy 'luck'"),
        ({"deadline_h": 6.1}, "h too early"),
        ({"deadline_h": 900.0}, "less than the deadline"),
        ({"select": ("zone-c",)}, "write pool=NAME"),
        ({"prices": ("zone-q=1",)}, "no such pool"),
        ({"trace": "nowhere.json"}, "no such file"),
        ({"min_replicas": 3}, "no more of them at least than at most"),
        ({"flush_s": -1.0}, "no time is below 0"),
    ],
)
def test_what_cannot_be_is_said_in_words(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compared(with_(**changes))


def test_pools_without_a_price_are_asked_for_one(tmp_path: Path) -> None:
    file = written(tmp_path, "a", [1] * 200)
    asked = with_(trace=str(file), select=(), prices=(f"{ON_DEMAND}=3",))
    with pytest.raises(ValueError, match="--price a=DOLLARS"):
        compared(asked)
    priced = with_(trace=str(file), select=(), prices=(f"{ON_DEMAND}=3", "spot=1"))
    assert compared(priced).figures()["greedy"]["dollars"] == pytest.approx(2 * (6 + 0.2))


def test_hazards_are_known_from_the_past_alone() -> None:
    up = [1] * 50 + [0] * 5 + [1] * 50
    whole, cut = market([a_series(up)], None), market([a_series(up[:40])], None)
    assert whole.hazard[0, :40].tolist() == cut.hazard[0].tolist()
    assert whole.hazard[0, 51] > whole.hazard[0, 49]
    assert whole.pools(0)[0].capacity_type is CapacityType.SPOT


def ended(hours: float, dollars: float, **more: object) -> SpotRun:
    made: dict[str, object] = {"held": (0, 0), "since": [0, 0], "first": 0, "paid_s": [0.0, 0.0]}
    return SpotRun(**(made | {"elapsed_s": 3600 * hours, "dollars": dollars} | more))  # type: ignore[arg-type]


def test_figures_are_means_over_the_starts_beside_on_demand() -> None:
    outcome = SpotOutcome(
        policy="some",
        runs=(ended(6, 20, evictions=1, starts=2, lost=1800), ended(8, 40, evictions=2, starts=5)),
        spot_s=(3600, 7200),
        on_demand_s=(0, 1800),
        late_s=(0.0, 900.0),
    )
    figures = outcome.figures(work_h=5, on_demand=40)
    assert figures == pytest.approx(
        {
            "starts": 2,
            "dollars": 30,
            "dollars_per_work_h": 6,
            "vs_on_demand": 0.75,
            "saved": 0.25,
            "spot_instance_h": 1.5,
            "on_demand_instance_h": 0.25,
            "mean_h": 7,
            "max_h": 8,
            "p99_h": 7.98,
            "late": 1,
            "worst_late_h": 0.25,
            "evictions": 1.5,
            "job_starts": 3.5,
            "lost_work_h": 0.25,
        }
    )


def test_after_the_traces_spot_is_gone_and_the_last_price_holds_on() -> None:
    trace = Series(name="a", tick_s=600, up=np.array([True] * 3), price=np.array([1.0, 2.0, 4.0]))
    here = market([trace], 3.0)
    assert [here.gives(tick)[0] for tick in (2, 3, 9)] == [True, False, False]
    assert here.gives(9)[1]
    assert [here.prices(tick)[0] for tick in (1, 2, 3, 9)] == [2.0, 4.0, 4.0, 4.0]


def test_notes_say_what_a_loss_takes() -> None:
    def notes(**changes: object) -> str:
        return " ".join(compared(with_(starts=1, policies=(), **changes)).notes)

    assert "announced 120 s before: a checkpoint of 30 s saves the work" in notes()
    assert "falls back to the last checkpoint (900 s)" in notes(notice_s=0.0, checkpoint_s=900.0)
    never = notes(notice_s=0.0, checkpoint_s=0.0, deadline_h=40.0)
    assert "(none but when asked to stop)" in never
    assert "drawn by the seed" in notes()
