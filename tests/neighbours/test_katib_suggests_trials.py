# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Katib's own suggestion services choose the trials of a TuningJob to its end.

They keep the contract of the fake one, which the fast tests ask.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fakes import katib_promises
from fakes.katib_search import katib_rig
from neighbours.katib import SuggestionProgram, goptuna, optuna

Program = Callable[[Path], AbstractContextManager[SuggestionProgram]]
each = pytest.mark.parametrize(
    ("program", "algorithm"),
    [
        (optuna, "tpe"),
        (optuna, "multivariate-tpe"),
        (optuna, "random"),
        (goptuna, "tpe"),
        (goptuna, "cmaes"),
        (goptuna, "random"),
    ],
)


@each
async def test_trials_of_a_search_come_from_it(
    program: Program, algorithm: str, tmp_path: Path
) -> None:
    with program(tmp_path) as service:
        await katib_promises.trials_of_a_search_come_from_it(service.address, algorithm)


@each
async def test_a_search_goes_on_after_a_restart_of_both(
    program: Program, algorithm: str, tmp_path: Path
) -> None:
    with program(tmp_path) as service:
        await katib_promises.it_goes_on_where_it_ended(service.address, algorithm, service.restart)


@pytest.mark.parametrize("program", [optuna, goptuna])
async def test_unknown_algorithms_are_refused(program: Program, tmp_path: Path) -> None:
    with program(tmp_path) as service:
        await katib_promises.it_refuses_what_it_does_not_know(service.address)


async def test_a_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Sobol's begins again: its old points are asked for and left out."""
    with goptuna(tmp_path) as service:
        await katib_promises.it_goes_on_where_it_ended(service.address, "sobol", service.restart)


async def test_a_grid_is_used_up(tmp_path: Path) -> None:
    space = [
        {"name": "act", "type": "Categorical", "values": ["relu", "tanh"]},
        {"name": "width", "type": "Int", "min": 16, "max": 48, "step": 16},
    ]
    with optuna(tmp_path) as service:
        async with katib_rig(searchSpace=space, trials=6, parallelism=4) as rig:
            rig.score = lambda parameters: float(parameters["width"])
            await rig.run(service.address, "grid")
            points = {
                (one["parameters"]["act"], one["parameters"]["width"]) for one in rig.suggestions
            }
            assert len(points) == 6
            assert rig.ended


async def test_what_it_is_told_counts(tmp_path: Path) -> None:
    """After 40 trials the estimator draws near the best; told nothing it would draw evenly."""
    space = [{"name": "x", "type": "Float", "min": "0", "max": "100"}]
    with optuna(tmp_path) as service:
        async with katib_rig(searchSpace=space, trials=60, parallelism=1) as rig:
            rig.score = lambda parameters: -abs(float(parameters["x"]) - 20)
            await rig.run(service.address, "tpe", settings=(("random_state", "7"),))
            last = [float(one["parameters"]["x"]) for one in rig.suggestions[40:]]
            near = sum(abs(x - 20) < 10 for x in last)
            assert near >= 12, f"even draws would bring 4 of 20: {last}"
