# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from digits.checkpoint import CheckpointUnusable, Store
from digits.data import Digits
from digits.plan import BadSetting, Plan
from digits.training import Trainer
from ullage.api.steps import STEP_RECORD_BYTES, StepRecord

Start = Callable[..., subprocess.Popen[str]]


def digest(printed: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith("weights sha256"))


def test_saved_and_loaded_at_any_step(digits: Digits, tmp_path: Path) -> None:
    plan = Plan(steps=30, hidden=8)
    straight = Trainer(plan, digits)
    while not straight.finished:
        straight.advance()
    store = Store(tmp_path, plan.fingerprint)
    for _ in range(plan.steps):  # a new process after every step
        trainer = Trainer(plan, digits)
        trainer.state = store.load() or trainer.state
        trainer.advance()
        store.save(trainer.state)
    assert np.array_equal(trainer.state.theta, straight.state.theta)
    assert np.array_equal(trainer.state.velocity, straight.state.velocity)


@pytest.mark.slow
def test_sigterm_saves_and_the_next_start_goes_on(start: Start, tmp_path: Path) -> None:
    straight, _ = start("train", STEPS=2000, CHECKPOINT_DIR=tmp_path / "other").communicate()
    first = start("train", STEPS=2000)
    assert first.stdout is not None
    line = first.stdout.readline()  # it reports after a twentieth
    assert line.startswith("step 100/2000")
    first.send_signal(signal.SIGTERM)
    printed, _ = first.communicate(timeout=60)
    assert first.returncode == 143
    stopped = int(printed.split("checkpoint saved at step ")[1])
    assert 100 <= stopped < 2000
    record = tmp_path / "record"
    record.write_bytes(bytes(STEP_RECORD_BYTES))
    second, _ = start("train", STEPS=2000, ULLAGE_STEPS=record).communicate(timeout=60)
    assert second.startswith(f"resumed at step {stopped}\n")
    assert digest(second) == digest(straight)
    said = StepRecord.unpack(record.read_bytes())
    assert said is not None
    assert (said.resumed_at, said.steps) == (stopped, 2000 - stopped)


def test_a_checkpoint_of_another_plan_is_refused_with_what_to_do(start: Start) -> None:
    first = start("train", STEPS=2000, CHECKPOINT_EVERY=50)
    assert first.stdout is not None
    first.stdout.readline()
    first.kill()  # not even a signal handler: the periodic checkpoint remains
    second = start("train", STEPS=50)
    _, complaint = second.communicate(timeout=60)
    assert second.returncode == 2
    assert "belongs to a run with other settings: remove it" in complaint


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04 half of one"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path, 1)
    store.file.write_bytes(damage)
    with pytest.raises(CheckpointUnusable, match="cannot be read, remove it"):
        store.load()


def test_a_failed_write_leaves_the_old_checkpoint(
    digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(steps=9, hidden=4)
    trainer, store = Trainer(plan, digits), Store(tmp_path, plan.fingerprint)
    store.save(trainer.state)

    def no_space(stream: object, **arrays: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", no_space)
    trainer.advance()
    with pytest.raises(OSError, match="No space left"):
        store.save(trainer.state)
    saved = store.load()
    assert saved is not None
    assert saved.step == 0


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("STEPS", "many", "STEPS=many: expected a whole number"),
        ("BATCH", "0", "BATCH=0: expected at least 1"),
        ("SEED", "-1", "SEED=-1: expected at least 0"),
    ],
)
def test_a_misspelt_setting_stops_with_a_sentence(name: str, value: str, complaint: str) -> None:
    with pytest.raises(BadSetting, match=complaint):
        Plan.from_environment({name: value})


def test_an_empty_setting_is_an_unset_one() -> None:
    assert Plan.from_environment({"STEPS": "", "WEIGHTS": ""}) == Plan()
