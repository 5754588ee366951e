# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A mutant, and a copy of the code to try it in."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ("operator", "deviceplugin", "runtime")
LOOK_S: Final = 0.5


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
    around: Sequence[str] = ()
    """Words before those of pytest: a program that runs it."""

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
        done = subprocess.run(
            (*self.around, sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests),
            cwd=ROOT,
            env=self._env(),
            capture_output=True,
            timeout=most_s,
            check=False,
        )
        if done.returncode not in ok:
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return done

    def lines_of(self, module: str, text: str, *words: str) -> Iterator[str]:
        """Run a module on the copy, and read what it writes, line by line, as it comes.

        Args:
            module: Its arguments: a file with the text, the words, and the file to write to.
            text: For the file.
            words: Of the command line.

        Raises:
            RuntimeError: it ended with an error.
        """
        reads, writes = self.folder / "input", self.folder / "lines"
        reads.write_text(text, encoding="utf-8")
        writes.touch()
        with (self.folder / "output").open("w+b") as output, writes.open(encoding="utf-8") as lines:
            process = subprocess.Popen(
                (*self.around, sys.executable, "-m", module, str(reads), *words, str(writes)),
                cwd=ROOT,
                env=self._env(),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                rest, ended = "", False
                while not ended:
                    ended = process.poll() is not None
                    *whole, rest = (rest + lines.read()).split("\n")
                    yield from whole
                    time.sleep(LOOK_S)
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                output.seek(0)
                raise RuntimeError(output.read().decode())

    def _env(self) -> dict[str, str]:
        path = os.pathsep.join(str(self.folder / source) for source in SOURCES)
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((path, str(ROOT / "tests"))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@contextmanager
def copied(around: Sequence[str] = ()) -> Iterator[Copy]:
    """A copy of the code, gone afterwards; its tests are run by a program, where one is named."""
    with TemporaryDirectory() as folder:
        for source in SOURCES:
            shutil.copytree(ROOT / source, Path(folder) / source)
            # read compiled by every run; what a change made is never kept compiled
            compileall.compile_dir(Path(folder) / source, quiet=2)
        yield Copy(Path(folder), around)
