# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The admission bench: what a margin is set from, and what is left out to judge by."""

from __future__ import annotations

import numpy as np

from bench.admission_lucid import cut_down, tuned
from bench.colocations import Lucid
from ullage.engines.admission.colocations import Sides, pairs, with_rows
from ullage.engines.admission.records import ClassProfile, Partner, Row


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
        workload_class=victim,
        family=victim[0],
        accelerator="toy",
        percent=100,
        partners=(Partner(workload_class=aggressor, percent=100),),
        step_s=0.1,
        slowdown=1.1,
        at_s=60.0 * number,
    )


def test_every_model_keeps_thirty_of_its_pairs() -> None:
    rows = [
        one
        for number in range(200)
        for left, right in [(f"{'ab'[number % 2]}1", f"{'bc'[number % 2]}2")]
        for one in (row(number, left, right), row(number, right, left))
    ]
    names = sorted({one.workload_class for one in rows})
    table = Lucid(
        profiles={name: ClassProfile(workload_class=name, family=name[0]) for name in names},
        rows=tuple(rows),
    )
    sides = Sides.of(with_rows(table.profiles, table.rows))
    data = pairs(table.rows, sides)
    family = np.array([one.family for one in sides.profiles])
    found = cut_down(data, family, seed=0)
    assert len(found) == 3
    for name, fold in zip("abc", found, strict=True):
        own = (family[data.rows.victim] == name) | (family[data.rows.aggressor] == name)
        kept = np.setdiff1d(np.flatnonzero(own), fold)
        assert len(np.unique(data.colocation[kept])) == 30
        assert len(kept) == 60
        assert not np.isin(data.colocation[fold], data.colocation[kept]).any()
