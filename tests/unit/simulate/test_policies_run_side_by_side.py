# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Policies of a long trace have a process each; figures, order, progress and errors stay as is."""

from __future__ import annotations

import pytest

from ullage_simulate import comparison
from ullage_simulate.comparison import ComparisonRequest, PolicyComparison, compare
from ullage_simulate.progress import Tell
from ullage_simulate.side_by_side import run_side_by_side

ASKED = ComparisonRequest(
    trace="synthetic", jobs=30, cluster="v100=4,k80=4", policies=("isolated",), against=("fifo",)
)


class Progress:
    """What is told of each policy, in the order in which they are named."""

    def __init__(self) -> None:
        self.done: dict[str, list[int]] = {}

    def follow(self, name: str, length: int) -> Tell:
        counts = self.done.setdefault(f"{name} of {length}", [])
        return counts.append


def compared(monkeypatch: pytest.MonkeyPatch, *, many: int) -> tuple[PolicyComparison, Progress]:
    monkeypatch.setattr(comparison, "MANY_JOBS", many)
    progress = Progress()
    return compare(ASKED, progress.follow), progress


def test_figures_and_their_order_are_those_of_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart, told = compared(monkeypatch, many=ASKED.jobs)
    in_turn, _ = compared(monkeypatch, many=ASKED.jobs + 1)
    assert apart.outcomes == in_turn.outcomes
    assert [outcome.policy for outcome in apart.outcomes] == ["fifo", "isolated"]
    jobs = len(apart.trace.jobs)
    names = [outcome.policy for outcome in apart.outcomes]
    assert list(told.done) == ["reading of 1", *(f"{name} of {jobs}" for name in names)]
    assert [counts[-1] for counts in told.done.values()] == [1, *[jobs] * len(names)]


def test_an_error_in_a_process_ends_all_and_is_the_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_turn, _ = compared(monkeypatch, many=ASKED.jobs + 1)
    names = ["fifo", "no-such"]
    with pytest.raises(KeyError, match="no-such"):
        run_side_by_side(
            names, in_turn.trace, in_turn.fleet, in_turn.settings, dict.fromkeys(names, _ignore)
        )


def _ignore(_: int) -> None:
    """No one looks."""
