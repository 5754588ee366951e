# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl_complete-ullage``: kubectl runs it for the completions of ``kubectl ullage``.

kubectl expects one completion per line, with a tab before its description, and at the end a
directive for the shell. Typer prints such lines for fish, requested by environment variables.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Final

PROGRAM: Final = "ullage"
NO_FILES: Final = ":4"
"""``ShellCompDirectiveNoFileComp`` of kubectl: no completion of file names."""


def asked(words: Sequence[str]) -> dict[str, str]:
    """Environment variables that request completions from Typer.

    Args:
        words: The command line after ``kubectl ullage``; the last word is incomplete.
    """
    line = [PROGRAM, *words[:-1]]
    return {
        f"_{PROGRAM.upper()}_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{shlex.join(line)} {words[-1] if words else ''}",
    }


def run() -> None:
    """Entry point of ``kubectl_complete-ullage``."""
    from ullage.cli.main import app

    os.environ.update(asked(sys.argv[1:]))
    printed = StringIO()
    with suppress(SystemExit), redirect_stdout(printed):  # Typer ends the process once it answered
        app(prog_name=PROGRAM, standalone_mode=False)
    completions = [line for line in printed.getvalue().splitlines() if line]
    sys.stdout.write("\n".join([*completions, NO_FILES, ""]))
