# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records each paused container in a file, written before its first process is stopped.

A guard that finds an entry which no running guard owns resumes that container. An entry is removed
only after its container runs again, so a crash at any point leaves a superfluous entry, never a
missing one.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from ullage_node.files import read_bounded, remove_temporaries, write_whole
from ullage_node.guard.finder import FreezableCgroup, FreezerKind

SUFFIX = ".json"
MOST_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One container that is, or may be, stopped; times are CLOCK_MONOTONIC seconds."""

    slice: str
    """``<pod uid>_<container>``."""
    place: FreezableCgroup
    since_s: float
    until_s: float
    """Deadline by which it must run again."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The entries in one directory of the node's tmpfs."""

    folder: Path

    def write(self, entry: JournalEntry) -> None:
        """Record that a container is about to be stopped.

        Raises:
            OSError: the directory cannot be written; then no container may be stopped.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = {
            "version": 1,
            "slice": entry.slice,
            "folder": str(entry.place.folder),
            "kind": entry.place.kind.value,
            "since": entry.since_s,
            "until": entry.until_s,
            "why": entry.why,
        }
        path = self.folder / f"{entry.slice}{SUFFIX}"
        write_whole(path, json.dumps(body).encode(), mode=0o600)

    def remove(self, name: str) -> None:
        """Forget a container that runs again."""
        (self.folder / f"{name}{SUFFIX}").unlink(missing_ok=True)

    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries that can be read, in order of their names."""
        return tuple(entry for path in self._files() if (entry := _read(path)) is not None)

    def discard_unreadable(self) -> int:
        """Remove unreadable entries; returns their number."""
        broken = [path for path in self._files() if _read(path) is None]
        for path in broken:
            path.unlink(missing_ok=True)
        remove_temporaries(self.folder, "")
        return len(broken)

    def _files(self) -> list[Path]:
        # Called several times a second, so it makes one system call.
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []
        return [self.folder / name for name in sorted(names) if name.endswith(SUFFIX)]


def _read(path: Path) -> JournalEntry | None:
    try:
        body = json.loads(read_bounded(path, MOST_BYTES))
        entry = JournalEntry(
            slice=path.name.removesuffix(SUFFIX),
            place=FreezableCgroup(folder=Path(str(body["folder"])), kind=FreezerKind(body["kind"])),
            since_s=float(body["since"]),
            until_s=float(body["until"]),
            why=str(body.get("why", "")),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None
    except RecursionError:
        return None
    # An entry without an end would never let its container run.
    return entry if math.isfinite(entry.since_s) and math.isfinite(entry.until_s) else None
