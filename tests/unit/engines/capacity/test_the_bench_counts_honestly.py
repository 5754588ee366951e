# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The capacity benchmark: encodings are guarded, windows and deciles counted, bars judged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import capacity
from bench.capacity_deadline import play
from bench.capacity_hazard import deciles, predictions
from bench.capacity_traces import Trace, load
from bench.capacity_zones import JOB, World, rules
from bench.devicechoice_tables import TableError
from bench.report import Figure, missed
from ullage.engines.capacity.deadline import ProgressLine, uniform_progress
from ullage_simulate.spot import play as spot_play
from ullage_simulate.spot.market import Series, market

HEAD = "file,nodes_requested,batch,zone,instance_tag,mean_fraction_available\n"


def written(folder: Path, up: list[int], mean: float) -> Path:
    (folder / "spot" / "skypilot").mkdir(parents=True)
    body = {"metadata": {"gap_seconds": 600}, "data": up}
    (folder / "spot" / "skypilot" / "a.json").write_text(json.dumps(body), encoding="utf-8")
    line = f"a.json,2,batch,zone,v100_1,{mean}\n"
    (folder / "spot" / "skypilot_index.csv").write_text(HEAD + line, encoding="utf-8")
    return folder


def test_a_trace_counts_instances_that_are_up(tmp_path: Path) -> None:
    (found,) = load(written(tmp_path, [2, 2, 1, 0], 0.625))
    assert (found.nodes, found.gap_s, found.up.tolist()) == (2, 600, [2, 2, 1, 0])


def test_an_inverted_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="1 = up"):
        load(written(tmp_path, [0, 0, 1, 2], 0.625))


def test_without_data_nothing_is_measured_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capacity.main(["--data", str(tmp_path)]) == 0
    assert "Nothing ran" in capsys.readouterr().out


def test_a_bar_without_a_figure_is_missed() -> None:
    met: dict[str, Figure] = dict.fromkeys(capacity.BARS, 0.0) | {"models_beating_baseline": 6}
    assert missed(met, capacity.BARS) == []
    assert missed(met | {"misses": 1}, capacity.BARS) == ["misses"]
    del met["cost_per_work"]
    assert missed(met, capacity.BARS) == ["cost_per_work"]


def test_a_window_pays_for_starts_and_only_until_the_work_is_done() -> None:
    line = ProgressLine(work_s=1000, deadline_s=3000, changeover_s=60, tick_s=100)
    spot = play(uniform_progress, line, [True] * 40)
    assert (spot.spot_s, spot.on_demand_s, spot.starts, spot.late_s) == (1060, 0, 1, 0)
    none = play(uniform_progress, line, [])
    assert (none.spot_s, none.starts, none.late_s) == (0, 1, 0)
    assert none.on_demand_s == 1060


def test_deciles_compare_what_was_said_with_what_was_seen() -> None:
    said = np.linspace(0, 1, 100)
    groups = deciles(said, (said > 0.5).astype(float))
    assert [count for _, _, count in groups] == [10] * 10
    assert groups[0][1] == 0.0
    assert groups[-1][1] == 1.0


def test_predictions_know_the_past_alone() -> None:
    up = [1] * 200 + [0] * 20 + [1] * 200
    one = Trace(name="t", batch="b", zone="z", instance="i", gap_s=300, up=np.array(up), nodes=1)
    predicted, happened = predictions(one, 48.0)
    cut = Trace(
        name="t", batch="b", zone="z", instance="i", gap_s=300, up=np.array(up[:150]), nodes=1
    )
    earlier, calm = predictions(cut, 48.0)
    assert predicted[: len(earlier)] == earlier
    assert not any(calm)
    # four quarter hours lie within the hour before the loss
    assert sum(happened) == 4


def zones(up: NDArray[np.bool_]) -> World:
    names = ("us-east-1d", "us-east-1f")
    price = np.ones(up.shape[1])
    series = [
        Series(name=name, tick_s=360, up=row, price=price)
        for name, row in zip(names, up, strict=True)
    ]
    return World(market=market(series, None), lives=np.full(up.shape, 100))


def test_a_zone_that_goes_down_costs_an_eviction_and_its_overheads() -> None:
    up = np.ones((2, 4000), dtype=bool)
    calm = zones(up)
    still = spot_play.play(calm.market, JOB, rules(calm)["fixed"])
    assert (still.evictions, still.done) == (0, 288.0 * 3600)
    assert still.dollars == pytest.approx(still.elapsed_s / 3600 * (16 + 3.06))
    up[0, 50] = False
    broken = zones(up)
    lost = spot_play.play(broken.market, JOB, rules(broken)["fixed"])
    assert lost.evictions == 1
    # a tick without machines, the eviction's and the change's minutes
    assert lost.elapsed_s - still.elapsed_s == pytest.approx(360 + 480)
