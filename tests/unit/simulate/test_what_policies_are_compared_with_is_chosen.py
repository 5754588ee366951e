# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Baselines run beside the policies unless others are named, or none."""

from __future__ import annotations

import pytest

from ullage_simulate.comparison import DECIDE, ComparisonRequest, compare
from ullage_simulate.policies import chosen
from ullage_simulate.trace import JobTraceError


def names(*wanted: str, against: tuple[str, ...] = ()) -> list[str]:
    return [policy.name for policy in chosen(wanted, against)]


def test_all_baselines_come_first() -> None:
    assert names("las") == ["fifo", "isolated", "agnostic-las", "las"]


@pytest.mark.parametrize(
    ("against", "found"),
    [
        (("FIFO",), ["fifo", "las"]),
        (("MaxMinFairness", "fifo"), ["las", "fifo"]),
        (("las",), ["las"]),
        (("none",), ["las"]),
    ],
)
def test_what_is_named_comes_instead(against: tuple[str, ...], found: list[str]) -> None:
    assert names("las", against=against) == found


@pytest.mark.parametrize("against", [("nope",), ("fifo", "none")])
def test_a_name_that_is_none_is_refused(against: tuple[str, ...]) -> None:
    with pytest.raises(JobTraceError, match="no policy"):
        names("las", against=against)


def test_what_no_operator_can_run_is_refused_where_it_was_asked_for() -> None:
    asked = ComparisonRequest(jobs=4, policies=("las",), against=("isolated",), mode=DECIDE)
    with pytest.raises(JobTraceError):
        compare(asked, lambda *_: lambda *_: None)
