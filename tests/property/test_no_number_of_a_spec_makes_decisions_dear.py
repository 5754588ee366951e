# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""No number that a spec holds makes the decisions about others dear, however large it is.

Each number of each spec has its largest value, alone and beside another. What tenants write is
tried in full, of the other kinds and of the pairs a sample; ``ULLAGE_EXAMPLES=explore`` tries every
number and draws other pairs. What a decision costs is counted in lines that run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Final

import orjson
import pytest

from fakes.spec_numbers import STREAMS, Json, Number, base_of, cost, largest, numbers_of

MOST: Final = 2.0
"""Times the cost of the same decisions with the object as it was."""
PAIRS: Final = 12
OF_OTHERS: Final = 10
"""Numbers that are drawn of kinds that administrators, agents and the operator write."""
WORK: Final = ("TrainingJob", "InferenceDeployment", "TuningJob")
EXPLORES: Final = os.environ.get("ULLAGE_EXAMPLES") == "explore"
SEED: Final = random.SystemRandom().randrange(2**32) if EXPLORES else 1


@cache
def _cost(body: bytes) -> int:
    return cost([orjson.loads(body)])


def times(body: Json, numbers: Sequence[Number]) -> float:
    """How many times as much decisions cost once these numbers are as large as may be."""
    great = largest(body, numbers)
    assert great is not None
    return _cost(orjson.dumps(great)) / _cost(orjson.dumps(body))


def numbers(kind: str) -> list[Number]:
    """Numbers of a kind, those of containers left out."""
    return [one for one in numbers_of(kind) if not {"containers", "initContainers"} & {*one.path}]


ALONE: Final = [one for kind in STREAMS for one in numbers(kind)]
TOGETHER: Final = random.Random(SEED).sample(
    [pair for kind in WORK for pair in combinations(numbers(kind), 2) if base_of(pair) is not None],
    PAIRS,
)
GREATEST: Final = [
    tuple(one for one in numbers("TrainingJob") if one.path[-1] in names)
    for names in (
        {"minReplicas", "maxReplicas"},
        {"maxReplicas", "minPercent"},
        {"maxReplicas", "maxPercent"},
    )
]
"""Pairs that are always tried: they say how many pods there are, and how small."""


def test_numbers_are_found_in_every_kind() -> None:
    assert all(numbers(kind) for kind in STREAMS)
    assert Number("TrainingJob", ("elasticity", "maxReplicas"), 4096) in ALONE


def test_every_number_of_work_has_an_object_to_stand_in() -> None:
    assert [str(one) for one in ALONE if one.kind in WORK and base_of([one]) is None] == []


def tried() -> list[Number]:
    """All numbers of work, and some of the others."""
    found = [one for one in ALONE if base_of([one]) is not None]
    work = [one for one in found if one.kind in WORK]
    others = [one for one in found if one.kind not in WORK]
    return found if EXPLORES else work + random.Random(SEED).sample(others, OF_OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("number", tried(), ids=str)
def test_no_number_alone_doubles_what_decisions_cost(number: Number) -> None:
    body = base_of([number])
    assert body is not None
    assert times(body, [number]) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair", [*TOGETHER, *GREATEST], ids=lambda pair: " and ".join(map(str, pair))
)
def test_no_two_numbers_double_what_decisions_cost(pair: Sequence[Number]) -> None:
    body = base_of(pair)
    assert body is not None
    assert times(body, pair) <= MOST


@pytest.mark.slow
def test_a_loop_over_a_number_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ullage.scheduling.elastic import resize

    def each(bounds: object, members: int) -> str:
        return f"{sum(1 for _ in range(100 * bounds.max_replicas))} of {members}"  # type: ignore[attr-defined]

    monkeypatch.setattr(resize, "_part", each)
    number = Number("TrainingJob", ("elasticity", "maxReplicas"), 4096)
    body = base_of([number])
    assert body is not None
    great = largest(body, [number])
    assert great is not None
    assert cost([great]) > MOST * cost([body])
