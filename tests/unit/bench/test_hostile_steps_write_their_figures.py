# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each step of the benchmark that is a process of its own starts, and its figures are read."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bench import hostile


@pytest.mark.slow
def test_the_figures_of_a_fuzz_run_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "FOLDER", tmp_path)
    found = hostile.fuzz(Namespace(objects=2_000, seed=3))
    assert (found["fuzzed"], found["escapes"], found["fuzz_seed"]) == (2_000, 0, 3)


@pytest.mark.slow
def test_a_step_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match="wrote no figures"):
        hostile.fuzz(Namespace(objects="no number", seed=3))
