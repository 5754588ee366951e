# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of step traces: each moment counts once, clocks, who is late, what a file may do."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ENGINE: Final = "operator/ullage/engines/tracing"
TESTS: Final = "tests/unit/engines/tracing"
READER: Final = f"{ENGINE}/event_reader.py"
BREAKDOWN: Final = (f"{TESTS}/test_every_moment_of_a_step_counts_once.py",)
CLOCKS: Final = (f"{TESTS}/test_clocks_are_compared_by_collectives.py",)
LATE: Final = (f"{TESTS}/test_a_straggler_is_named_with_its_cause.py",)
HOSTILE: Final = (f"{TESTS}/test_hostile_traces_have_a_reason.py",)
PIECES: Final = (f"{TESTS}/test_traces_are_cut_between_events.py",)
SMALL: Final = (f"{TESTS}/test_summaries_stay_small.py",)

MUTANTS: Final = (
    Mutant(
        "only exposed communication counts",
        f"{ENGINE}/breakdown.py",
        '"communication": busy[0] - compute,',
        '"communication": communication,',
        BREAKDOWN,
    ),
    Mutant(
        "what loads a batch is no computation",
        f"{ENGINE}/breakdown.py",
        "        operations &= ~(own & loading.holds(trace.starts))\n",
        "        operations &= ~(own & loading.holds(trace.starts) & False)\n",
        BREAKDOWN,
    ),
    Mutant(
        "the critical path follows the later predecessor",
        f"{ENGINE}/critical_path.py",
        "queued = before >= 0 and not launch > end_of[before]",
        "queued = before >= 0",
        BREAKDOWN,
    ),
    Mutant(
        "an offset lies within what the bounds prove",
        f"{ENGINE}/alignment.py",
        "float(np.clip(guess, lowest[at], highest[at]))",
        "float(guess)",
        CLOCKS,
    ),
    Mutant(
        "bounds of clocks chain over nodes",
        f"{ENGINE}/alignment.py",
        "    for middle in range(count):\n",
        "    for middle in range(0):\n",
        CLOCKS,
    ),
    Mutant(
        "luck is no straggler",
        f"{ENGINE}/join.py",
        "    if work < WORK_RATIO * usual:\n        return None\n",
        "",
        LATE,
    ),
    Mutant(
        "collectives are matched by their number in the step",
        f"{ENGINE}/join.py",
        "key = _Key(columns.kinds[kind], first + step, ordinal, of)",
        "key = _Key(columns.kinds[kind], first + step, ordinal, 0)",
        LATE,
    ),
    Mutant(
        "waiting for one rank is no finding of communication",
        f"{ENGINE}/findings.py",
        "round(step.communication_micros - waited)",
        "round(step.communication_micros)",
        LATE,
    ),
    Mutant(
        "a packed byte becomes only so many",
        READER,
        "    if given > limits.ratio * taken + MIB:\n",
        "    if False:\n",
        HOSTILE,
    ),
    Mutant(
        "events follow a comma",
        READER,
        "            if text[start] != _COMMA:\n",
        "            if False:\n",
        (*HOSTILE, *PIECES),
    ),
    Mutant(
        "brackets in strings are none",
        READER,
        "    steps[in_text] = 0\n",
        "",
        PIECES,
    ),
    Mutant(
        "what one rank keeps of many, another keeps of few",
        f"{ENGINE}/summary.py",
        "            by_ordinal *= 2\n",
        "            by_ordinal += 1\n",
        SMALL,
    ),
)
