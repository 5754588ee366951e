# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs are scored by a rung and a trim that were chosen on other pairs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ullage.engines.admission.colocations import Pairs, Sides, pairs, with_rows
from ullage.engines.admission.judging import LeftOut, Risk, score_apart, trial_of
from ullage.engines.admission.records import Group, Partner, Row, Rung

CLASSES = tuple(f"c{number:02d}" for number in range(9))
RISK = Risk()


def world() -> tuple[Pairs, Sides]:
    """Both directions of every pair of nine classes, with a noisy slowdown."""
    random = np.random.default_rng(1)
    rows = [
        Row(
            id=f"{number}.{victim}",
            workload_class=victim,
            family=f"f{victim}",
            accelerator="v100",
            percent=100,
            partners=(Partner(workload_class=aggressor, percent=100),),
            step_s=0.1,
            slowdown=float(np.exp(random.uniform(0.3, 0.9))),
            at_s=60.0 * number,
            max_slowdown=2.0,
        )
        for number, pair in enumerate(itertools.combinations(CLASSES, 2))
        for victim, aggressor in (pair, pair[::-1])
    ]
    sides = Sides.of(with_rows({}, rows))
    return pairs(rows, sides), sides


def left_out(data: Pairs) -> LeftOut:
    """As if every row had been predicted with the same spread, some off."""
    count = len(data.kept)
    random = np.random.default_rng(2)
    near = data.target + random.normal(0.0, 0.1, count)
    spread = np.full(count, 0.1)
    return LeftOut(
        index=np.arange(count),
        fold=data.colocation % 10,
        mean={Rung.UTILISATION_SUM: np.zeros(count), Rung.BIAS: near},
        sd={Rung.UTILISATION_SUM: spread, Rung.BIAS: spread},
    )


def scores(data: Pairs, sides: Sides, out: LeftOut) -> dict[tuple[str, ...], float]:
    found = score_apart(data, sides, out, Group.KNOWN, plain=Rung.UTILISATION_SUM, risk=RISK)
    return {one.trial: one.z for one in found}


def test_every_pair_is_scored_once() -> None:
    data, sides = world()
    found = scores(data, sides, left_out(data))
    assert set(found) == set(itertools.combinations(CLASSES, 2))


@pytest.mark.parametrize("pair", [("c00", "c01"), ("c03", "c07"), ("c07", "c08")])
def test_what_happened_to_a_pair_does_not_move_its_own_margin(pair: tuple[str, str]) -> None:
    data, sides = world()
    out = left_out(data)
    before = scores(data, sides, out)
    named = ((name, f"f{name}") for name in pair)
    assert trial_of(tuple(named), Group.KNOWN) == pair  # type: ignore[arg-type]
    mine = np.array(
        [{row.workload_class, row.partners[0].workload_class} == {*pair} for row in data.kept]
    )
    odd = replace(data, observed=np.where(mine, data.observed + 3.0, data.observed))
    after = scores(odd, sides, out)
    assert after[pair] == before[pair]
    assert any(after[other] != before[other] for other in before)
