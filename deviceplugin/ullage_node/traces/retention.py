# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces that stay in a container's directory for ``kubectl ullage trace get``: the newest."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import Final

from ullage.api.captures import REFUSED_SUFFIX, TRACE_SUFFIX
from ullage_node.traces.folder import ENTRIES_MOST, open_folder

KEPT: Final = 2
"""Orders of one container whose answers stay."""
_ANSWER: Final = re.compile(
    rf"(.+)-[0-9]{{1,2}}(?:{re.escape(TRACE_SUFFIX)}|{re.escape(REFUSED_SUFFIX)})"
)


def drop_old_answers(steps_dir: Path) -> None:
    """Remove the answers to all but the newest orders; times of files are the tenant's word.

    Args:
        steps_dir: Directory of the container's step records on the node.

    Raises:
        OSError: something cannot be removed.
    """
    try:
        folder = open_folder(steps_dir)
    except FileNotFoundError:
        return
    try:
        newest: dict[str, float] = {}
        names: dict[str, list[str]] = {}
        with os.scandir(folder) as entries:
            for entry in islice(entries, ENTRIES_MOST):
                match = _ANSWER.fullmatch(entry.name)
                if match is None:
                    continue
                changed = entry.stat(follow_symlinks=False).st_mtime
                newest[match[1]] = max(newest.get(match[1], changed), changed)
                names.setdefault(match[1], []).append(entry.name)
        for order in sorted(newest, key=lambda each: (newest[each], each))[:-KEPT]:
            for name in names[order]:
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)
