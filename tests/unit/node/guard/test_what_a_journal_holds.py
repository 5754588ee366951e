# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A journal says what may be stopped; what is not there, or says nothing, stops no one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage_node.guard.finder import FreezableCgroup, FreezerKind
from ullage_node.guard.journal import Journal, JournalEntry

ENTRY = JournalEntry(
    slice="uid-1_main",
    place=FreezableCgroup(folder=Path("/sys/fs/cgroup/pod"), kind=FreezerKind.V2),
    since_s=10.0,
    until_s=20.0,
    why="slow",
)


def test_an_entry_reads_back_as_written_until_it_is_removed(tmp_path: Path) -> None:
    journal = Journal(folder=tmp_path / "journal")
    journal.write(ENTRY)
    assert journal.entries() == (ENTRY,)
    assert journal.discard_unreadable() == 0
    journal.remove(ENTRY.slice)
    assert journal.entries() == ()


def test_where_no_folder_is_there_are_no_entries(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (tmp_path / "missing", file):
        assert Journal(folder=folder).entries() == ()


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", "[" * 5000])
def test_an_entry_that_says_nothing_is_removed_and_no_other(tmp_path: Path, text: str) -> None:
    journal = Journal(folder=tmp_path)
    journal.write(ENTRY)
    (tmp_path / "broken.json").write_text(text, encoding="utf-8")
    assert journal.entries() == (ENTRY,)
    assert journal.discard_unreadable() == 1
    assert journal.entries() == (ENTRY,)
