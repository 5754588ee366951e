# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ullage.api.environment import ENV_STEPS
from ullage.api.steps import StepRecord
from ullage_run.notices import Notice, NoticeKind, StopSignal

pytestmark = pytest.mark.usefixtures("sigterm")


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_sigterm_asks_for_one_checkpoint_and_then_the_end() -> None:
    stop = StopSignal()
    assert not stop.should_checkpoint()
    terminate()
    assert stop.should_checkpoint()
    assert stop.stopping()
    stop.checkpointed()
    assert not stop.should_checkpoint()
    assert stop.stopping()


def test_a_checkpoint_from_before_the_notice_does_not_count() -> None:
    stop = StopSignal()
    stop.watch()
    stop.checkpointed()
    terminate()
    assert stop.should_checkpoint()


def test_a_second_sigterm_changes_nothing() -> None:
    stop = StopSignal()
    heard: list[Notice] = []
    stop.on_notice(heard.append)
    terminate()
    stop.checkpointed()
    terminate()
    assert not stop.should_checkpoint()
    assert [notice.kind for notice in heard] == [NoticeKind.STOP]


def test_a_late_listener_still_hears() -> None:
    stop = StopSignal()
    stop.watch()
    terminate()
    heard: list[Notice] = []
    stop.on_notice(heard.append)
    assert len(heard) == 1


def test_the_handler_that_was_there_is_called_too() -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    stop = StopSignal()
    assert stop.watch()
    terminate()
    assert calls == [signal.SIGTERM]
    assert stop.stopping()


def test_outside_the_main_thread_it_waits_for_the_main_thread() -> None:
    stop = StopSignal()
    before = signal.getsignal(signal.SIGTERM)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(stop.watch() or stop.stopping()))
    thread.start()
    thread.join()
    assert answers == [False]
    assert signal.getsignal(signal.SIGTERM) is before
    assert stop.watch()


def test_a_program_that_only_counts_still_dies_of_sigterm(record: Path) -> None:
    program = "import os, signal, ullage_run; ullage_run.step(); os.kill(os.getpid(), 15)"
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGTERM


def test_a_loop_checkpoints_at_its_next_step_and_leaves(record: Path) -> None:
    program = """
import os, signal, sys, ullage_run
for step in range(100):
    ullage_run.step()
    if step == 10:
        os.kill(os.getpid(), signal.SIGTERM)
    if ullage_run.should_checkpoint():
        print("saved at", step)
        ullage_run.checkpointed()
    if ullage_run.stopping():
        sys.exit(143)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, ENV_STEPS: str(record)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (143, "saved at 10\n")
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert written.steps == 11
    assert written.last_checkpoint_ns >= written.last_step_ns
