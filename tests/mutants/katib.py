# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of suggestion services: what becomes a trial, what they hear, when they are given up."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

_KATIB: Final = "operator/ullage_katib"
BRIDGE: Final = f"{_KATIB}/bridge.py"
MISBEHAVES: Final = ("tests/unit/katib/test_a_service_that_misbehaves_ends_no_search.py",)
GOES_ON: Final = ("tests/unit/katib/test_a_search_goes_on_whatever_else_happens.py",)
POINTS: Final = ("tests/unit/katib/test_only_points_of_the_space_become_trials.py",)

MUTANTS: Final = (
    Mutant(
        "suggestions come to the spec that was read",
        f"{_KATIB}/search.py",
        """{"op": "test", "path": "/metadata/generation", "value": search.record.generation},""",
        "",
        GOES_ON,
    ),
    Mutant(
        "no more points are taken than were asked for",
        f"{_KATIB}/messages.py",
        "if len(suggestions) > asked:",
        "if len(suggestions) > 1000:",
        MISBEHAVES,
    ),
    Mutant(
        "a point becomes a trial once",
        f"{_KATIB}/points.py",
        "        seen.add(key)\n",
        "",
        POINTS,
    ),
    Mutant(
        "a value outside of the space becomes no trial",
        f"{_KATIB}/points.py",
        "if value_of(space.parameters[name], text) is None:",
        "if not text:",
        POINTS,
    ),
    Mutant(
        "a service is asked without trials that it does not know",
        BRIDGE,
        "ways += _shorter(trials, self._own)",
        "ways += []",
        GOES_ON,
    ),
    Mutant(
        "trials that a service does not know stay left out",
        BRIDGE,
        "        self._left_out |= left_out\n",
        "",
        GOES_ON,
    ),
    Mutant(
        "failures have a bound",
        BRIDGE,
        "if failures >= self._options.tries:",
        "if failures >= 10 * self._options.tries:",
        MISBEHAVES,
    ),
    Mutant(
        "a service that has nothing new is left alone until a trial ends",
        BRIDGE,
        "            self._asked_at = search.results\n",
        "            self._asked_at = None\n",
        MISBEHAVES,
    ),
    Mutant(
        "a sequence that begins again may repeat its old points",
        BRIDGE,
        "        if points.repeated and self._old_points > 0:",
        "        if points.repeated and self._old_points > 10**6:",
        MISBEHAVES,
    ),
    Mutant(
        "a deadline is set for each answer",
        f"{_KATIB}/service.py",
        "timeout=self._deadline_s",
        "timeout=None",
        MISBEHAVES,
    ),
    Mutant(
        "a service whose points are equal is asked again at once",
        BRIDGE,
        "Step.WAIT if len(points.new) == search.wanted else Step.AGAIN",
        "Step.WAIT",
        MISBEHAVES,
    ),
)
