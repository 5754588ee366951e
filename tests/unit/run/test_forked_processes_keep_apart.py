# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Each test runs a small program, because forking and locking concern whole processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ullage.api.environment import ENV_STEPS
from ullage.api.steps import StepRecord


def run(program: str, record: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, ENV_STEPS: str(record)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def steps(record: Path) -> int:
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    return written.steps


def test_a_child_is_silent_while_its_parent_writes(record: Path) -> None:
    program = """
import os, ullage_run
for _ in range(10):
    ullage_run.step()
child = os.fork()
for _ in range(5):
    ullage_run.step()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
ullage_run.step()
"""
    run(program, record)
    assert steps(record) == 16


def test_a_child_of_a_parent_that_never_stepped_writes(record: Path) -> None:
    program = """
import os, ullage_run
child = os.fork()
if child == 0:
    for _ in range(7):
        ullage_run.step()
    os._exit(0)
os.waitpid(child, 0)
"""
    run(program, record)
    assert steps(record) == 7


def test_a_child_goes_on_from_what_its_parent_loaded(record: Path) -> None:
    program = """
import os, ullage_run
assert ullage_run.resumed(5000)
child = os.fork()
if child == 0:
    for _ in range(7):
        ullage_run.step()
    os._exit(0)
os.waitpid(child, 0)
"""
    run(program, record)
    written = StepRecord.unpack(record.read_bytes())
    assert written is not None
    assert (written.resumed_at, written.steps) == (5000, 7)


def test_an_orphan_takes_over_from_zero(record: Path) -> None:
    program = """
import os, ullage_run
from ullage_run import record
for _ in range(10):
    ullage_run.step()
reader, writer = os.pipe()
record.RECORD_RETRY_NS = 0
if os.fork():
    os._exit(0)
os.close(writer)
ullage_run.step()                 # the parent may still hold the record
assert os.read(reader, 1) == b""  # the end of the parent closes the other end
for _ in range(3):
    ullage_run.step()
"""
    run(program, record)
    assert 3 <= steps(record) <= 4


def test_a_fork_in_the_middle_of_a_step_does_not_lock_the_child(record: Path) -> None:
    program = """
import os, threading, ullage_run
def spin():
    while True:
        ullage_run.step()
for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
for _ in range(50):
    child = os.fork()
    if child == 0:
        ullage_run.step()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    run(f"import warnings; warnings.simplefilter('ignore'){program}", record)
    assert steps(record) > 50


def test_a_forked_worker_dies_of_sigterm_as_it_always_did(record: Path) -> None:
    program = """
import os, signal, ullage_run
ullage_run.watch_sigterm()
child = os.fork()
if child == 0:
    signal.pause()
    os._exit(0)
os.kill(child, signal.SIGTERM)
status = os.waitpid(child, 0)[1]
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
assert not ullage_run.stopping()
"""
    run(program, record)
