# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replays of live learning save work where the operator's answer is the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.live_learning import NAMESPACE, Rows, Source, fitted, observations, profiles_of
from ullage.app.fit_worker import FitTask, run_fit
from ullage.app.model_summary import essence
from ullage.cluster.records.profile import ProfileRecord
from ullage.engines.admission.judging import Risk
from ullage.engines.admission.model import LearnedModel

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


@pytest.fixture(scope="module")
def profiles(source: Source) -> dict[str, ProfileRecord]:
    random = np.random.default_rng(1)
    told = observations(source, range(12), windows=3, max_slowdown=2.0, random=random)
    return profiles_of(list(told))


def learned(profiles: dict[str, ProfileRecord], risk: Risk) -> LearnedModel:
    task = FitTask(
        accelerator="toy",
        previous=None,
        fit=True,
        wanted=tuple(f"{NAMESPACE}/{name}" for name in CLASSES),
        risk=risk,
        at_s=max(row.at_s for one in profiles.values() for row in one.status.step_time),
    )
    return run_fit(task, {(one.namespace, one.name): one for one in profiles.values()}).model


def test_its_cells_of_whole_devices_are_the_learners(
    source: Source, profiles: dict[str, ProfileRecord]
) -> None:
    ours, theirs = fitted(source, profiles, Risk()), learned(profiles, Risk())
    assert essence(ours) == essence(theirs)
    cells = Rows.of(ours, profiles).whole_cells()
    for left, right in itertools.permutations(theirs.cells.index, 2):
        whole = [(left, 100), (right, 100)]
        for figures, expected in zip(cells.among(whole), theirs.cells.among(whole), strict=True):
            assert figures[0, 1] == pytest.approx(expected[0, 1], rel=1e-5)


def test_another_budget_is_judged_as_the_learner_does(
    source: Source, profiles: dict[str, ProfileRecord]
) -> None:
    ours = Rows.of(fitted(source, profiles, Risk(eps=0.02)), profiles).judged_for(Risk(eps=0.3))
    theirs = learned(profiles, Risk(eps=0.3))
    assert ours.rungs == theirs.rungs
    assert {key: one.value for key, one in ours.thresholds.items()} == {
        key: one.value for key, one in theirs.thresholds.items()
    }
    for key, trim in theirs.trims.items():
        told = ours.trims[key]
        assert (told.slope, told.spread) == pytest.approx((trim.slope, trim.spread), rel=1e-3)
