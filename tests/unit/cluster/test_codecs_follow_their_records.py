# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A record's fields say what they are on the wire; reader and writer follow from that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest

from ullage.api.codec import derived, wire_name
from ullage.api.readers import WireError
from ullage.api.wire_fields import (
    IF_KNOWN,
    KEPT,
    NEEDED,
    Count,
    Decimal,
    Flag,
    Listed,
    Name,
    Time,
    cut,
    word,
)


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stone:
    name: Name
    colour: Annotated[Colour, word(Colour), NEEDED] = Colour.RED
    weight: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    memory_mib: Count = 0
    opened: Time = 0.0
    lid: Annotated[Flag, KEPT] = True
    note: Annotated[str, cut(4, "…")] = ""
    depth: Count | None = None
    best: Annotated[Stone | None, IF_KNOWN] = None
    stones: Annotated[
        tuple[Annotated[Stone, IF_KNOWN], ...],
        Listed(newest=2, order=lambda one: one.weight),
    ] = ()
    all_known: Annotated[tuple[Stone, ...], Listed(most=1, rank="rank"), IF_KNOWN] = ()
    prices: Annotated[tuple[tuple[str, Decimal], ...], "priceByType"] = ()


read, write, *_ = derived(Box)
RED = Stone(name="r", weight=1)


@pytest.mark.parametrize(
    ("attribute", "name"),
    [("memory_mib", "memoryMiB"), ("beneficiary_uid", "beneficiaryUID"), ("p99_steps", "p99Steps")],
)
def test_names_on_the_wire_are_the_attributes(attribute: str, name: str) -> None:
    assert wire_name(attribute) == name


def test_what_says_nothing_is_left_out_unless_it_is_kept() -> None:
    assert write(Box()) == {"lid": True}
    assert write(Box(lid=False, depth=0)) == {"lid": False, "depth": 0}


def test_absent_fields_read_as_the_defaults_of_the_record() -> None:
    assert read({}) == Box()
    assert read({"stones": None, "note": None, "best": {}}) == Box()


def test_texts_and_lists_are_cut_to_what_the_schema_holds() -> None:
    box = Box(note="12345", all_known=(RED, Stone(name="s")))
    assert write(box)["note"] == "123…"
    assert write(box)["allKnown"] == [{"rank": 0, "name": "r", "colour": "Red", "weight": 1}]
    stated = [{"name": str(at), "colour": "Red", "weight": at} for at in (3, 1, 2)]
    assert [one.weight for one in read({"stones": stated}).stones] == [2, 3]


def test_a_map_is_held_as_pairs_in_order() -> None:
    box = read({"priceByType": {"b": "2", "a": "1.5"}})
    assert box.prices == (("a", "1.5"), ("b", "2"))
    assert write(box)["priceByType"] == {"a": "1.5", "b": "2"}


def test_a_word_of_another_version_takes_only_what_is_declared_with_it() -> None:
    strange = {"name": "s", "colour": "Green", "weight": "not looked at"}
    known = {"name": "r", "colour": "Red", "weight": 1}
    box = read({"best": strange, "stones": [strange, known], "allKnown": [known | {"rank": 0}]})
    assert (box.best, box.stones, box.all_known) == (None, (RED,), (RED,))
    both = [known | {"rank": 0}, strange | {"rank": 1}]
    assert read({"allKnown": both}) == Box()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"memoryMiB": "7"}, "memoryMiB: expected a whole number, got str"),
        ({"lid": None}, "lid: expected true or false, got NoneType"),
        ({"best": [7]}, "best: expected an object, got list"),
        ({"best": {"name": "s"}}, "best.colour: expected a string, got NoneType"),
        ({"stones": [{"colour": "Red"}]}, "stones.name: expected a string, got NoneType"),
        ({"priceByType": {"a": "x"}}, "priceByType.a: 'x' is no decimal number"),
    ],
)
def test_an_error_names_the_whole_path(raw: dict[str, object], said: str) -> None:
    with pytest.raises(WireError) as caught:
        read(raw)
    assert str(caught.value) == said


def test_a_field_that_says_nothing_of_the_wire_is_refused() -> None:
    @dataclass(frozen=True)
    class Silent:
        weight: int = 0

    with pytest.raises(TypeError, match=r"Silent\.weight"):
        derived(Silent)
