# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replays of live learning save work where the operator's answer is the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.live_learning import NAMESPACE, Source, fitted, observations, profiles_of
from ullage.app.fit_worker import FitTask, run_fit
from ullage.app.model_summary import essence
from ullage.engines.admission.judging import Risk

CLASSES = tuple(f"c{number}" for number in range(6))


@pytest.fixture(scope="module")
def source() -> Source:
    random = np.random.default_rng(0)
    return Source(
        name="toy",
        classes=CLASSES,
        families=("a", "a", "b", "b", "c", "c"),
        solo_s=(0.1, 0.2, 0.3, 0.1, 0.2, 0.3),
        busy=(None,) * len(CLASSES),
        pairs=tuple(
            (left, right, *np.exp(random.uniform(0.2, 0.9, 2)).tolist())
            for left, right in itertools.combinations(range(len(CLASSES)), 2)
        ),
    )


def test_its_cells_of_whole_devices_are_the_learners(source: Source) -> None:
    told = observations(
        source, range(12), windows=3, max_slowdown=2.0, random=np.random.default_rng(1)
    )
    profiles = profiles_of(list(told))
    risk = Risk()
    ours = fitted(source, profiles, risk)
    task = FitTask(
        accelerator="toy",
        previous=None,
        fit=True,
        wanted=tuple(f"{NAMESPACE}/{name}" for name in source.classes),
        risk=risk,
        at_s=max(row.at_s for one in profiles.values() for row in one.status.step_time),
    )
    theirs = run_fit(task, {(one.namespace, one.name): one for one in profiles.values()}).model
    assert essence(ours) == essence(theirs)
    for left, right in itertools.permutations(theirs.cells.index, 2):
        expected = theirs.cells.look_up((left, 100), (right, 100))
        assert expected is not None
        assert ours.cells.look_up((left, 100), (right, 100)) == pytest.approx(expected, rel=1e-5)


def test_another_budget_is_judged_on_the_same_process(source: Source) -> None:
    told = observations(
        source, range(12), windows=3, max_slowdown=2.0, random=np.random.default_rng(1)
    )
    profiles = profiles_of(list(told))
    strict = fitted(source, profiles, Risk(eps=0.02))
    loose = fitted(source, profiles, Risk(eps=0.3), strict)
    again = fitted(source, profiles, Risk(eps=0.3))
    assert loose.hyper == strict.hyper
    assert loose.rungs == again.rungs
    assert {key: one.value for key, one in loose.thresholds.items()} == {
        key: one.value for key, one in again.thresholds.items()
    }
