# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A threshold admits only what an exact test on past co-locations certifies."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from bench.clopper_pearson import risk_bound
from ullage.engines.admission.calibration import (
    GRID,
    Band,
    Scored,
    band_of,
    binomial_tail,
    fixed_sequence,
    rows_needed,
    thresholds,
    trials_needed,
)
from ullage.engines.admission.records import Group

RISK = {"eps": 0.05, "confidence": 0.80}


def row(z: float, *, violated: bool = False) -> Scored:
    return Scored(z=z, violated=violated, group=Group.KNOWN, band=Band.MEDIUM)


def test_clean_rows_that_certify_five_percent() -> None:
    assert [rows_needed(v, 0.05, 0.80) for v in range(3)] == [32, 59, 85]


@pytest.mark.parametrize(("tightest", "band"), [(1.3, Band.TIGHT), (1.31, Band.CLOSE),
    (1.6, Band.CLOSE), (2.0, Band.MEDIUM), (2.5, Band.MEDIUM), (3.0, Band.WIDE),
    (math.inf, Band.WIDE)])  # fmt: skip
def test_bands_close_at_their_upper_edge(tightest: float, band: Band) -> None:
    assert band_of(tightest) is band


@pytest.mark.parametrize("tightest", [0.0, -1.0, math.nan])
def test_no_band_for_what_is_no_objective(tightest: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        band_of(tightest)


@given(st.integers(0, 60), st.integers(1, 400), st.floats(0.001, 0.999))
def test_the_tail_is_the_binomials(successes: int, trials: int, probability: float) -> None:
    expected = binom.cdf(successes, trials, probability)
    assert binomial_tail(successes, trials, probability) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("probability", "tail"), [(0.0, 1.0), (1.0, 0.0)])
def test_what_is_certain_has_a_tail_too(probability: float, tail: float) -> None:
    assert binomial_tail(3, 8, probability) == tail
    assert binomial_tail(8, 8, probability) == 1.0


def test_the_tail_is_exact_where_fractions_can_say_it() -> None:
    p = Fraction(1, 20)
    exact = sum(math.comb(59, k) * p**k * (1 - p) ** (59 - k) for k in range(2))
    assert binomial_tail(1, 59, 0.05) == pytest.approx(float(exact), abs=1e-14)


@pytest.mark.parametrize(("violations", "rows"), [(0, 32), (1, 59), (2, 85), (10, 40), (59, 60)])
def test_the_risk_bound_is_clopper_pearsons(violations: int, rows: int) -> None:
    expected = beta.ppf(0.8, violations + 1, rows - violations)
    assert risk_bound(violations, rows, 0.8) == pytest.approx(expected, abs=1e-9)
    assert risk_bound(rows, rows, 0.8) == 1.0


def test_fifty_eight_clean_rows_admit_nothing_and_the_fifty_ninth_does() -> None:
    few = fixed_sequence([row(5.0)] * 58, **RISK)
    assert few.refuses
    assert (few.rows, few.needed) == (58, 59)
    enough = fixed_sequence([row(5.0)] * 59, **RISK)
    assert enough.value == GRID[-1]
    assert (enough.admitted, enough.violations) == (59, 0)


def test_the_run_ends_at_the_first_margin_that_fails_even_if_a_looser_one_would_pass() -> None:
    rows = [row(3.05)] * 59 + [row(2.05, violated=True)] * 4 + [row(1.05)] * 200
    found = fixed_sequence(rows, **RISK)
    assert (found.admitted, found.violations) == (59, 0)
    assert found.value == pytest.approx(2.1)


def test_a_looser_margin_must_be_surer_than_the_first() -> None:
    """One violation of 59 begins at 80 %; one of 93 is what 95 % asks for."""
    assert rows_needed(1, 0.05, 0.95) == 93
    strict = [row(3.05, violated=True), *([row(3.05)] * 58)]
    assert fixed_sequence([*strict, *([row(2.05)] * 33)], **RISK).value == pytest.approx(3.0)
    found = fixed_sequence(
        [row(2.55, violated=True), *([row(3.05)] * 58), *([row(2.55)] * 34)], **RISK
    )
    assert (found.admitted, found.violations) == (93, 1)
    surer = [row(3.05)] * 135 + [row(2.05, violated=True)] * 2 + [row(2.05)] * 23
    assert fixed_sequence(surer, **RISK).value == pytest.approx(0.0)
    assert fixed_sequence(surer, eps=0.05, confidence=0.99).value == pytest.approx(2.1)


def test_a_violation_among_the_strictest_rows_ends_it_before_it_began() -> None:
    rows = [row(3.0, violated=True)] * 3 + [row(2.0)] * 56 + [row(1.0)] * 30
    found = fixed_sequence(rows, **RISK)
    assert found.refuses
    assert found.needed == 0
    assert (found.refuses, found.needed) == (True, 0)


def test_where_the_run_starts_depends_on_margins_alone() -> None:
    rng = random.Random(4)
    margins = [rng.uniform(0, 4) for _ in range(120)]
    clean = fixed_sequence([row(z) for z in margins], **RISK)
    first = sorted(margins, reverse=True)[58]
    start = max(value for value in GRID if sum(z >= value for z in margins) >= 59)
    assert start <= first
    spoilt = fixed_sequence([row(z, violated=z < start) for z in margins], **RISK)
    assert clean.value == GRID[-1]
    assert start - 0.3 <= spoilt.value <= start


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(-3, 6), st.booleans()), max_size=150),
    st.sampled_from([0.02, 0.05, 0.1, 0.2]),
)
def test_whatever_is_admitted_was_certified_and_more_risk_never_admits_less(
    pairs: list[tuple[float, bool]], eps: float
) -> None:
    rows = [row(z, violated=bad) for z, bad in pairs]
    found = fixed_sequence(rows, eps=eps, confidence=0.8)
    if found.refuses:
        return
    admitted = [one for one in rows if one.z >= found.value]
    bad = sum(one.violated for one in admitted)
    assert (found.admitted, found.violations) == (len(admitted), bad)
    assert risk_bound(bad, len(admitted), 0.8) <= eps + 1e-9
    surer = fixed_sequence(rows, eps=eps, confidence=0.5)
    assert surer.refuses or risk_bound(surer.violations, surer.admitted, 0.5) <= eps + 1e-9


def test_the_certificate_holds_as_often_as_it_says() -> None:
    """Margins that mean nothing, at twice the budget: admitting at all is the error."""
    rng = random.Random(11)
    wrong = 0
    for _ in range(200):
        rows = [row(rng.gauss(1.5, 1.0), violated=rng.random() < 0.10) for _ in range(150)]
        wrong += not fixed_sequence(rows, **RISK).refuses
    assert wrong / 200 <= 0.20


def test_every_group_and_band_has_an_answer_and_rows_count_where_they_belong() -> None:
    rows = [row(3.0)] * 60 + [
        Scored(z=3.0, violated=False, group=Group.MANY, band=Band.WIDE) for _ in range(11)
    ]
    rows += [row(math.inf), row(math.nan)]
    found = thresholds(rows, **RISK)
    assert len(found) == len(Group) * len(Band)
    assert not found[Group.KNOWN, Band.MEDIUM].refuses
    assert found[Group.KNOWN, Band.MEDIUM].rows == 60
    assert (found[Group.MANY, Band.WIDE].rows, found[Group.MANY, Band.WIDE].needed) == (11, 59)
    assert found[Group.SEEN_PAIR, Band.TIGHT].rows == 0


def test_what_is_said_of_one_pair_again_and_again_is_one_trial() -> None:
    """Twenty windows of each of eight pairs are eight trials, not 160."""
    many = [replace(row(3.0), trial=(f"c{pair}", "x")) for pair in range(8) for _ in range(20)]
    found = fixed_sequence(many, **RISK)
    assert found.refuses
    assert (found.rows, found.needed) == (8, 59)
    distinct = [replace(row(3.0), trial=(f"c{pair}", "x")) for pair in range(59)]
    assert fixed_sequence(distinct * 3, **RISK).admitted == 59


def test_a_pair_that_is_wrong_in_some_of_its_scores_counts_in_part_and_is_rounded_up() -> None:
    rows = [replace(row(3.0), trial=(f"c{pair}", "x")) for pair in range(58)]
    rows += [replace(row(3.0, violated=bad), trial=("odd", "x")) for bad in (True, False, False)]
    found = fixed_sequence(rows, **RISK)
    assert (found.admitted, found.violations) == (59, 1)


@given(
    st.lists(
        st.tuples(st.floats(-1, 5), st.booleans(), st.integers(0, 80)), min_size=1, max_size=200
    ),
    st.integers(2, 4),
)
def test_saying_everything_again_changes_no_threshold(
    scores: list[tuple[float, bool, int]], times: int
) -> None:
    rows = [replace(row(z, violated=bad), trial=(f"c{pair}", "x")) for z, bad, pair in scores]
    assert fixed_sequence(rows * times, **RISK) == fixed_sequence(rows, **RISK)


@pytest.mark.parametrize(("eps", "trials"), [(0.02, 149), (0.05, 59), (0.10, 45)])
def test_no_certificate_rests_on_few_trials(eps: float, trials: int) -> None:
    assert trials_needed(eps, 0.8) == trials
    assert fixed_sequence([row(5.0)] * (trials - 1), eps=eps, confidence=0.8).refuses
    assert not fixed_sequence([row(5.0)] * trials, eps=eps, confidence=0.8).refuses


@pytest.mark.parametrize(("eps", "confidence"), [(0.0, 0.8), (1.0, 0.8), (0.05, 1.0), (5, 80)])
def test_a_budget_outside_its_range_is_refused(eps: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        thresholds([], eps=eps, confidence=confidence)
