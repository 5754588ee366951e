# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.proc_tree import a_process
from ullage_node.devices.processes import identified, identity, lives
from ullage_node.lanes.moves import Moves
from ullage_node.model.switching import ProcessId

PROC = Path("/proc")


def test_a_process_of_this_machine_lives_until_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        process = identity(PROC / str(program.pid))
        assert process.pid == program.pid
        assert lives(PROC, process)
        assert identified(PROC, [program.pid]) == (process,)
        assert program.stdin is not None
        program.stdin.close()
        program.wait()
        assert not lives(PROC, process)
        assert identified(PROC, [program.pid]) == ()


def test_another_process_of_the_same_number_is_another_process(tmp_path: Path) -> None:
    first = a_process(tmp_path, 77, start=1)
    a_process(tmp_path, 77, start=2)
    assert not lives(tmp_path, first)
    moves = Moves(lambda *_: None)
    moves.proc_root = tmp_path
    assert not moves.lives([first])
    assert moves.lives([ProcessId(77, 2)])


def test_what_is_of_another_pod_by_now_is_left_out(tmp_path: Path) -> None:
    uid, other = "0" * 32, "1" * 32
    mine = a_process(tmp_path, 77, pod_uid=uid)
    a_process(tmp_path, 78, pod_uid=other)
    unnamed = a_process(tmp_path, 79)
    assert identified(tmp_path, (77, 78, 79, 80), uid) == (mine, unnamed)
    assert len(identified(tmp_path, (77, 78))) == 2


@pytest.mark.parametrize("text", ["", "77 (x", "77 (x) S 1", "x (x) " + "1 " * 40])
def test_what_is_no_file_of_the_kernel_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text(text)
    with pytest.raises(OSError, match="cannot be read"):
        identity(tmp_path / "77")
    assert identified(tmp_path, (77, os.getpid())) == ()
