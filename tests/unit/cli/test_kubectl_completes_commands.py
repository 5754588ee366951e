# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kubectl completes ``kubectl ullage``: one completion a line, and what the shell may do last."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "from ullage.cli.completion import run; run()"


def completed(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    *found, directive = done.stdout.splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in found]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ((), {"status", "why", "top", "doctor"}),
        (("st",), {"status"}),
        (("status", "--o"), {"--output"}),
        (("status", "-o", ""), {"table", "json", "yaml", "name"}),
        (("-n", "team a", "profile", ""), {"export", "import"}),
    ],
)
def test_what_may_follow(words: tuple[str, ...], some: set[str]) -> None:
    assert some <= set(completed(*words))


@pytest.mark.parametrize("word", ["no-such-command", "'; rm -rf /", '"', "--nothing"])
def test_strange_words_end_nothing(word: str) -> None:
    for words in ((word,), (word, "")):
        assert all(completed(*words))
