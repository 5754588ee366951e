# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The admission bench: what a margin is set from, and how new a left-out row counts as."""

from __future__ import annotations

import numpy as np

from bench.admission_gavel import part
from bench.admission_lucid import chosen_rule, groups_of, tuned
from bench.colocations import Lucid
from ullage.engines.admission.calibration import Band, Scored
from ullage.engines.admission.colocations import Sides, pairs, with_rows
from ullage.engines.admission.records import ClassProfile, Group, Partner, Row


def fold(seed: int, wrong_below: float, count: int = 200) -> list[Scored]:
    """Margins from -1 to 4; those below a margin broke their objective."""
    margins = np.random.default_rng(seed).uniform(-1, 4, count)
    return [
        Scored(z=float(z), violated=bool(z < wrong_below), group=Group.KNOWN, band=Band.TIGHT)
        for z in margins
    ]


def test_folds_alike_let_the_rule_that_admits_more_answer() -> None:
    past = [fold(seed, 0.55) for seed in range(5)]
    assert chosen_rule(past) == "scan"


def test_a_rule_that_breaks_the_budget_in_other_folds_does_not_answer() -> None:
    past = [fold(seed, wrong_below=2.0 * seed) for seed in range(3)]
    assert chosen_rule(past) == "certified"


def test_tuning_stops_at_two_percent() -> None:
    margins = [float(one) for one in range(200, 0, -1)]
    violated = [margin <= 100 for margin in margins]
    limit = tuned(margins, violated)
    admitted = [bad for margin, bad in zip(margins, violated, strict=True) if margin >= limit]
    assert len(admitted) == 102
    assert sum(admitted) == 2


def row(number: int, victim: str, aggressor: str) -> Row:
    return Row(
        id=f"{number}.{victim}",
        klass=victim,
        family=victim[0],
        accelerator="toy",
        percent=100,
        partners=(Partner(klass=aggressor, percent=100),),
        step_s=0.1,
        slowdown=1.1,
        at_s=60.0 * number,
    )


def test_a_left_out_row_is_as_new_as_the_training_rows_make_it() -> None:
    names = [("a1", "b1")] * 10 + [("a1", "b2"), ("a2", "b1"), ("c1", "a1"), ("b1", "b1")]
    rows = [
        one
        for number, (left, right) in enumerate(names)
        for one in (row(number, left, right), row(number, right, left))
    ]
    profiles = {
        name: ClassProfile(klass=name, family=name[0]) for name in ("a1", "a2", "b1", "b2", "c1")
    }
    table = Lucid(profiles=profiles, rows=tuple(rows))
    sides = Sides.of(with_rows(table.profiles, table.rows))
    data = pairs(table.rows, sides)
    known = np.array([{one.klass, one.partners[0].klass} == {"a1", "b1"} for one in data.kept])
    groups = groups_of(part(data, known), part(data, ~known), sides)
    found = {
        (one.klass, one.partners[0].klass): group
        for one, group in zip(part(data, ~known).kept, groups, strict=True)
    }
    assert found["a1", "b2"] is found["b1", "a2"] is Group.NEW_CONFIG
    assert found["c1", "a1"] is Group.NEW_FAMILY
    assert found["b1", "b1"] is Group.KNOWN
