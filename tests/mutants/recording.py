# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tests run which lines, and how long each takes: one run of them tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import coverage
import pytest

from mutants.mutant import ROOT

MAP: Final = ROOT / "build" / "mutants" / "tests.json"


@dataclass(frozen=True, slots=True)
class Recording:
    """Tests by file and line, and the seconds of each test."""

    lines: Mapping[str, Mapping[str, Sequence[str]]]
    seconds: Mapping[str, float]

    @classmethod
    def read(cls) -> Self:
        """The last recording; empty without one."""
        said = json.loads(MAP.read_text(encoding="utf-8")) if MAP.exists() else {}
        return cls(lines=said.get("lines", {}), seconds=said.get("seconds", {}))

    def of_those_that_exist(self) -> Self:
        """Without tests that were renamed or removed since."""
        files = {test.partition("::")[0] for test in self.seconds}
        there = (file for file in sorted(files) if (ROOT / file).exists())
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *there),
            cwd=ROOT,
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
        """Tests that run a line, the quickest first."""
        return self._quickest(self.lines.get(file, {}).get(str(line), ()))

    def of_file(self, file: str) -> list[str]:
        """Tests that run any line of a file, the quickest first."""
        return self._quickest(test for one in self.lines.get(file, {}).values() for test in one)

    def _quickest(self, tests: Iterator[str] | Sequence[str]) -> list[str]:
        return sorted(set(tests), key=lambda test: (self.seconds.get(test, 0.0), test))


@dataclass(slots=True, eq=False)
class _Recorder:
    """Tells coverage which test is on."""

    measured: coverage.Coverage
    seconds: dict[str, float]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def record(files: Sequence[str], tests: Sequence[str]) -> Recording:
    """Run tests, and add what they run to the recording.

    Raises:
        SystemExit: a test fails.
    """
    os.chdir(ROOT)
    measured = coverage.Coverage(data_file=None, include=[str(ROOT / file) for file in files])
    recorder = _Recorder(measured, {})
    measured.start()
    failed = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=900", *tests],
        plugins=[recorder],
    )
    measured.stop()
    if failed:
        raise SystemExit(int(failed))
    before, data = Recording.read(), measured.get_data()
    lines: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in data.measured_files():
        file = str(Path(name).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(name).items():
            lines[file][str(line)] |= set(contexts) & recorder.seconds.keys()
    for file, old in before.lines.items():
        for line, told in old.items():
            lines[file][line] |= set(told) - recorder.seconds.keys()
    found = Recording(
        lines={file: {at: sorted(one) for at, one in here.items()} for file, here in lines.items()},
        seconds={**before.seconds, **recorder.seconds},
    )
    MAP.parent.mkdir(parents=True, exist_ok=True)
    MAP.write_text(json.dumps({"lines": found.lines, "seconds": found.seconds}), encoding="utf-8")
    return found
