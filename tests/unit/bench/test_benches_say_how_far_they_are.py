# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.progress import Progress
from bench.report import ROOT
from demo.progress import Progress as Steps

NEVER_S = 3600.0


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def until(true: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def told(file: io.StringIO) -> list[str]:
    """The lines without their times."""
    return [line.partition("] ")[2] for line in file.getvalue().splitlines()]


def test_what_begins_is_said_at_once_where_there_is_no_terminal() -> None:
    file = io.StringIO()
    with Progress(file, NEVER_S) as progress:
        progress.say("filling")
        assert told(file) == ["filling"]
    assert file.getvalue().startswith("[    0 s] ")


def test_parts_of_a_task_are_lines_and_the_last_one_always() -> None:
    file = io.StringIO()
    with Progress(file, NEVER_S) as progress:
        task = progress.task("decisions", 100)
        for _ in range(100):
            task.advance()
    lines = told(file)
    assert lines[-1] == "decisions: 100 of 100 (100 %)"
    assert len(lines) <= 20


def test_a_small_part_is_not_worth_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("bench.progress.time.monotonic", lambda: now)
    file = io.StringIO()
    with Progress(file, NEVER_S) as progress:
        task = progress.task("decisions", 1000)
        for _ in range(500):
            now += 0.2
            task.advance()
    assert told(file) == [
        f"decisions: {done} of 1000 ({done // 10} %)" for done in range(50, 501, 50)
    ]


def test_silence_ends_with_a_line_about_the_open_task() -> None:
    file, before = io.StringIO(), threading.active_count()
    with Progress(file, 0.02) as progress:
        task = progress.task("windows", 0)
        task.to(3)
        until(lambda: "windows: 3" in told(file))
        task.end()
        progress.say("one update of the model")
        until(lambda: "still running (last: one update of the model)" in told(file))
    seen = len(told(file))
    time.sleep(0.1)
    assert len(told(file)) == seen
    assert threading.active_count() <= before


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Progress(file, 0.001) as progress:
        progress.say("filling [red]")
        task = progress.task("ours", 10)
        task.to(4, "ours, 4 run")
        until(lambda: progress._bars is not None and "40%" in file.getvalue())
        task.end()
    assert "filling [red]" in file.getvalue()
    assert "ours, 4 run" in file.getvalue()
    assert "still running" not in file.getvalue()


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    with Progress(file, NEVER_S) as progress:
        progress.task("ours", 10).to(10)
    assert told(file) == ["ours: 10 of 10 (100 %)"]


def test_a_long_step_of_the_demonstration_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = ""

    def goes_on() -> bool:
        nonlocal seen
        seen += capsys.readouterr().out
        return "still: load the images" in seen

    with Steps(still_s=0.01).step("load the images [2]", expect_s=20):
        until(goes_on)
    assert "... load the images" in seen
    assert "ok  load the images" in capsys.readouterr().out


def test_no_benchmark_has_a_progress_of_its_own() -> None:
    shared = ROOT / "bench" / "progress.py"
    own = [
        str(file.relative_to(ROOT))
        for file in Path(ROOT / "bench").rglob("*.py")
        if file != shared and "rich.progress" in file.read_text(encoding="utf-8")
    ]
    assert own == []
