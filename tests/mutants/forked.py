# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tries many changes in one process that has read code and tests once: a fork for each.

The code of the copy has all changes in it, each behind a switch; a fork turns its switch on and
runs the tests of its change until one fails. What ran while modules were read had no change: which
switches were looked at by then is noted, and the caller tries those changes again, each in a
process that reads its changed module.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

from mutants.operators import Change

SWITCH: Final = "mutant_switch"
SWITCH_TEXT: Final = 'import os\n\nNUMBER = int(os.environ.get("ULLAGE_MUTANT", "-1"))\n'
_FUTURE: Final = "from __future__ import annotations\n"
START_S: Final = 20.0
SLOWER: Final = 2.0
"""CPU seconds a second that the tests took when they were recorded: then they hang."""
WAITS: Final = 5.0
"""The same of seconds by the clock, for a change that makes the tests wait."""
TEST_S: Final = 60
"""Seconds of one test by the clock."""


def switched(text: str, numbered: Mapping[int, Change]) -> tuple[str, set[int]]:
    """A file with its changes behind switches.

    Args:
        text: The file.
        numbered: Its changes, by number.

    Returns:
        The file, and the numbers of the changes that are in it: of two at the same place the
        first is, and none where the language has no place for a condition.
    """
    if _FUTURE not in text:
        return text, set()
    there: set[int] = set()
    taken: list[tuple[tuple[int, int], tuple[int, int]]] = []
    # from the end: what stands before keeps its place
    for number, change in sorted(
        numbered.items(), key=lambda one: (one[1].line, one[1].begin), reverse=True
    ):
        begin, end = (change.line, change.begin), (change.end_line, change.end)
        if any(begin < last and first < end for first, last in taken):
            continue
        changed = _behind(text, number, change)
        try:
            compile(changed.replace(_FUTURE, f"{_FUTURE[:-1]}; import {SWITCH}\n", 1), "", "exec")
        except SyntaxError:
            continue
        text = changed
        there.add(number)
        taken.append((begin, end))
    return text.replace(_FUTURE, f"{_FUTURE[:-1]}; import {SWITCH}\n", 1), there


def _behind(text: str, number: int, change: Change) -> str:
    """A file with one change behind a switch."""
    lines = text.splitlines(keepends=True)
    first, last = lines[change.line - 1].encode(), lines[change.end_line - 1].encode()
    whole = "".join(lines[change.line - 1 : change.end_line]).encode()
    stands = whole[change.begin : len(whole) - (len(last) - change.end)].decode()
    on = f"{SWITCH}.NUMBER == {number}"
    if change.after == "return None":
        value = stands.removeprefix("return").strip()
        said = f"return None if {on} else ({value})"
    elif change.after.startswith("("):
        said = f"({change.after} if {on} else ({stands}))"
    else:
        indent = first[: change.begin].decode()
        said = f"if {on}: {change.after}\n{indent}else: {stands}"
    put = first[: change.begin].decode() + said + last[change.end :].decode()
    return "".join((*lines[: change.line - 1], put, *lines[change.end_line :]))


@dataclass(frozen=True, slots=True)
class Task:
    """The tests of a change, in the order in which they are tried, and the seconds they took."""

    number: int
    tests: Sequence[str]
    seconds: float


class _Noting:
    """A number of no change that notes which changes ask for theirs."""

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def __eq__(self, number: object) -> bool:
        assert isinstance(number, int)
        self.asked.add(number)
        return False

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True, eq=False)
class _Child:
    """A fork that runs tests of a task, or one that failed, on unchanged code."""

    task: Task
    pipe: int
    until: float
    checks: str = ""


class _Loop:
    """Forks once for every task instead of running the tests."""

    def __init__(self, tasks: Sequence[Task], jobs: int, results: Path, noting: _Noting) -> None:
        self.noting = noting
        self.waiting = [(task, "") for task in reversed(tasks)]
        self.jobs = jobs
        self.results = results
        self.items: Mapping[str, pytest.Item] = {}
        self.children: dict[int, _Child] = {}
        self.sound: set[str] = set()
        """Tests that pass on unchanged code."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        _turn_on(-1)
        gc.collect()
        gc.freeze()
        with self.results.open("w", encoding="utf-8") as results:
            early = sorted(self.noting.asked)
            print(json.dumps((list(self.items), early)), file=results, flush=True)
            while self.waiting or self.children:
                while self.waiting and len(self.children) < self.jobs:
                    self._fork(*self.waiting.pop())
                time.sleep(0.05)
                for pid, child in list(self.children.items()):
                    for ended in self._look(pid, child):
                        print(json.dumps(ended), file=results, flush=True)
        return True

    def _look(self, pid: int, child: _Child) -> Iterator[tuple[int, str, str]]:
        """Number, outcome and failed test of a task that has ended."""
        ended, status = os.waitpid(pid, os.WNOHANG)
        late = time.monotonic() > child.until
        if not ended and not late:
            return
        _end_group(pid)
        if not ended:
            _, status = os.waitpid(pid, 0)
        by = os.read(child.pipe, 1 << 16).decode()
        os.close(child.pipe)
        del self.children[pid]
        task = child.task
        hangs = late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        if child.checks:
            if by or hangs or status:
                rest = [test for test in task.tests if test != child.checks]
                self.waiting.append((replace(task, tests=rest), ""))
            else:
                self.sound.add(child.checks)
                yield task.number, "killed", child.checks
        elif by and by not in self.sound:
            self.waiting.append((task, by))
        else:
            outcome = "hangs" if hangs else "killed" if by or status else "survives"
            yield task.number, outcome, by

    def _fork(self, task: Task, checks: str) -> None:
        told, tells = os.pipe()
        pid = os.fork()
        if pid:
            os.close(tells)
            until = time.monotonic() + 4 * START_S + WAITS * task.seconds
            self.children[pid] = _Child(task, told, until, checks)
            return
        os.setsid()
        most_s = int(START_S + SLOWER * task.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 5))
        if not checks:
            os.environ["ULLAGE_MUTANT"] = str(task.number)
            _turn_on(task.number)
        wanted = (checks,) if checks else task.tests
        chosen = [self.items[test] for test in wanted if test in self.items]
        for item, after in pairwise([*chosen, None]):
            assert item is not None
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                os.write(tells, item.nodeid.encode())
                os._exit(1)
        os._exit(0)


def _turn_on(number: int | _Noting) -> None:
    sys.modules[SWITCH].NUMBER = number  # type: ignore[attr-defined]


def _end_group(pid: int) -> None:
    """End a fork and all that its tests started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main(tasks_file: str, jobs: str, results: str) -> int:
    """Try the tasks of a file; a line of results for each."""
    __import__(SWITCH)
    noting = _Noting()
    _turn_on(noting)
    tasks = [Task(*task) for task in json.loads(Path(tasks_file).read_text(encoding="utf-8"))]
    files = sorted({test.partition("::")[0] for task in tasks for test in task.tests})
    return pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", f"timeout={TEST_S}", *files],
        plugins=[_Loop(tasks, int(jobs), Path(results), noting)],
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
