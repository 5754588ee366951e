# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the kernel has no freezer, processes are stopped one by one: those of the container alone.

A number that was listed may be another process's when it is signalled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from ullage_node.guard import freezer
from ullage_node.guard.finder import FreezableCgroup, FreezerKind
from ullage_node.guard.freezer import Freezer

PLACE = FreezableCgroup(folder=Path("/nowhere"), kind=FreezerKind.SIGNAL)


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[bytes]]]:
    words = [sys.executable, "-c", "input()"]
    made = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(2)]
    yield made
    for program in made:
        program.kill()
        program.communicate()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_one_that_is_listed_no_more_is_not_signalled(
    programs: list[subprocess.Popen[bytes]],
) -> None:
    stays, left = (program.pid for program in programs)
    looks = iter([{stays, left}, {stays}, {stays}])
    with patch.object(freezer, "members", lambda _: next(looks, {stays})):
        Freezer(deadline_seconds=60).freeze([PLACE])
        assert (state(stays), state(left) in "T") == ("T", False)
        Freezer(deadline_seconds=60).thaw([PLACE])
        assert state(stays) != "T"


def test_one_that_has_ended_is_passed_over(programs: list[subprocess.Popen[bytes]]) -> None:
    stays, gone = programs
    gone.kill()
    gone.communicate()
    with patch.object(freezer, "members", lambda _: {stays.pid, gone.pid}):
        Freezer(deadline_seconds=60).freeze([PLACE])
        assert state(stays.pid) == "T"
        Freezer(deadline_seconds=60).thaw([PLACE])
    assert os.waitpid(stays.pid, os.WNOHANG) == (0, 0)


def test_more_processes_than_are_held_at_a_time(programs: list[subprocess.Popen[bytes]]) -> None:
    pids = {program.pid for program in programs}
    with patch.object(freezer, "members", lambda _: pids), patch.object(freezer, "HELD_MOST", 1):
        Freezer(deadline_seconds=60).freeze([PLACE])
        assert {state(pid) for pid in pids} == {"T"}
        Freezer(deadline_seconds=60).thaw([PLACE])
