# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The number of workers, from epochs of simulated loaders; and the terms of a job."""

from __future__ import annotations

import io
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage_run.loader_choice import EPOCHS_MOST, WAITS, Epoch, LoaderChoice, LoaderSettings
from ullage_run.loader_hook import LoaderLimits, holds_files

MOST = 8
TIMES = st.floats(1e-4, 1.0)


def epoch(at: LoaderSettings, load: float, compute: float, cliff: int = 99) -> Epoch:
    """An epoch on a store that collapses above some number of readers."""
    if not at.workers:
        return Epoch(wait_s=load, compute_s=compute)
    slowed = load * (4 if at.workers > cliff else 1)
    return Epoch(wait_s=max(0.0, slowed / at.workers - compute), compute_s=compute)


def tuned(load: float, compute: float, cliff: int = 99, start: int = 0) -> list[LoaderSettings]:
    choice, at, tried = LoaderChoice(most=MOST), LoaderSettings(start), []
    for _ in range(EPOCHS_MOST + 2):
        tried.append(at)
        at = choice.next(at, epoch(at, load, compute, cliff))
    return tried


def test_the_next_epoch_already_hides_the_loading() -> None:
    settings = tuned(load=0.08, compute=0.02)[1]
    assert settings.workers == 5
    assert epoch(settings, 0.08, 0.02).waits == 0


def test_what_does_not_wait_is_left_alone() -> None:
    assert set(tuned(load=0.001, compute=0.1)) == {LoaderSettings(0)}


def test_too_many_readers_are_taken_back() -> None:
    last = tuned(load=0.16, compute=0.01, cliff=4)[-1]
    assert last.workers == 4


def test_loading_that_needs_the_cpu_gets_no_more_workers_than_cores() -> None:
    choice = LoaderChoice(most=MOST, cores=2)
    wanted = choice.next(LoaderSettings(0), Epoch(wait_s=0.1, compute_s=0.01, cpu_s=0.1))
    assert wanted.workers == 2


@given(TIMES, TIMES, st.integers(1, 99), st.integers(0, MOST))
def test_it_settles_on_the_best_that_it_tried(
    load: float, compute: float, cliff: int, start: int
) -> None:
    tried = tuned(load, compute, cliff, start)
    assert all(0 <= at.workers <= MOST for at in tried)
    times = {at: epoch(at, load, compute, cliff).step_s for at in tried}
    assert times[tried[-1]] <= min(times.values()) * 1.04 + 1e-12
    assert len(set(tried)) <= EPOCHS_MOST


@given(TIMES, TIMES)
def test_without_a_cliff_it_is_as_good_as_any_number(load: float, compute: float) -> None:
    best = min(epoch(LoaderSettings(n), load, compute).step_s for n in range(MOST + 1))
    last = tuned(load, compute)[-1]
    shown = epoch(last, load, compute)
    assert shown.step_s <= best * 1.05 or shown.waits <= WAITS * 1.01


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", LoaderLimits()),
        ("x", LoaderLimits()),
        ("-4", LoaderLimits()),
        ("8", LoaderLimits(most=8)),
        ("999999999", LoaderLimits(most=64)),
        ("8,6,2", LoaderLimits(most=8, start=LoaderSettings(6, 2))),
        ("4,6,2", LoaderLimits(most=4)),
        ("8,6,99", LoaderLimits(most=8, start=LoaderSettings(6, 16))),
        ("8," * 1000, LoaderLimits()),
    ],
)
def test_terms_of_a_job_are_read(text: str, expected: LoaderLimits) -> None:
    assert LoaderLimits.of(text) == expected


class Holder:
    def __init__(self, inside: object) -> None:
        self.inside = inside


def test_open_files_in_a_data_set_are_found(tmp_path: Any) -> None:
    with (tmp_path / "x").open("wb") as file:
        assert holds_files(Holder({"shards": [file]}))
    assert holds_files(Holder(Holder(sqlite3.connect(":memory:"))))
    assert holds_files(io.BytesIO())
    assert not holds_files(Holder([1, "a", b"b", None, {"a": 1}]))


def test_a_data_set_that_contains_itself_ends_the_search() -> None:
    holder = Holder(None)
    holder.inside = [holder] * 1000
    assert not holds_files(holder)
