# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from digits.checkpoint import read
from digits.data import Digits
from digits.plan import Plan
from digits.training import Trainer

Start = Callable[..., subprocess.Popen[str]]


def test_ninety_five_of_a_hundred_after_a_second(digits: Digits) -> None:
    trainer = Trainer(Plan(steps=400, hidden=64), digits)
    while not trainer.finished:
        trainer.advance()
    assert trainer.accuracy() >= 0.95


def test_the_same_plan_gives_the_same_bits(digits: Digits) -> None:
    ends = []
    for _ in range(2):
        trainer = Trainer(Plan(steps=20, hidden=8), digits)
        while not trainer.finished:
            trainer.advance()
        ends.append(trainer.state.theta)
    assert np.array_equal(ends[0], ends[1])


def test_batches_leave_the_images_untouched(digits: Digits) -> None:
    before = digits.train_images.copy()
    Trainer(Plan(steps=5, hidden=8), digits).advance()
    assert np.array_equal(digits.train_images, before)


def test_the_program_ends_with_its_accuracy_and_leaves_no_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.npz"
    training = start("train", STEPS=300, HIDDEN=32, CHECKPOINT_EVERY=100, WEIGHTS=weights)
    printed, complaints = training.communicate(timeout=60)
    assert (training.returncode, complaints) == (0, "")
    last = re.fullmatch(r"test accuracy (0\.\d{4})", printed.splitlines()[-1])
    assert last is not None
    assert float(last[1]) >= 0.9
    assert [file.name for file in tmp_path.iterdir()] == ["weights.npz"]
    assert read(weights, "theta")["theta"].ndim == 1
