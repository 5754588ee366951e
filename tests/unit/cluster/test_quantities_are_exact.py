# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction

import pytest

from ullage.api.quantity import amount, counted, quantity
from ullage.api.readers import WireError
from ullage.api.rules import MEMORY_POSITIVE
from ullage.api.scalars import memory
from ullage.api.times import rfc3339, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100m", Fraction(1, 10)),
        ("1.5Gi", 3 * 2**29),
        ("2G", 2 * 10**9),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(6, 5)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+7", 7),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("123Mi", 123 * 2**20),
        ("250u", Fraction(1, 4000)),
        ("7n", Fraction(7, 10**9)),
        ("1k", 1000),
    ],
)
def test_every_notation_has_its_exact_value(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "Gi", "1KiB", "1e", "--1", "0x10", "1K", "1,5", "NaN"]
)
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(WireError, match="write a number with a unit, as 500m or 2Gi"):
        quantity(text)


def test_negative_and_astronomic_amounts_are_refused() -> None:
    with pytest.raises(WireError, match="negative"):
        quantity("-1")
    with pytest.raises(WireError, match="largest amount"):
        quantity("10E")


def test_amounts_are_rounded_up_as_the_scheduler_does() -> None:
    assert counted("cpu", "1.5m", "f") == 2
    assert counted("cpu", "2", "f") == 2000
    assert counted("memory", "1500m", "f") == 2
    assert counted("example.com/thing", 3, "f") == 3


def test_wanted_memory_rounds_up_and_offered_memory_down() -> None:
    wanted, offered = memory(MEMORY_POSITIVE), memory(MEMORY_POSITIVE, up=False)
    assert wanted.read("6G") == 5723
    assert offered.read("6G") == 5722
    assert wanted.read("6Gi") == offered.read("6Gi") == 6144


def test_errors_name_the_field() -> None:
    with pytest.raises(WireError, match=r"limits\[cpu\]: 'much'"):
        amount("much", "limits[cpu]")
    with pytest.raises(WireError, match="limits: expected a quantity, got bool"):
        amount(True, "limits")


def test_times_are_read_in_utc_and_written_in_whole_seconds() -> None:
    assert seconds("2026-01-02T03:04:05Z", "f") == 1767323045.0
    assert seconds("2026-01-02T03:04:05.5+01:00", "f") == 1767319445.5
    assert seconds(None, "f") == 0.0
    assert rfc3339(1767323045.9) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("bad", ["yesterday", "2026-01-02T03:04:05", 5])
def test_bad_times_are_refused(bad: object) -> None:
    with pytest.raises(WireError, match="eta: "):
        seconds(bad, "eta")
