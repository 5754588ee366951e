# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The directory of orders and answers of one container, which its tenant may write.

The link that leads to it is the agent's own. No link in it is followed, and of any number of
entries a bounded part is looked at.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from ullage.api.captures import (
    RANKS_MOST,
    RAW_PREFIX,
    REFUSED_SUFFIX,
    TRACE_FOLDER,
    TRACE_SUFFIX,
    UNFINISHED_SUFFIX,
)

ENTRIES_MOST: Final = 512
"""Entries of the directory that are looked at."""
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ANSWER: Final = re.compile(
    rf"-(0|[1-9][0-9]?)({re.escape(TRACE_SUFFIX)}|{re.escape(REFUSED_SUFFIX)})"
)


def open_folder(steps_dir: Path) -> int:
    """Open the directory of orders and answers.

    Raises:
        OSError: there is none.
    """
    return os.open(steps_dir / TRACE_FOLDER, _FLAGS)


def names_in(folder: int) -> frozenset[str]:
    """Names of the entries of a directory, of the first ones if there are too many."""
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in islice(entries, ENTRIES_MOST))


def answers_of(folder: int, id: str) -> Iterator[tuple[str, int, bool]]:
    """Names of the answers to an order, each with its rank, and whether it is a trace."""
    for name in names_in(folder):
        match = _ANSWER.fullmatch(name, len(id)) if name.startswith(id) else None
        if match is not None and int(match[1]) < RANKS_MOST:
            yield name, int(match[1]), match[2] == TRACE_SUFFIX


def unfinished_in(folder: int, id: str) -> Iterator[str]:
    """Names of files that ranks rename or remove once they are complete."""
    for name in names_in(folder):
        answer = name.removesuffix(UNFINISHED_SUFFIX)
        begun = answer != name and name.startswith(id) and _ANSWER.fullmatch(answer, len(id))
        if begun or name.startswith(RAW_PREFIX):
            yield name


def read_plain(folder: int, name: str, most: int) -> bytes:
    """A plain file of at most ``most`` bytes.

    Raises:
        OSError: it is none, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{name} is no plain file")
        data = os.read(file, most + 1)
    finally:
        os.close(file)
    if len(data) > most:
        raise OSError(f"{name} has more than {most} bytes")
    return data
