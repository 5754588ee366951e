# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of turns: the books of who is owed what, and the plan of who runs now."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

TURNS: Final = "operator/ullage/scheduling/timeslicing"
UNIT: Final = "tests/unit/scheduling"

TAKEN: Final = (f"{UNIT}/test_jobs_take_turns.py",)
BOOKS: Final = (f"{UNIT}/test_books_of_turns.py",)
COST: Final = (f"{UNIT}/test_time_is_divided_by_cost.py",)

PAIRS: Final = (f"{UNIT}/test_jobs_share_devices_in_their_turn.py",)

MUTANTS: Final = (
    Mutant(
        "a job that does not allow it shares its device",
        f"{TURNS}/pairing.py",
        "if not (job.sharing.allow_packing and job.sharing.allow and job.checkpoint):",
        "if not (job.sharing.allow and job.checkpoint):",
        PAIRS,
    ),
    Mutant(
        "the memory of two is not added",
        f"{TURNS}/pairing.py",
        "    if needed > room.memory_mib:",
        "    if needed > 2 * room.memory_mib:",
        PAIRS,
    ),
    Mutant(
        "a pair that does not hold goes on",
        f"{TURNS}/pairing.py",
        "    if sum(1 / max(slowdown, 1.0) for slowdown in seen) < least:",
        "    if sum(1 / max(slowdown, 1.0) for slowdown in seen) < 0 * least:",
        PAIRS,
    ),
    Mutant(
        "strangers are a pair",
        f"{TURNS}/pairing.py",
        "groups.setdefault((kind.domain, priority), [])",
        'groups.setdefault(("", priority), [])',
        PAIRS,
    ),
    Mutant(
        "what is predicted to refuse is a pair",
        f"{TURNS}/pairing.py",
        "        if not isinstance(verdict, Admission) or verdict.trial:",
        "        if verdict is None:",
        PAIRS,
    ),
    Mutant(
        "time beside another counts from the last entry, not from the beginning of the turn",
        f"{TURNS}/round_records.py",
        "had = max(0.0, now - max(record.since, pair.since)) if pair.since else 0.0",
        "had = max(0.0, now - pair.since) if pair.since else 0.0",
        BOOKS,
    ),
    Mutant(
        "a turn beside another that ended is forgotten",
        f"{TURNS}/round_records.py",
        "seconds=had.seconds + max(0, int(passed)),",
        "seconds=had.seconds,",
        BOOKS,
    ),
    Mutant(
        "who is left with a part of a device keeps it",
        f"{TURNS}/plan.py",
        "return bool(runner.holds) and runner.percent < WHOLE and not runner.beside",
        "return False",
        PAIRS,
    ),
    Mutant(
        "a debt counts from the last entry, not from the beginning of the turn",
        f"{TURNS}/round_records.py",
        "    had = max(0.0, now - max(record.since, began)) if kind else 0.0\n    owed",
        "    had = max(0.0, now - began) if kind else 0.0\n    owed",
        BOOKS,
    ),
    Mutant(
        "time alone counts from the last entry, not from the beginning of the turn",
        f"{TURNS}/round_records.py",
        "ran_s = max(0.0, now - max(record.since, began)) if kind else 0.0",
        "ran_s = max(0.0, now - began) if kind else 0.0",
        BOOKS,
    ),
    Mutant(
        "the turn that is on counts as time alone, by what its type is worth",
        f"{TURNS}/round_records.py",
        "return before + ran_s * worth.get(kind, 0.0)",
        "return before + ran_s",
        BOOKS,
    ),
    Mutant(
        "a turn that ends was time alone",
        f"{TURNS}/round_records.py",
        "number(isolated_now(old, entry.worth, moment), 1)",
        "old.isolated_seconds",
        BOOKS,
    ),
    Mutant(
        "an equal part of the cluster is that of one of all jobs",
        f"{TURNS}/problem.py",
        "room / len(arena.runners) / runner.points",
        "room / runner.points",
        BOOKS,
    ),
    Mutant(
        "debts of a job that takes no turns lapse",
        f"{TURNS}/round_records.py",
        "        deficit_seconds=(),\n",
        "",
        BOOKS,
    ),
    Mutant(
        "a job that is passed by again was passed by since the first time",
        f"{TURNS}/round_records.py",
        "(old.skipped_since or moment)",
        "moment",
        BOOKS,
    ),
    Mutant(
        "a job that cannot checkpoint keeps its devices",
        f"{TURNS}/plan.py",
        "if not runner.workload.checkpoint or runner.ready:",
        "if runner.ready:",
        TAKEN,
    ),
    Mutant(
        "higher priorities take first",
        f"{TURNS}/plan.py",
        "for priority in sorted(tiers, reverse=True):",
        "for priority in sorted(tiers):",
        TAKEN,
    ),
    Mutant(
        "what services hold is not there to divide",
        f"{TURNS}/contenders.py",
        "used += occupant.tenant.percent",
        "used += 0",
        TAKEN,
    ),
    Mutant(
        "a job has its devices since its status says so",
        f"{TURNS}/contenders.py",
        "if kind == holds and had.since:",
        "if kind != holds and had.since:",
        TAKEN,
    ),
    Mutant(
        "another price divides again",
        f"{TURNS}/problem.py",
        "for kind, price in prices.items() if price > 0]",
        "for kind, price in prices.items() if price < 0]",
        COST,
    ),
    Mutant(
        "a price is that of the part of a device that a unit is",
        f"{TURNS}/problem.py",
        "arena.prices.get(kind, 0.0) * arena.unit / WHOLE if priced",
        "arena.prices.get(kind, 0.0) * arena.unit if priced",
        COST,
    ),
)
