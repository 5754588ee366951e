# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Says what goes on and for how long, and runs commands so that their failure is readable."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

STILL_S: Final = 15.0
"""How long a step may say nothing where there is no terminal."""
COLUMNS: Final = 150
"""Width of the picture, and of what is shown where there is no terminal."""


class CommandFailed(RuntimeError):
    """A command ended with an error; the text holds the command and the end of its output."""


def run(*command: str, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        CommandFailed: it ended with an error.
    """
    done = subprocess.run(
        command,
        env={**os.environ, **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-4000:]
        raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}:\n{output}")
    return done.stdout


@contextmanager
def ending_with_a_reason(*kinds: type[Exception]) -> Iterator[None]:
    """End the program with the reason instead of a traceback when a command fails.

    SIGTERM, as a limit of time sends it, ends it too: what it started is taken down on the way.

    Args:
        kinds: Further exceptions whose text says all that a user needs.

    Raises:
        SystemExit: with status 1; the reason stands on standard error. 143 after SIGTERM.
    """
    told: tuple[type[Exception], ...] = (CommandFailed, *kinds)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    except told as error:
        reason: Exception = error
    except ExceptionGroup as group:
        if group.split(told)[1] is not None:
            raise
        reason = group
        while isinstance(reason, ExceptionGroup):  # of tasks that ended one another
            reason = reason.exceptions[0]
    else:
        return
    finally:
        if signal.getsignal(signal.SIGTERM) is _terminated:
            signal.signal(signal.SIGTERM, before)
    print(f"failed: {reason}", file=sys.stderr, flush=True)
    raise SystemExit(1) from reason


def _terminated(number: int, _: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end the clean-up
    print("failed: ended by SIGTERM", file=sys.stderr, flush=True)
    raise SystemExit(128 + number)


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again, in a thread, while the body runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Progress:
    """Prints one line per step: what, how long it may take, how long it took."""

    def __init__(self, still_s: float = STILL_S) -> None:
        self.console = Console(highlight=False, record=True)
        if not self.console.is_terminal:
            self.console.width = COLUMNS
        self._still_s = still_s

    @contextmanager
    def step(self, what: str, *, expect_s: float = 0.0) -> Iterator[None]:
        """A step that takes a while; on a terminal a spinner turns, elsewhere lines say so."""
        expected = f" (about {expect_s:.0f} s)" if expect_s >= 5 else ""
        started = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{what}{expected}"):
                yield
        else:
            self.console.print(f"... {what}{expected}")

            def still() -> None:  # printed past the console: no part of the picture
                print(f"    still: {what}, {time.monotonic() - started:.0f} s", flush=True)

            with every(self._still_s, still):
                yield
        self.console.print(f"[green]ok[/]  {what} [dim]{time.monotonic() - started:.1f} s[/]")

    def skip(self, what: str) -> None:
        """A step that was not needed."""
        self.console.print(f"[green]ok[/]  {what}")

    def say(self, text: str) -> None:
        """A line for the reader."""
        self.console.print(text)

    def begin_picture(self) -> None:
        """Forget what was shown so far; the picture begins here."""
        self.console.export_text(clear=True)

    def save_picture(self, path: str) -> None:
        """Save what was shown since :meth:`begin_picture` as an SVG file."""
        # without the web fonts that the format would load
        template = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        self.console.width = max(self.console.width, COLUMNS)  # a narrow terminal cuts nothing off
        self.console.save_svg(path, title="make demo", code_format=template)
