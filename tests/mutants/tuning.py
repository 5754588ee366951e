# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of tuning: which width a trial gets, when it is resized, and who is promoted."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

PLANNER: Final = "operator/ullage/engines/tuning/planner.py"
RUNGS: Final = "operator/ullage/engines/tuning/rungs.py"
METRICS: Final = "operator/ullage/engines/tuning/metrics.py"
OCCUPANCY: Final = "operator/ullage/engines/tuning/occupancy.py"
_FOLDER: Final = "tests/unit/engines/tuning"
PLANS: Final = (f"{_FOLDER}/test_plans_end_near_the_best.py",)
PROMOTED: Final = (f"{_FOLDER}/test_promotions_do_not_depend_on_time.py",)

MUTANTS: Final = (
    Mutant(
        "a trial without checkpoints keeps its width",
        PLANNER,
        "return trial.checkpoints and rested",
        "return rested",
        PLANS,
    ),
    Mutant(
        "a trial rests after a resize",
        PLANNER,
        "self.now_s - trial.holding.since_s >= self.rules.rest_s",
        "self.now_s >= 0",
        PLANS,
    ),
    Mutant(
        "what is left goes where a resize pays",
        PLANNER,
        "                and not self._worth(at, self.place[at])\n",
        "                and False\n",
        PLANS,
    ),
    Mutant(
        "a running trial is narrowed only where the group gains by it",
        PLANNER,
        "            and gain > self.rules.gain_factor * self.trials[at].resize_cost_s\n",
        "",
        PLANS,
    ),
    Mutant(
        "the longest trial starts first",
        PLANNER,
        'np.argsort(-self.work, kind="stable")',
        'np.argsort(self.work, kind="stable")',
        PLANS,
    ),
    Mutant(
        "trials that gain nothing by sharing do not share",
        PLANNER,
        "last: Places = whole - cheap[:, ::-1].argmax(axis=1)",
        "last: Places = cheap.argmax(axis=1)",
        PLANS,
    ),
    Mutant(
        "a wide trial stays on one node",
        OCCUPANCY,
        "empty = empty[self._node[empty] == node]",
        "pass",
        PLANS,
    ),
    Mutant(
        "a rung is decided when all have reported",
        RUNGS,
        "if not rung.complete or len(self.rungs) == len(self.epochs):",
        "if len(self.rungs) == len(self.epochs):",
        PROMOTED,
    ),
    Mutant(
        "values count at the epoch of the rung",
        RUNGS,
        "        if epoch == self.until_epoch:\n",
        "        if epoch <= self.until_epoch:\n",
        PROMOTED,
    ),
    Mutant(
        "a metric that is no number is no value",
        METRICS,
        "if not math.isfinite(value):",
        "if math.isinf(value):",
        PROMOTED,
    ),
    Mutant(
        "an epoch that comes again does not count again",
        METRICS,
        "        if epoch == self._last.get(trial):\n            return ReportProblem.REPEATED\n",
        "",
        PROMOTED,
    ),
)
