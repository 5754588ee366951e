# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests run which lines, and how long each takes: one run of them tells."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import coverage
import pytest

from mutants.mutant import ROOT

MAP: Final = ROOT / "build" / "mutants" / "tests.json"


@dataclass(frozen=True)
class Recording:
    """Tests by file and line, and the seconds of each test."""

    lines: Mapping[str, Mapping[str, Sequence[str]]]
    seconds: Mapping[str, float]

    @classmethod
    def read(cls) -> Self:
        """The last recording; empty without one."""
        if not MAP.exists():
            return cls(lines={}, seconds={})
        kept = json.loads(MAP.read_text(encoding="utf-8"))
        tests = list(kept["seconds"])
        return cls(
            lines={
                file: {at: [tests[number] for number in numbers] for at, numbers in by_line.items()}
                for file, by_line in kept["lines"].items()
            },
            seconds=kept["seconds"],
        )

    def keep(self) -> None:
        """Write it: tests by their numbers, since most lines have thousands."""
        number = {test: at for at, test in enumerate(self.seconds)}
        lines = {
            file: {at: [number[test] for test in tests] for at, tests in by_line.items()}
            for file, by_line in self.lines.items()
        }
        body = {"lines": lines, "seconds": self.seconds}
        MAP.write_text(json.dumps(body, separators=(",", ":")), encoding="utf-8")

    def of_those_that_exist(self) -> Self:
        """Without tests that were renamed or removed since."""
        files = {test.partition("::")[0] for test in self.seconds}
        there = (file for file in sorted(files) if (ROOT / file).exists())
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *there),
            cwd=ROOT,
            # every trial reads the tests compiled
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = {
            test: self.seconds[test] for test in done.stdout.splitlines() if test in self.seconds
        }
        lines = {
            file: {at: [test for test in tests if test in seconds] for at, tests in here.items()}
            for file, here in self.lines.items()
        }
        return type(self)(lines=lines, seconds=seconds)

    def of_line(self, file: str, line: int) -> list[str]:
        """Tests that run a line, of each file of tests the most specific one first, and so on.

        A test is the more specific, the fewer lines it runs.
        """
        return self._specific(self.lines.get(file, {}).get(str(line), ()))

    def of_file(self, file: str) -> list[str]:
        """Tests that run any line of a file, in the same order."""
        by_line = self.lines.get(file, {}).values()
        return self._specific(test for tests in by_line for test in tests)

    def _specific(self, tests: Iterable[str]) -> list[str]:
        seen: Counter[str] = Counter()
        places: list[tuple[int, int, str]] = []
        for breadth, test in sorted((self.breadth[test], test) for test in set(tests)):
            file = test.partition("::")[0]
            places.append((seen[file], breadth, test))
            seen[file] += 1
        return [test for _, _, test in sorted(places)]

    @cached_property
    def breadth(self) -> Mapping[str, int]:
        """How many lines a test runs."""
        return Counter(
            test for by_line in self.lines.values() for tests in by_line.values() for test in tests
        )


@dataclass(slots=True, eq=False)
class _Recorder:
    """Tells coverage which test is on."""

    measured: coverage.Coverage
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.add(report.nodeid)


def record(files: Sequence[str], tests: Sequence[str]) -> Recording:
    """Run tests, and add what they run to the recording; several may be at it at a time.

    A test that fails can tell nothing of a change: it is left out, and named.

    Raises:
        SystemExit: tests did not run.
    """
    os.chdir(ROOT)
    measured = coverage.Coverage(data_file=None, include=[str(ROOT / file) for file in files])
    recorder = _Recorder(measured)
    measured.start()
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=900", *tests],
        plugins=[recorder],
    )
    measured.stop()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(code))
    for test in sorted(recorder.failed):
        print(f"left out, it fails: {test}")
    kept = recorder.seconds.keys() - recorder.failed
    with _alone():
        before, data = Recording.read(), measured.get_data()
        lines: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for name in data.measured_files():
            file = str(Path(name).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(name).items():
                lines[file][str(line)] |= set(contexts) & kept
        for file, old in before.lines.items():
            for line, others in old.items():
                lines[file][line] |= set(others) - recorder.seconds.keys()
        recording = Recording(
            lines={
                file: {at: sorted(tests) for at, tests in by_line.items()}
                for file, by_line in lines.items()
            },
            seconds={
                **{test: s for test, s in before.seconds.items() if test not in recorder.failed},
                **{test: s for test, s in recorder.seconds.items() if test in kept},
            },
        )
        recording.keep()
    return recording


@contextmanager
def _alone() -> Iterator[None]:
    """No other recorder reads and writes the recording meanwhile."""
    MAP.parent.mkdir(parents=True, exist_ok=True)
    with MAP.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
