# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A mutant, and a copy of the code to try it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("operator", "deviceplugin", "runtime")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule that is broken, the line that breaks it, and the tests that must notice."""

    rule: str
    file: str
    line: str
    instead: str
    tests: Sequence[str]

    def text(self) -> str:
        """The file with the rule broken.

        Raises:
            ValueError: the line is not there, or stands there twice.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.line) != 1:
            raise ValueError(f"{self.file}: {text.count(self.line)} times {self.line!r}")
        return text.replace(self.line, self.instead)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the code, and the tests on it."""

    folder: Path

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """One file says something else for a while."""
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            shutil.copyfile(ROOT / file, path)

    def run(
        self, tests: Sequence[str], most_s: float, *, ok: Sequence[int] = (0, 1)
    ) -> subprocess.CompletedProcess[bytes]:
        """Run tests until one fails.

        Args:
            tests: Files, folders or tests.
            most_s: Seconds at most.
            ok: Exit codes of pytest that are an answer.

        Raises:
            TimeoutExpired: they took longer.
            RuntimeError: they did not run: no such test, or pytest was stopped.
        """
        path = os.pathsep.join(str(self.folder / source) for source in SOURCES)
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=most_s,
            check=False,
        )
        if done.returncode not in ok:
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return done


@contextmanager
def copied() -> Iterator[Copy]:
    """A copy of the code, gone afterwards."""
    with TemporaryDirectory() as folder:
        for source in SOURCES:
            shutil.copytree(ROOT / source, Path(folder) / source)
        yield Copy(Path(folder))
