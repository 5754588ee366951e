# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sensitivity and aggressiveness, solo features, and how new a mixture is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ullage.engines.admission.bias import fit_bias
from ullage.engines.admission.features import class_features
from ullage.engines.admission.novelty import History
from ullage.engines.admission.records import ClassProfile, Fingerprint, Group, ShareCurve

PAIRS = np.array(list(itertools.permutations(range(8), 2)) * 6)
SUFFERS = np.linspace(-0.3, 0.3, 8)
INFLICTS = np.linspace(0.4, -0.4, 8) ** 3 / 0.16


def test_effects_come_back_from_rows_made_of_them() -> None:
    victim, aggressor = PAIRS.T
    target = 0.2 + SUFFERS[victim] + INFLICTS[aggressor]
    model = fit_bias(victim, aggressor, target, 8)
    assert np.allclose(model.predict(victim, aggressor), target, atol=0.03)
    assert np.corrcoef(model.sensitivity, SUFFERS)[0, 1] > 0.999
    assert model.sd < 0.03


def test_a_class_without_rows_has_no_effect_of_its_own() -> None:
    victim, aggressor = PAIRS.T
    model = fit_bias(victim, aggressor, SUFFERS[victim] + 0.2, 9)
    assert model.predict(np.array([8]), np.array([8]))[0] == pytest.approx(model.mean)


def test_few_rows_are_not_believed_as_many_are() -> None:
    one, other = np.array([0, 1]), np.array([1, 0])
    few = fit_bias(one, other, np.array([1.0, -1.0]), 2)
    many = fit_bias(np.tile(one, 50), np.tile(other, 50), np.tile([1.0, -1.0], 50), 2)
    told = [float(model.predict(np.array([0]), np.array([1]))[0]) for model in (few, many)]
    assert 0 < told[0] < told[1] < 1


def test_how_far_rows_scatter_is_known_from_two_of_them() -> None:
    one, other = np.array([0, 1]), np.array([1, 0])
    alone = fit_bias(one[:1], other[:1], np.array([0.5]), 2)
    assert (alone.mean, alone.sd) == (0.5, 1.0)
    target = np.array([1.0, -1.0])
    both = fit_bias(one, other, target, 2)
    missed = target - both.predict(one, other)
    assert both.sd == pytest.approx(float(np.sqrt(np.mean(missed**2))))
    alike = fit_bias(np.tile(one, 5), np.tile(other, 5), np.full(10, 0.5), 2)
    assert alike.sd == 1e-3  # never nothing: rows that agree are no proof


@pytest.mark.parametrize("target", [np.zeros(0), np.array([math.nan])])
def test_effects_of_nothing_are_refused(target: np.ndarray) -> None:
    number = np.zeros(len(target), int)
    with pytest.raises(ValueError, match="finite"):
        fit_bias(number, number, target, 1)


def profile(workload_class: str, family: str = "", **measured: float | None) -> ClassProfile:
    return ClassProfile(
        workload_class=workload_class, family=family, fingerprint=Fingerprint(**measured)
    )


def test_features_are_standardised_and_gaps_say_nothing() -> None:
    table = class_features([profile(f"c{one}", sm=one / 10) for one in range(9)] + [profile("x")])
    assert table.shape == (10, 1)
    assert table[:9, 0].mean() == pytest.approx(0.0)
    assert table[:9, 0].std() == pytest.approx(1.0)
    assert table[9, 0] == 0.0


def test_what_is_mostly_unmeasured_or_alike_is_no_feature() -> None:
    profiles = [profile(f"c{one}", sm=0.5, dram=0.1 * one if one < 4 else None) for one in range(9)]
    assert class_features(profiles).shape == (9, 0)


def test_families_are_features_and_times_count_by_their_logarithm() -> None:
    profiles = [
        ClassProfile(
            workload_class=f"c{one}",
            family=f"f{one % 2}",
            curve=ShareCurve(fixed_s=0.0, scaled_s=10.0**one),
        )
        for one in range(4)
    ]
    table = class_features(profiles)
    assert table.shape == (4, 3)
    assert np.allclose(np.diff(table[:, 0]), np.diff(table[:, 0])[0])
    assert np.allclose(table[:, 1], -table[:, 2])


@pytest.mark.parametrize("value", [math.nan, -0.1, math.inf])
def test_a_counter_that_is_no_number_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match=r"class c0: sm"):
        class_features([profile("c0", sm=value)])


HISTORY = History.of(
    [
        *((("a", "f"), (other, "f")) for other in ("b", "k", "m")),
        *((("young", "f"), (other, "f")) for other in ("k", "m")),
        *((("far", "h"), (other, "h")) for other in ("h1", "h2", "h3")),
    ]
    * 20
)
"""Twenty meetings make no class better known than one."""


@pytest.mark.parametrize(
    ("classes", "group"),
    [
        ([("a", "f"), ("b", "f")], Group.SEEN_PAIR),
        ([("a", "f"), ("a", "f")], Group.KNOWN),
        ([("a", "f"), ("young", "f")], Group.NEW_CONFIG),
        ([("a", "f"), ("far", "h")], Group.NEW_CONFIG),
        ([("a", "f"), ("new", "f")], Group.NEW_CONFIG),
        ([("a", "f"), ("new", "g")], Group.NEW_FAMILY),
        ([("new", "")], Group.NEW_FAMILY),
        ([("a", "f")], Group.KNOWN),
        ([("a", "f"), ("b", "f"), ("a", "f")], Group.MANY),
        ([("a", "f"), ("b", "f"), ("new", "g"), ("new", "g")], Group.MANY),
    ],
)
def test_the_least_known_tenant_decides_and_three_are_a_group_of_their_own(
    classes: list[tuple[str, str]], group: Group
) -> None:
    for order in (classes, classes[::-1]):
        assert HISTORY.group_of(order) is group
