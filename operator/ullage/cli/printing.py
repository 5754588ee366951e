# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Consoles of commands, their errors, and styles of status words; without a cluster."""

from __future__ import annotations

import difflib
import os
import sys
from typing import NoReturn

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from ullage.api.reasons import ConditionType, Reason

_UNFOLDED = 4096
"""Width without a terminal: each row of a table is one line."""


def console_for(stream: str = "stdout") -> Console:
    """A console that wraps lines on a terminal, and not in a pipe or a file."""
    error = stream == "stderr"
    terminal = (sys.stderr if error else sys.stdout).isatty()
    width = None if terminal or os.environ.get("COLUMNS") else _UNFOLDED
    return Console(stderr=error, highlight=False, width=width)


console = console_for()
problems = console_for("stderr")


def fail(text: str) -> NoReturn:
    """End the command with exit status 1 and this text."""
    problems.print(f"error: {text}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(code=1)


def explanation(word: str) -> RenderableType:
    """Meaning of a reason or condition and the remedy.

    Raises:
        ValueError: the word is unknown; the text has similar ones.
    """
    for reason in Reason:
        if reason.value.lower() == word.lower():
            return Group(
                Text(reason.value, style="bold"), reason.meaning, Text(reason.what_to_do, "green")
            )
    for type_ in ConditionType:
        if type_.value.lower() == word.lower():
            title = Text(f"condition {type_.value}", style="bold")
            return Group(title, type_.true_when)
    near = difflib.get_close_matches(word, [item.value for item in Reason], n=3, cutoff=0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise ValueError(f"no reason or condition {word!r}{hint}")
