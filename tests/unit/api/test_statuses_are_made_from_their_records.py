# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a CRD says of a status follows from the record that is read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from docs.generate.crds.records import shaped
from docs.generate.crds.structural import SchemaError
from ullage.api.codec import derived
from ullage.api.wire_fields import INT32, KEPT, Count, Listed, Name, Schema, Signed, keyed
from ullage.cluster.records.efficiency import EfficiencyRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Stone:
    """One stone."""

    name: Name
    """What it is called."""
    weight: Annotated[Count, INT32, Schema(before="name")] = 0
    """In grams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box."""

    stones: Annotated[
        tuple[Stone, ...],
        Listed(rank="rank", says=Schema(description="Its place.")),
        keyed("name", most=3),
    ] = ()
    """What is in it."""
    prices: tuple[tuple[str, Signed], ...] = ()
    """By type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """It has a field without a docstring."""

    depth: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """It is written with a record that may say nothing."""

    sums: Annotated[Silent, KEPT] = Silent()


def test_bounds_lists_and_texts_are_those_of_the_record() -> None:
    node = shaped(derived(Box).shape)
    stones = node["properties"]["stones"]  # type: ignore[index]
    assert stones["description"] == "What is in it."
    assert (stones["maxItems"], stones["x-kubernetes-list-map-keys"]) == (3, ["name"])
    item = stones["items"]
    assert item["description"] == "One stone."
    assert list(item["properties"]) == ["rank", "weight", "name"]
    assert item["required"] == ["rank", "name"]
    assert item["properties"]["weight"]["maximum"] == 2**31 - 1
    assert item["properties"]["name"] == {
        "type": "string",
        "maxLength": 253,
        "description": "What it is called.",
    }
    prices = node["properties"]["prices"]  # type: ignore[index]
    assert prices["additionalProperties"]["pattern"].startswith("^-?")


def test_a_field_that_the_codec_leaves_out_is_in_no_schema() -> None:
    assert list(shaped(derived(Box, ("prices",)).shape)["properties"]) == ["stones"]  # type: ignore[call-overload]


def test_a_field_without_a_docstring_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"Silent\.depth has no docstring"):
        shaped(derived(Silent).shape)


def test_a_record_that_is_kept_is_never_written_as_an_empty_object() -> None:
    """Server-side apply makes null of an object that loses its last field."""
    with pytest.raises(TypeError, match="Silent is kept and has no field that is"):
        derived(Account)
    status = derived(EfficiencyRecord).write(EfficiencyRecord(since=1.0, as_of=2.0))
    assert status["row"] == status["earlier"] == {"allocatedMs": 0}
