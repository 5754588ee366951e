# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws of the tuning benchmark are played alike by all planners, and bars are of what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.progress import Progress
from bench.tuning import BARS, RULES, WIDTHS, draw, promotions_equal, synthetic_figures
from bench.tuning_replay import replays
from ullage_simulate.tuning import powers


def test_no_planner_beats_the_tight_bound() -> None:
    found = draw(9, 1)
    assert set(found.ends) == {"fifo", "longest", "static", "planned", "cost", "eager"}
    assert 1 <= found.fluid <= min(found.ends.values())
    assert found.over("fifo", "fifo") == 1


@pytest.mark.slow
def test_figures_are_means_of_draws_and_their_worst() -> None:
    draws = {count: [draw(count, seed) for seed in (0, 1)] for count in (9, 81)}
    figures = synthetic_figures(draws)
    ends = [one.ends["planned"] for one in draws[81]]
    assert figures["vs_bound_81"] == pytest.approx(sum(ends) / 2)
    assert figures["vs_bound_81_worst"] == max(ends)
    ratios = [
        sum(one.ends["fifo"] / one.ends["planned"] for one in found) / 2 for found in draws.values()
    ]
    assert figures["worst_vs_fifo"] == pytest.approx(min(ratios))


def test_a_figure_that_was_not_measured_misses_its_bar() -> None:
    assert report.missed({}, BARS) == list(BARS)


def test_promotions_are_compared_with_one_trial_after_the_other() -> None:
    assert promotions_equal(0)


def test_tables_that_are_missing_are_left_out(tmp_path: Path) -> None:
    with Progress() as progress:
        assert replays(tmp_path, RULES, powers(WIDTHS), progress) == []
