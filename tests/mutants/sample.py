# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tries a sample of small changes of engines and of what admits, enforces and keeps books.

``record`` runs the tests once and remembers which of them run which line; without a word the sample
is drawn, and each change is tried by the tests that run its line, then by others of its file. What
was tried is kept in ``build/mutants``: a run that was interrupted goes on, and ``again`` tries
survivors once more, after tests were added. Tests that take too long count as a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from hashlib import sha256
from queue import SimpleQueue
from tempfile import NamedTemporaryFile
from typing import Final

from mutants.equivalent import EQUIVALENT
from mutants.mutant import ROOT, Copy, copied
from mutants.operators import Change, changes
from mutants.recording import MAP, Recording, record

FILES: Final = (
    "operator/ullage/engines/**/*.py",
    "operator/ullage/scheduling/timeslicing/*.py",
    "operator/ullage/scheduling/accounting/*.py",
    "deviceplugin/ullage_node/slices/*.py",
    "deviceplugin/ullage_node/guard/*.py",
)
SIGNALS: Final = ("finder.py", "freezer.py", "keeper.py", "server.py", "watchdog.py", "main.py")
"""Files of the guard that stop processes: a mutant of them might stop any."""
TESTS: Final = (
    "tests/unit/engines",
    "tests/unit/scheduling",
    "tests/unit/node/slices",
    "tests/unit/node/guard",
    "tests/unit/app",
    "tests/unit/simulate",
    "tests/contract/kubelet",
    "tests/property",
    "--ignore=tests/unit/node/guard/test_no_tenant_stays_frozen.py",
    "--ignore=tests/unit/node/guard/test_stopping_real_containers.py",
)
RESULTS: Final = MAP.with_name("results.json")
NEAR_S: Final = 12.0
"""Seconds, as recorded, of the tests that run the line; the quickest are taken."""
FAR_S: Final = 15.0
"""The same of all others that run the file, for a change that survives the first."""
SLOWER: Final = 5.0
"""Times the recorded seconds, and a start: then a change has made the tests hang."""
START_S: Final = 60.0

ANSWERS: Final = (0, 1, 2, 3, 4)
"""Exit codes of pytest: a change may also keep a module from being imported, or stop pytest."""

Drawn = tuple[str, Change]


@cache
def every() -> Sequence[Drawn]:
    """All changes that may be drawn, in the order of files and lines."""
    paths = sorted(path for pattern in FILES for path in ROOT.glob(pattern))
    return [
        (str(path.relative_to(ROOT)), change)
        for path in paths
        if not (path.parent.name == "guard" and path.name in SIGNALS)
        for change in changes(path.read_text(encoding="utf-8"))
    ]


def draw(count: int, seed: int) -> list[Drawn]:
    """The sample: the same for the same code, count and seed."""
    whole = every()
    return random.Random(seed).sample(whole, min(count, len(whole)))


def name_of(drawn: Drawn) -> str:
    """A change in one line."""
    file, change = drawn
    return f"{file}:{change.line}:{change.begin}: {change.before} -> {change.after}"


def verdict(copy: Copy, drawn: Drawn, recording: Recording) -> str:
    """What became of a change: ``killed``, ``hangs`` or ``survives``."""
    file, change = drawn
    near = recording.of_line(file, change.line)
    first = list(_within(near, recording, NEAR_S))
    far = [test for test in recording.of_file(file) if test not in first]
    text = change.made((ROOT / file).read_text(encoding="utf-8"))
    with copy.changed(file, text):
        for tests in (first, list(_within([*near[len(first) :], *far], recording, FAR_S))):
            planned_s = sum(recording.seconds[test] for test in tests)
            try:
                if tests and _fails(copy, tests, START_S + SLOWER * planned_s):
                    return "killed"
            except subprocess.TimeoutExpired:
                return "hangs"
    return "survives"


def _fails(copy: Copy, tests: Sequence[str], most_s: float) -> bool:
    """Whether one of the tests fails; they are too many for a command line."""
    with NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(tests))
        file.flush()
        return copy.run((f"@{file.name}",), most_s, ok=ANSWERS).returncode != 0


def _within(tests: Sequence[str], recording: Recording, most_s: float) -> Iterator[str]:
    """As many of the tests as fit into a time, one at least."""
    spent_s = 0.0
    for at, test in enumerate(tests):
        spent_s += recording.seconds[test]
        if at and spent_s > most_s:
            return
        yield test


def tried(sample: Sequence[Drawn], *, again: bool, jobs: int) -> dict[str, str]:
    """What became of every change; what is known of the same file is not tried again."""
    recording, known = Recording.read().of_those_that_exist(), _known()
    found: dict[str, str] = {}
    waiting: list[Drawn] = []
    for drawn in sample:
        before = known.get(_key(drawn), "")
        if not before or (again and before == "survives"):
            waiting.append(drawn)
        else:
            found[name_of(drawn)] = before
    copies: SimpleQueue[Copy] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(jobs):
            copies.put(stack.enter_context(copied()))

        def one(drawn: Drawn) -> tuple[Drawn, str]:
            copy = copies.get()
            try:
                return drawn, verdict(copy, drawn, recording)
            finally:
                copies.put(copy)

        for drawn, said in stack.enter_context(ThreadPoolExecutor(jobs)).map(one, waiting):
            found[name_of(drawn)] = known[_key(drawn)] = said
            RESULTS.write_text(json.dumps(known, indent=1), encoding="utf-8")
            print(f"{said:8}  {name_of(drawn)}", flush=True)
    return found


def _key(drawn: Drawn) -> str:
    """A change and the file that it was made in: what is known of another version says nothing."""
    digest = sha256((ROOT / drawn[0]).read_bytes()).hexdigest()
    return f"{digest[:12]} {name_of(drawn)}"


def _known() -> dict[str, str]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def report(sample: Sequence[Drawn], found: Mapping[str, str]) -> float:
    """Print survivors and the rate.

    Returns:
        Killed of those that change something, 0 to 1.
    """
    alive = [one for one in sample if found[name_of(one)] == "survives"]
    same = [one for one in alive if _reason(one)]
    for one in alive:
        print(f"{_reason(one) or found[name_of(one)]}: {name_of(one)}")
    killed = len(sample) - len(alive)
    rate = killed / max(1, len(sample) - len(same))
    print(
        f"{killed} of {len(sample)} drawn die ({killed / len(sample):.1%}); {len(same)} change"
        f" nothing; without them {rate:.1%}"
    )
    return rate


def _reason(drawn: Drawn) -> str:
    file, change = drawn
    line = (ROOT / file).read_text(encoding="utf-8").splitlines()[change.line - 1].strip()
    return EQUIVALENT.get((file, line, f"{change.before} -> {change.after}"), "")


def main() -> int:
    """Record, or try the sample.

    Returns:
        0, or 1 where fewer die than the least rate.
    """
    parser = argparse.ArgumentParser(prog="python -m mutants.sample", description=__doc__)
    parser.add_argument("act", nargs="?", choices=("record", "try", "again"), default="try")
    parser.add_argument("tests", nargs="*", help="record these tests only, beside the others")
    parser.add_argument("--count", type=int, default=160, help="changes that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="changes that are tried at a time")
    parser.add_argument(
        "--least", type=float, default=0.0, help="rate, 0 to 1, below which it fails"
    )
    args = parser.parse_args()
    if args.act == "record":
        record(FILES, args.tests or TESTS)
        return 0
    if not MAP.exists():
        record(FILES, TESTS)
    sample = draw(args.count, args.seed)
    found = tried(sample, again=args.act == "again", jobs=args.jobs)
    return 0 if report(sample, found) >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
