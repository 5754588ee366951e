# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which type of device a gang holds time of, and since when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from builders import NOW, a_job, a_pod, a_slice, gpu
from ullage.scheduling.model.view import Held, Member
from ullage.scheduling.timeslicing.contenders import held_type

TYPES = ("fast", "slow")
PLACES = [("fast", 0), ("fast", 1), ("slow", 0), ("slow", 1), ("slow", 2)]
INVENTORY: Any = SimpleNamespace(
    site_index={(kind, gpu(kind, at)): site for site, (kind, at) in enumerate(PLACES)},
    model=np.array([TYPES.index(kind) for kind, _ in PLACES]),
    model_names=TYPES,
)
JOB = a_job().gang(5).build()


def holding(rank: int, *places: tuple[str, int], since: float = NOW) -> Member:
    """A member with slices on these devices; each type is a node of its own."""
    pod = a_pod(f"train-{rank}", owner=JOB, rank=rank)
    return Member(
        pod=pod,
        held=tuple(
            Held(
                node=kind,
                slice=a_slice(pod, device=gpu(kind, at), percent=100, index=index),
                seen=None,
                since=since - at,
            )
            for index, (kind, at) in enumerate(places)
        ),
    )


def found(*members: Member, dropped: str = "") -> tuple[str, float]:
    ledger: Any = SimpleNamespace(dropped=lambda node, _: node == dropped)
    return held_type(INVENTORY, ledger, members)


def test_a_gang_is_on_the_type_of_most_of_its_slices() -> None:
    assert found(holding(0, ("fast", 0)), holding(1, ("slow", 0)), holding(2, ("slow", 2))) == (
        "slow",
        NOW - 2,
    )
    assert found(holding(0, ("fast", 0), ("fast", 1)), holding(1, ("slow", 0)))[0] == "fast"


def test_of_equally_many_the_first_name_counts() -> None:
    assert found(holding(0, ("slow", 0)), holding(1, ("fast", 0)))[0] == "fast"


def test_what_is_taken_away_or_unknown_does_not_count() -> None:
    both = (holding(0, ("fast", 0), ("fast", 1)), holding(1, ("slow", 1)))
    assert found(*both, dropped="fast") == ("slow", NOW - 1)
    assert found(holding(0, ("fast", 7)), holding(1, ("slow", 0))) == ("slow", NOW)


def test_who_holds_nothing_is_on_no_type() -> None:
    assert found(holding(0)) == ("", 0.0)
    assert found(holding(0), holding(1)) == ("", 0.0)
    assert found(holding(0, ("fast", 0)), dropped="fast") == ("", 0.0)


def test_one_member_is_where_its_slice_is() -> None:
    assert found(holding(0, ("slow", 2))) == ("slow", NOW - 2)
