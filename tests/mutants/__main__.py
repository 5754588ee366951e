# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tries the named mutants: each breaks one rule, and a test fails.

``make mutants`` changes one line at a time in a copy of the code and runs the tests that guard it.
It ends with an error when a mutant survives, when its line is not there any more, or when its tests
fail without it. Words choose: a subject, a file's name, words of a rule.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from mutants import (
    admission,
    adoption,
    advice,
    allocation,
    blame,
    buying,
    charges,
    devicechoice,
    efficiency,
    enforcement,
    katib,
    lanes,
    quota,
    rebalance,
    scaling,
    stops,
    tracing,
    tuning,
    turns,
)
from mutants.mutant import Copy, Mutant, copied

MOST_S: Final = 600.0
"""Seconds of one run of tests."""
SUBJECTS: Final[Mapping[str, Sequence[Mutant]]] = {
    "admission": admission.MUTANTS,
    "enforcement": enforcement.MUTANTS,
    "blame": blame.MUTANTS,
    "adoption": adoption.MUTANTS,
    "advice": advice.MUTANTS,
    "allocation": allocation.MUTANTS,
    "buying": buying.MUTANTS,
    "turns": turns.MUTANTS,
    "charges": charges.MUTANTS,
    "stops": stops.MUTANTS,
    "quota": quota.MUTANTS,
    "rebalance": rebalance.MUTANTS,
    "tracing": tracing.MUTANTS,
    "tuning": tuning.MUTANTS,
    "katib": katib.MUTANTS,
    "scaling": scaling.MUTANTS,
    "devicechoice": devicechoice.MUTANTS,
    "efficiency": efficiency.MUTANTS,
    "lanes": lanes.MUTANTS,
}


def chosen(words: Sequence[str]) -> list[Mutant]:
    """Mutants that every word fits; all without words."""
    return [
        mutant
        for subject, mutants in SUBJECTS.items()
        for mutant in mutants
        if all(word in (subject, *mutant.file.split("/"), *mutant.rule.split()) for word in words)
    ]


def survives(copy: Copy, mutant: Mutant) -> bool:
    """Whether all of a mutant's tests pass."""
    with copy.changed(mutant.file, mutant.text()):
        return copy.run(mutant.tests, MOST_S).returncode == 0


def main(words: Sequence[str]) -> int:
    """Try the mutants that were chosen.

    Returns:
        0, or 1 when one survives.
    """
    mutants = chosen(words)
    if not mutants:
        print(f"no mutant of {' '.join(words)}; subjects: {', '.join(SUBJECTS)}", file=sys.stderr)
        return 1
    alive = 0
    with copied() as copy:
        tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
        if copy.run(tuple(tests), MOST_S).returncode:
            print(f"fail without a mutant: {' '.join(tests)}", file=sys.stderr)
            return 1
        for mutant in mutants:
            lives = survives(copy, mutant)
            alive += lives
            print(f"{'SURVIVES' if lives else 'dies':8}  {mutant.file}: {mutant.rule}", flush=True)
    print(f"{len(mutants) - alive} of {len(mutants)} mutants die")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
