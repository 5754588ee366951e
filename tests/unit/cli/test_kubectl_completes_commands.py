# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kubectl completes ``kubectl ullage``: one completion a line, and what the shell may do last."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ullage.cli.completion import asked, run

PROGRAM = "from ullage.cli.completion import run; run()"
Completed = Callable[..., list[str]]


def completions(out: str, err: str) -> list[str]:
    assert err == ""
    *found, directive = out.splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in found]


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Completed:
    """What follows some words, found in this process."""

    def complete(*words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["kubectl_complete-ullage", *words])
            for name in asked(words):
                patch.setenv(name, "")  # what the program sets is gone afterwards
            run()
        return completions(*capsys.readouterr())

    return complete


@pytest.mark.slow
def test_kubectl_starts_it_as_a_process() -> None:
    command = [sys.executable, "-c", PROGRAM, "profile", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"export", "import"} <= set(completions(done.stdout, done.stderr))


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
def test_what_may_follow(words: tuple[str, ...], some: set[str], completed: Completed) -> None:
    assert some <= set(completed(*words))


@pytest.mark.parametrize("word", ["no-such-command", "'; rm -rf /", '"', "--nothing"])
def test_strange_words_end_nothing(word: str, completed: Completed) -> None:
    for words in ((word,), (word, "")):
        assert all(completed(*words))
