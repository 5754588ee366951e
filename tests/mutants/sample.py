# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tries a sample of small changes of the operator, the node agent and the runtime.

``record`` runs the quick tests once and remembers which of them run which line; without a word the
sample is drawn, and each change is tried by the tests that run its line, then by others of its
file. What was tried is kept in ``build/mutants``: a run that was interrupted goes on, and ``again``
tries survivors once more, after tests were added. Tests that take too long count as a failure; each
test that failed runs once more on unchanged code, and says nothing where it fails there too.
Figures are in ``build/bench/mutants.json``.

Not drawn: code that ``protoc`` made, which has no bodies, and the mains of processes (``MAINS``),
which read the command line and connect what other modules do: end-to-end tests start those.

A change may stop processes, fill memory or leave processes behind: the tests run in a namespace of
processes of their own (``unshare``, as root) and in limited memory. Where there is none, changes of
modules that send signals (``SIGNALS``) are not tried, and count as survivors.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from tempfile import NamedTemporaryFile
from typing import Final

from bench.report import Figure, Row, judge, write
from mutants import forked
from mutants.confinement import confinement, has_namespace
from mutants.equivalent import EQUIVALENT
from mutants.mutant import ROOT, SOURCES, Copy, copied
from mutants.operators import Change, changes
from mutants.recording import MAP, Recording, record

FILES: Final = (
    "operator/**/*.py",
    "deviceplugin/ullage_node/**/*.py",
    "runtime/**/*.py",
)
MAINS: Final = (
    "operator/ullage/app/main.py",
    "operator/ullage/webhook/main.py",
    "deviceplugin/ullage_node/main.py",
    "deviceplugin/ullage_node/guard/main.py",
    "deviceplugin/ullage_node/mps/main.py",
)
SIGNALS: Final = (
    "deviceplugin/ullage_node/guard/finder.py",
    "deviceplugin/ullage_node/guard/freezer.py",
    "deviceplugin/ullage_node/guard/keeper.py",
    "deviceplugin/ullage_node/guard/server.py",
    "deviceplugin/ullage_node/guard/watchdog.py",
    "deviceplugin/ullage_node/mps/programs.py",
)
"""Files that send signals: a mutant of them might stop any process that it sees."""
TESTS: Final = (
    "tests/unit/engines",
    "tests/unit/scheduling",
    "tests/unit/simulate",
    "tests/property",
    "tests/unit/api",
    "tests/unit/app",
    "tests/unit/cli",
    "tests/unit/cluster",
    "tests/unit/katib",
    "tests/unit/kube",
    "tests/unit/node",
    "tests/unit/run",
    "tests/unit/webhook",
    "tests/contract",
)
ONLY: Final = (
    "-m",
    "not e2e and not gpu and not scale and not neighbours and not slow",
    "--ignore=tests/unit/node/guard/test_no_tenant_stays_frozen.py",
    "--ignore=tests/unit/node/guard/test_stopping_real_containers.py",
    "--ignore=tests/unit/node/devices/test_slice_hook_on_this_kernel.py",
)
"""Quick tests, and none that stop real processes or write cgroups of this machine."""
RESULTS: Final = MAP.with_name("results.json")
NEAR_S: Final = 40.0
"""Seconds, as recorded, of the tests that run the line, the most specific first."""
FAR_S: Final = 20.0
"""The same of all others that run the file, for a change that survives the first."""
SLOWER: Final = 5.0
"""Times the recorded seconds, and a start: then a change has made the tests hang."""
START_S: Final = 60.0

ANSWERS: Final = (0, 1, 2, 3, 4)
"""Exit codes of pytest: a change may also keep a module from being imported, or stop pytest."""

SURVIVES: Final = "survives"
KILLED: Final = "killed"
HANGS: Final = "hangs"
STOPPED: Final = "pytest"
"""Stands for the test where a change stops pytest itself."""
CHECK_S: Final = 900.0
SEEDS: Final = (1, 2)

Drawn = tuple[str, Change]
Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a change, and the test that failed."""

    outcome: str
    by: str = ""


@cache
def every() -> Sequence[Drawn]:
    """All changes that may be drawn, in the order of files and lines."""
    paths = sorted(path for pattern in FILES for path in ROOT.glob(pattern))
    return [
        (file, change)
        for file, path in ((str(path.relative_to(ROOT)), path) for path in paths)
        if file not in MAINS and "/proto/" not in file
        for change in changes(path.read_text(encoding="utf-8"))
    ]


def draw(count: int, seed: int) -> list[Drawn]:
    """The sample: the same for the same code, count and seed.

    Each change has a lot of its own, so that an edit of one place draws nothing else anew.
    """
    seen: Counter[str] = Counter()
    lots: list[tuple[str, Drawn]] = []
    for file, change in every():
        name = f"{seed} {file} {change.before} -> {change.after}"
        seen[name] += 1
        lots.append((sha256(f"{name} {seen[name]}".encode()).hexdigest(), (file, change)))
    return [drawn for _, drawn in sorted(lots, key=lambda lot: lot[0])[:count]]


def name_of(drawn: Drawn) -> str:
    """A change in one line."""
    file, change = drawn
    return f"{file}:{change.line}:{change.begin}: {change.before} -> {change.after}"


def verdict(copy: Copy, drawn: Drawn, tests: Sequence[str], recording: Recording) -> Verdict:
    """What became of a change, tried by a process that reads the changed module."""
    file, change = drawn
    text = change.made((ROOT / file).read_text(encoding="utf-8"))
    planned_s = sum(recording.seconds[test] for test in tests)
    with copy.changed(file, text):
        try:
            failed = _failing(copy, tests, START_S + SLOWER * planned_s) if tests else ""
        except subprocess.TimeoutExpired:
            return Verdict(HANGS)
    return Verdict(KILLED, by=failed) if failed else Verdict(SURVIVES)


def tests_of(drawn: Drawn, recording: Recording) -> list[str]:
    """The tests that try a change, in their order."""
    file, change = drawn
    near = list(_within(recording.of_line(file, change.line), recording, NEAR_S))
    beside = [test for test in recording.of_file(file) if test not in near]
    return [*near, *_within(beside, recording, FAR_S)]


def _failing(copy: Copy, tests: Sequence[str], most_s: float) -> str:
    """The first of the tests that fails, or the file that cannot be read; ``""`` without one."""
    done = _run(copy, tests, most_s)
    if not done.returncode:
        return ""
    lines = done.stdout.decode().splitlines()
    failed = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    files = {test.partition("::")[0] for test in tests}
    return (
        next(
            (
                max(
                    (name for name in (*tests, *files) if said.startswith(name)),
                    key=len,
                    default="",
                )
                for said in failed
            ),
            "",
        )
        or STOPPED
    )


def _run(copy: Copy, tests: Sequence[str], most_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run tests that are too many for a command line."""
    with NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(tests))
        file.flush()
        return copy.run((f"@{file.name}",), most_s, ok=ANSWERS)


def _within(tests: Sequence[str], recording: Recording, most_s: float) -> Iterator[str]:
    """As many of the tests as fit into a time, in their order, one at least."""
    spent_s = 0.0
    for at, test in enumerate(tests):
        if not at or spent_s + recording.seconds[test] <= most_s:
            spent_s += recording.seconds[test]
            yield test


def tried(sample: Sequence[Drawn], *, again: bool, jobs: int) -> dict[str, Verdict]:
    """What became of every change; what is known of the same file is not tried again."""
    recording, known = Recording.read(), _known()
    waiting = [
        drawn
        for drawn in sample
        if (_key(drawn) not in known or (again and known[_key(drawn)].outcome == SURVIVES))
        and (drawn[0] not in SIGNALS or has_namespace())
    ]
    plans = {drawn: _existing(tests_of(drawn, recording)) for drawn in waiting}

    def note(drawn: Drawn, outcome: Verdict) -> None:
        known[_key(drawn)] = outcome
        _keep(known)
        print(f"{outcome.outcome:8}  {name_of(drawn)}", flush=True)

    with copied(confinement()) as copy:
        left, collected = _in_forks(copy, plans, recording, jobs, note)
    with copied(confinement()) as copy:
        for drawn, most_s in left.items():
            tests = [test for test in plans[drawn] if test in collected]
            note(drawn, verdict(copy, drawn, list(_within(tests, recording, most_s)), recording))
        killers = {known[_key(drawn)].by for drawn in left}
        for test in _fail_anyway(copy, killers):
            print(f"fails on unchanged code too, and says nothing: {test}")
            known = {key: kept for key, kept in known.items() if kept.by != test}
    _keep(known)
    return {name_of(drawn): known.get(_key(drawn), Verdict(SURVIVES)) for drawn in sample}


def _existing(tests: Sequence[str]) -> list[str]:
    return [test for test in tests if (ROOT / test.partition("::")[0]).exists()]


def _in_forks(
    copy: Copy,
    plans: Mapping[Drawn, Sequence[str]],
    recording: Recording,
    jobs: int,
    note: Callable[[Drawn, Verdict], None],
) -> tuple[dict[Drawn, float], Set[str]]:
    """Try changes in one process, a fork for each.

    Returns:
        Those that are to be tried by a process of their own, with the seconds of tests for each: of
        all their tests where forks could not try them, of the first ones where modules were read by
        what a change makes otherwise; and the tests that are there.

    Raises:
        RuntimeError: the tests cannot be read.
    """
    numbered = dict(enumerate(plans))
    by_file: dict[str, dict[int, Change]] = defaultdict(dict)
    for number, (file, change) in numbered.items():
        by_file[file][number] = change
    there: set[int] = set()
    for file, changed in by_file.items():
        text, put = forked.switched((ROOT / file).read_text(encoding="utf-8"), changed)
        (copy.folder / file).write_text(text, encoding="utf-8")
        there |= put
    switch = copy.folder / SOURCES[0] / f"{forked.SWITCH}.py"
    switch.write_text(forked.SWITCH_TEXT, encoding="utf-8")
    left = {drawn: NEAR_S + FAR_S for number, drawn in numbered.items() if number not in there}
    tasks = [
        (number, plans[drawn], sum(recording.seconds[test] for test in plans[drawn]))
        for number, drawn in numbered.items()
        if number in there
    ]
    if not any(tests for _, tests, _ in tasks):
        return dict.fromkeys(plans, NEAR_S + FAR_S), {
            test for one in plans.values() for test in one
        }
    lines = (
        json.loads(line) for line in copy.lines_of("mutants.forked", json.dumps(tasks), str(jobs))
    )
    collected, early = next(lines)
    for number, outcome, by in lines:
        note(numbered[number], Verdict(outcome, by))
        if outcome == SURVIVES and number in early:
            left[numbered[number]] = NEAR_S
    return left, {*collected, ""}


def _fail_anyway(copy: Copy, tests: Set[str]) -> list[str]:
    """Which of the tests fail on unchanged code."""
    left, failing = sorted(tests - {"", STOPPED}), list[str]()
    while left and (failed := _failing(copy, left, CHECK_S)):
        failing.append(failed)
        left = left[left.index(failed) + 1 :] if failed in left else []
    return failing


def _key(drawn: Drawn) -> str:
    """A change and the file that it was made in: what is known of another version says nothing."""
    digest = sha256((ROOT / drawn[0]).read_bytes()).hexdigest()
    return f"{digest[:12]} {name_of(drawn)}"


def _known() -> dict[str, Verdict]:
    if not RESULTS.exists():
        return {}
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {key: Verdict(outcome, by) for key, (outcome, by) in rows.items()}


def _keep(known: Mapping[str, Verdict]) -> None:
    rows = {key: (kept.outcome, kept.by) for key, kept in known.items()}
    beside = RESULTS.with_suffix(".new")
    beside.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    beside.replace(RESULTS)


def figures(samples: Mapping[int, Sequence[Drawn]], known: Mapping[str, Verdict]) -> Figures:
    """Figures of each seed and of all, for ``mutants.json``."""
    counted: dict[str, Figure] = {}
    whole = [drawn for sample in samples.values() for drawn in sample]
    parts = {"": whole} | {f"_seed_{seed}": list(sample) for seed, sample in samples.items()}
    for suffix, sample in parts.items():
        alive = [drawn for drawn in sample if known[name_of(drawn)].outcome == SURVIVES]
        same = sum(bool(_reason(drawn)) for drawn in alive)
        killed = len(sample) - len(alive)
        counted |= {
            f"drawn{suffix}": len(sample),
            f"killed{suffix}": killed,
            f"equivalent{suffix}": same,
            f"kill_rate{suffix}": round(killed / max(1, len(sample) - same), 4),
            f"kill_rate_with_equivalent{suffix}": round(killed / max(1, len(sample)), 4),
        }
    return counted


def _reason(drawn: Drawn) -> str:
    file, change = drawn
    line = (ROOT / file).read_text(encoding="utf-8").splitlines()[change.line - 1].strip()
    return EQUIVALENT.get((file, line, f"{change.before} -> {change.after}"), "")


def main() -> int:
    """Record, or try the samples.

    Returns:
        0, or 1 where fewer die than the least rate.
    """
    parser = argparse.ArgumentParser(prog="python -m mutants.sample", description=__doc__)
    parser.add_argument("act", nargs="?", choices=("record", "try", "again"), default="try")
    parser.add_argument("tests", nargs="*", help="record these tests only, beside the others")
    parser.add_argument("--count", type=int, default=150, help="changes that a seed draws")
    parser.add_argument("--seed", type=int, action="append", help="again for more (1 and 2)")
    parser.add_argument("--jobs", type=int, default=1, help="changes that are tried at a time")
    parser.add_argument("--least", type=float, default=0.85, help="kill rate that must be reached")
    args = parser.parse_args()
    if args.act == "record" or not MAP.exists():
        record(FILES, (*ONLY, *(args.tests or TESTS)))
    if args.act == "record":
        return 0
    samples = {seed: draw(args.count, seed) for seed in args.seed or SEEDS}
    drawn = list(dict.fromkeys(drawn for sample in samples.values() for drawn in sample))
    known = tried(drawn, again=args.act == "again", jobs=args.jobs)
    for change in drawn:
        if known[name_of(change)].outcome == SURVIVES:
            print(f"{_reason(change) or SURVIVES}: {name_of(change)}")
    counted = figures(samples, known)
    write("mutants", counted, [Row(what=name, ours=str(value)) for name, value in counted.items()])
    return judge(counted, {"kill_rate": lambda rate: rate >= args.least})


if __name__ == "__main__":
    sys.exit(main())
