# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers of the ranks of one container to an order.

Names, types, sizes and contents are the tenant's. Only plain files count, at most one a rank, and
of a directory with any number of entries a bounded part is looked at.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.captures import REFUSAL_BYTES_MOST, TRACE_FOLDER, CaptureRefusal
from ullage_node.traces.folder import answers_of, open_folder, read_plain

TEXT_MOST: Final = 300
"""Characters of a refusal's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """Answer of one rank.

    Attributes:
        rank: Its number in the container, 0..15; what it is in the job, its trace claims.
        path: Its trace on the node; ``None`` = it has none. The tenant may replace it at any time:
            open it without following links, and only if it is a plain file.
        bytes: Size of the trace.
        reason: Why there is none.
        text: The same with figures, from the tenant.
    """

    rank: int
    path: Path | None
    bytes: int = 0
    reason: CaptureRefusal | None = None
    text: str = ""


def collect(steps_dir: Path, id: str) -> tuple[RankAnswer, ...]:
    """Answers so far, by rank; of a rank with both a trace and a refusal, the trace.

    Args:
        steps_dir: Directory of the container's step records on the node.
        id: Name of the order.

    Raises:
        OSError: the directory cannot be read.
    """
    folder = open_folder(steps_dir)
    answers: dict[int, RankAnswer] = {}
    try:
        for name, rank, is_trace in sorted(answers_of(folder, id)):
            if is_trace:
                size = _size(folder, name)
                if size is not None:
                    path = steps_dir / TRACE_FOLDER / name
                    answers[rank] = RankAnswer(rank=rank, path=path, bytes=size)
            elif rank not in answers:
                answers[rank] = _refusal(folder, name, rank)
    finally:
        os.close(folder)
    return tuple(answers[rank] for rank in sorted(answers))


def _size(folder: int, name: str) -> int | None:
    """Size of a plain file; ``None`` for anything else."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _refusal(folder: int, name: str, rank: int) -> RankAnswer:
    try:
        body = json.loads(read_plain(folder, name, REFUSAL_BYTES_MOST))
        reason = CaptureRefusal(body["reason"])
        text = str(body["text"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        reason, text = CaptureRefusal.FAILED, f"its refusal cannot be read: {error}"
    text = "".join(letter for letter in text if letter.isprintable())[:TEXT_MOST]
    return RankAnswer(rank=rank, path=None, reason=reason, text=text)
