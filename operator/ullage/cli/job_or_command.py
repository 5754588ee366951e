# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A group of commands with a default one: ``trace JOB`` is ``trace job JOB``.

Typer alone: ``--help`` needs nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperGroup

DEFAULT: Final = "job"


class JobOrCommand(TyperGroup):
    """Takes a first word that is no command for the argument of the default one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of these words: its name, the command, and the words after it."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [DEFAULT, *args]
        return super().resolve_command(ctx, args)
