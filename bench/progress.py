# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one way in which a benchmark says how far it is: bars on a terminal, plain lines elsewhere.

All of it goes to standard error; the table on standard output stays alone.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from demo.progress import every

SILENCE_S: Final = 10.0
"""After so long without a line one says that the benchmark still runs."""
PART: Final = 0.05
"""So much more of a task is worth a line, but at most one a second."""
BETWEEN_S: Final = 1.0


class Progress:
    """What a benchmark does now and how much of it is done.

    Args:
        file: Where it is said; ``None`` = standard error.
        silence_s: Longest time without a line where there is no terminal.
    """

    def __init__(self, file: TextIO | None = None, silence_s: float = SILENCE_S) -> None:
        self._file = sys.stderr if file is None else file
        self._silence_s = silence_s
        self._began = self._last = time.monotonic()
        self._now = ""
        self._open: list[Task] = []
        self._one_at_a_time = threading.Lock()
        self._bars = _bars(self._file)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Begin to count the time."""
        self._began = self._last = time.monotonic()
        if self._bars is not None:
            self._running.enter_context(self._bars)
        else:
            self._running.enter_context(every(self._silence_s, self._still))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the bars, or the lines."""
        self._running.close()

    def say(self, what: str) -> None:
        """A line for the reader: what begins now, or what came out."""
        self._now = what
        if self._bars is not None:
            self._bars.console.print(line(self._began, what), markup=False, soft_wrap=True)
        else:
            self._line(what)

    def task(self, what: str, total: float) -> Task:
        """Something that is done in parts.

        Args:
            what: A few words.
            total: How much there is, in any unit; 0 = not known yet.
        """
        found = Task(what=what, total=total, _progress=self)
        if self._bars is not None:
            found._bar = self._bars.add_task(what, total=total or None)
        self._open.append(found)
        return found

    def _show(self, task: Task) -> None:
        if self._bars is not None and task._bar is not None:
            self._bars.update(
                task._bar, completed=task.done, total=task.total or None, description=task.what
            )
            return
        enough = task.done - task._told >= PART * task.total
        ended = task.done >= task.total > task._told
        if ended or (enough and time.monotonic() - self._last >= BETWEEN_S):
            self._tell(task)

    def _end(self, task: Task) -> None:
        if task in self._open:
            self._open.remove(task)
        if self._bars is not None and task._bar is not None:
            self._bars.remove_task(task._bar)

    def _tell(self, task: Task) -> None:
        task._told = task.done
        of = f" of {task.total:g} ({task.percent:.0f} %)" if task.total else ""
        self._line(f"{task.what}: {task.done:g}{of}")

    def _still(self) -> None:
        """Said in a thread when nothing else was for a while."""
        if time.monotonic() - self._last < self._silence_s / 2:
            return
        if self._open:
            self._tell(self._open[-1])
        else:
            self._line(f"still running{f' (last: {self._now})' if self._now else ''}")

    def _line(self, what: str) -> None:
        with self._one_at_a_time:
            self._last = time.monotonic()
            print(line(self._began, what), file=self._file, flush=True)


@dataclass(slots=True, eq=False)
class Task:
    """Something that is done in parts; :meth:`Progress.task` makes it."""

    what: str
    total: float
    _progress: Progress
    done: float = 0.0
    _told: float = 0.0
    _bar: TaskID | None = None

    @property
    def percent(self) -> float:
        """How much is done, 0 to 100."""
        return 100.0 * min(1.0, self.done / self.total) if self.total else 100.0

    def to(self, done: float, what: str = "") -> None:
        """So much is done now.

        Args:
            done: In the unit of the total.
            what: Other words for it from now on.
        """
        self.done, self.what = done, what or self.what
        self._progress._show(self)

    def advance(self, by: float = 1.0) -> None:
        """So much more is done."""
        self.to(self.done + by)

    def end(self) -> None:
        """It is over; nothing more is said of it."""
        self._progress._end(self)


def line(began: float, what: str) -> str:
    """A plain line; ``began`` is a moment of the monotonic clock."""
    return f"[{time.monotonic() - began:5.0f} s] {what}"


def _bars(file: TextIO) -> Bars | None:
    """Bars where a terminal can draw them."""
    console = Console(file=file, highlight=False)
    if not file.isatty() or console.is_dumb_terminal:
        return None
    return Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
    )
