# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The faster pickles of records bring back what was sent, shared parts still shared."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from builders import a_gpu_node, a_job, a_policy, a_snapshot
from ullage.api.devices import GPUMode
from ullage.app.transfer import dumps
from ullage.cluster.values.slots import with_fields


@dataclass(frozen=True, slots=True)
class Checked:
    """Being made twice would show."""

    value: int
    doubled: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", self.doubled + self.value)


@dataclass
class Plain:
    """No slots: pickled the usual way."""

    values: list[int]


def test_a_picture_arrives_equal_and_its_shared_parts_are_one_object() -> None:
    sent = a_snapshot(a_gpu_node(devices=4), a_policy(learned=True), a_job("a"), a_job("b"))
    shape = next(iter(sent.workloads.values())).shape
    got, one, other = pickle.loads(dumps((sent, shape, shape)))
    assert got == sent
    assert one is other


@pytest.mark.parametrize("value", [Plain([1, 2]), GPUMode.FRACTIONAL, (1, "x", None)])
def test_whatever_is_no_record_travels_too(value: object) -> None:
    assert pickle.loads(dumps(value)) == value


def test_a_copy_has_other_values_and_is_not_made_again() -> None:
    before = Checked(2)
    after = with_fields(before, {"value": 5})
    assert (type(after), after.value, after.doubled) == (Checked, 5, 2)
    assert (before.value, before.doubled) == (2, 2)
    with pytest.raises(KeyError, match="other"):
        with_fields(before, {"other": 1})


def test_what_arrives_is_not_made_again() -> None:
    sent = Checked(2)
    got = pickle.loads(dumps(sent))
    assert (got.value, got.doubled) == (sent.value, sent.doubled) == (2, 2)
