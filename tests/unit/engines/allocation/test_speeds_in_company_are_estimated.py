# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Completion of rows that were measured in part, on the published table of pairs."""

from __future__ import annotations

import numpy as np
import pytest

from bench.policy import column_mean
from ullage.engines.allocation.estimator import complete, renewed
from ullage.engines.allocation.model import ProblemError
from unit.engines.allocation.instances import company, families


def _errors(part: float, *, whole_family: bool) -> tuple[float, float]:
    """Mean absolute error of neighbours and of the column mean over hidden cells, three seeds."""
    table, names = company(), np.array(families())
    ours: list[float] = []
    plain: list[float] = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        for job in range(len(table)):
            others = names != names[job] if whole_family else np.arange(len(table)) != job
            known = np.flatnonzero(~np.isnan(table[job]))
            seen = rng.choice(known, max(1, round(part * len(known))), replace=False)
            row = np.full(table.shape[1], np.nan)
            row[seen] = table[job, seen]
            found = complete(table[others], row).values
            hidden = np.setdiff1d(known, seen)
            hidden = hidden[~np.isnan(found[hidden])]
            ours += np.abs(found - table[job])[hidden].tolist()
            plain += np.abs(column_mean(table[others], row) - table[job])[hidden].tolist()
    return float(np.mean(ours)), float(np.mean(plain))


def test_a_job_with_a_tenth_measured_is_within_0_11() -> None:
    ours, plain = _errors(0.1, whole_family=False)
    assert ours <= 0.11
    assert ours < plain


def test_a_job_of_an_unknown_family_is_estimated_better_than_by_the_mean() -> None:
    ours, plain = _errors(0.1, whole_family=True)
    assert ours < plain


def test_more_measurements_give_less_error() -> None:
    few, _ = _errors(0.1, whole_family=False)
    many, _ = _errors(0.3, whole_family=False)
    assert many < few


def test_measured_cells_stay_and_are_certain() -> None:
    table = company()
    row = np.full(table.shape[1], np.nan)
    row[[3, 40]] = [0.25, 0.75]
    found = complete(table, row)
    assert found.values[[3, 40]].tolist() == [0.25, 0.75]
    assert found.confidence[[3, 40]].tolist() == [1.0, 1.0]
    assert found.observed == 2
    estimated = np.delete(found.confidence, [3, 40])
    assert ((estimated >= 0) & (estimated < 1)).all()
    assert 1 <= found.references <= len(table)


def test_a_column_that_no_one_measured_stays_unknown() -> None:
    references = np.array([[0.5, np.nan, 0.4], [0.6, np.nan, 0.5]])
    found = complete(references, np.array([0.55, np.nan, np.nan]))
    assert np.isnan(found.values[1])
    assert found.confidence[1] == 0.0
    assert not np.isnan(found.values[2])


def test_without_any_measurement_it_is_the_column_mean() -> None:
    table = company()
    row = np.full(table.shape[1], np.nan)
    np.testing.assert_allclose(complete(table, row).values, column_mean(table, row))


def test_the_nearest_reference_decides() -> None:
    references = np.array([[0.9, 0.9, 0.9], [0.2, 0.2, 0.1]])
    found = complete(references, np.array([0.9, 0.9, np.nan]))
    assert found.values[2] == pytest.approx(0.9, abs=1e-6)


def test_disagreeing_references_lower_the_confidence() -> None:
    row = np.array([0.5, np.nan])
    agreed = complete(np.array([[0.5, 0.6], [0.5, 0.6]]), row)
    apart = complete(np.array([[0.5, 0.1], [0.5, 0.9]]), row)
    assert apart.confidence[1] < agreed.confidence[1]


def test_reports_replace_a_speed_step_by_step() -> None:
    speed = 1.0
    for _ in range(20):
        speed = renewed(speed, 3.0)
    assert speed == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize(
    ("references", "row"),
    [(np.ones((2, 3)), np.ones(2)), (np.full((2, 3), 5.0), np.ones(3)), (np.ones(3), np.ones(3))],
)
def test_values_that_are_not_normalised_are_refused(
    references: np.ndarray, row: np.ndarray
) -> None:
    with pytest.raises(ProblemError):
        complete(references, row)
