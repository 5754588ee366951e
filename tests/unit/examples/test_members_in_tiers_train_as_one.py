# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whoever owns which digit, and whoever comes or goes, the weights are the same to the last bit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from digits import data, tiered
from digits.data import CLASSES
from digits.plan import Plan
from digits.tiered import Model, newest

STEPS = 60


@pytest.fixture(scope="module")
def images() -> data.Digits:
    return data.load()


class Crowd:
    """Several models that gather as a group does, each in a thread of its own."""

    def __init__(self, models: list[Model]) -> None:
        self.models = models
        self._given: dict[str, bytes] = {}
        self._meet = threading.Barrier(len(models))

    def run(self, steps: range) -> None:
        threads = [
            threading.Thread(target=self._one, args=(model, str(at), steps))
            for at, model in enumerate(self.models)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)

    def _one(self, model: Model, name: str, steps: range) -> None:
        def gather(mine: bytes) -> dict[str, bytes]:
            self._given[name] = mine
            self._meet.wait(30)
            found = dict(self._given)
            self._meet.wait(30)
            return found

        for step in steps:
            model.train(step, gather)


def owning(plan: Plan, images: data.Digits, *digits: int) -> Model:
    model = Model(plan, images)
    for digit in digits:
        model.take(digit, None)
    return model


def weights(*models: Model) -> dict[int, bytes]:
    return {
        digit: bytes(model.values(digit)) for model in models for digit in model._weights
    }  # fmt: skip


def test_two_train_as_one(images: data.Digits, tmp_path: Path) -> None:
    plan = Plan(checkpoint_dir=tmp_path)
    alone = owning(plan, images, *range(CLASSES))
    Crowd([alone]).run(range(1, STEPS + 1))
    first, second = owning(plan, images, 0, 3, 7), owning(plan, images, 1, 2, 4, 5, 6, 8, 9)
    watcher = owning(plan, images)  # owns nothing, as a reliable member in stage 2
    Crowd([first, second, watcher]).run(range(1, STEPS + 1))
    assert weights(first, second) == weights(alone)


def test_a_shard_that_moves_goes_on_where_it_was(images: data.Digits, tmp_path: Path) -> None:
    plan = Plan(checkpoint_dir=tmp_path)
    alone = owning(plan, images, *range(CLASSES))
    Crowd([alone]).run(range(1, STEPS + 1))
    first, second = owning(plan, images, *range(5)), owning(plan, images, *range(5, CLASSES))
    Crowd([first, second]).run(range(1, 31))
    for digit in range(5, CLASSES):
        first.take(digit, second.values(digit))
        second.drop(digit)
    Crowd([first, second]).run(range(31, STEPS + 1))
    assert weights(first, second) == weights(alone)


def test_a_checkpoint_counts_when_all_have_written_it(images: data.Digits, tmp_path: Path) -> None:
    plan = Plan(checkpoint_dir=tmp_path)
    first, second = owning(plan, images, *range(5)), owning(plan, images, *range(5, CLASSES))
    Crowd([first, second]).run(range(1, 4))
    first.save(3)
    assert newest(tmp_path) == 0
    second.save(3)
    assert newest(tmp_path) == 3
    first.save(3 + 2 * plan.checkpoint_every)
    assert len(list(tmp_path.iterdir())) == CLASSES, "what is two checkpoints old goes"
    first.save(3)
    again = Model(plan, images)
    again.take(7, None)
    assert again.at_step == 3
    assert again.values(7) == second.values(7)
    again.discard()
    assert newest(tmp_path) == 0


def test_it_learns_to_read(images: data.Digits, tmp_path: Path) -> None:
    alone = owning(Plan(checkpoint_dir=tmp_path), images, *range(CLASSES))
    for step in range(1, 400):
        alone.train(step, lambda mine: {"one": mine})
    assert alone.accuracy(lambda mine: {"one": mine}) > 0.9


def test_a_wrong_number_of_shards_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("ULLAGE_SHARDS", "64")
    assert tiered.main() == 2
    assert "elasticity.backup.shards must be 10" in capsys.readouterr().err
