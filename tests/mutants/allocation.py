# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of allocation: how time is divided by an objective, and who runs in the next round."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ENGINE: Final = "operator/ullage/engines/allocation"
POLICIES: Final = f"{ENGINE}/policies"
UNIT: Final = "tests/unit/engines/allocation"

LEVELS: Final = (f"{UNIT}/test_levels_of_tenants_are_exact.py",)
OBJECTIVES: Final = (f"{UNIT}/test_objectives_equal_the_public_simulator.py",)
COSTS: Final = (f"{UNIT}/test_costs_and_deadlines.py",)
SHAPES: Final = (f"{UNIT}/test_shapes_of_problems.py",)
BIND: Final = (f"{UNIT}/test_rows_that_never_bind.py",)
SUMS: Final = (f"{UNIT}/test_goals_that_are_sums.py",)
TAKEN: Final = ("tests/unit/scheduling/test_jobs_take_turns.py",)
ROUNDS: Final = (f"{UNIT}/test_rounds_follow_the_fractions.py",)

MUTANTS: Final = (
    Mutant(
        "a tenant's weight is divided among all of its jobs, equal ones too",
        f"{POLICIES}/climb.py",
        "parts = (own * shape.count)[groups][order]",
        "parts = own[groups][order]",
        LEVELS,
    ),
    Mutant(
        "a queue rises by the weight of its tenant",
        f"{POLICIES}/climb.py",
        "takes = left[groups] / tenant.weight",
        "takes = left[groups]",
        LEVELS,
    ),
    Mutant(
        "a gang counts as many devices as it holds",
        f"{POLICIES}/max_min.py",
        "return shape.proportional / shape.gang",
        "return shape.proportional",
        OBJECTIVES,
    ),
    Mutant(
        "time alone until now counts for the ratio of finish times",
        f"{POLICIES}/finish_time.py",
        "base = shape.of_jobs(np.array([job.isolated_s for job in jobs])) + left / shape.isolated",
        "base = left / shape.isolated",
        OBJECTIVES,
    ),
    Mutant(
        "a part of the cluster alone is that of one job",
        f"{ENGINE}/shape.py",
        "part = self.capacity[None, :] / self.jobs / self.gang[:, None]",
        "part = self.capacity[None, :] / self.gang[:, None]",
        OBJECTIVES,
    ),
    Mutant(
        "a deadline that passed cannot be kept",
        f"{ENGINE}/deadlines.py",
        "else np.inf\n            for job",
        "else 0.0\n            for job",
        COSTS,
    ),
    Mutant(
        "a floor of service is kept where cost decides",
        f"{POLICIES}/cost.py",
        "floors = np.maximum(service, shape.of_jobs(needed))",
        "floors = shape.of_jobs(needed)",
        COSTS,
    ),
    Mutant(
        "the oldest job comes first",
        f"{POLICIES}/sums.py",
        "keys = [(-job.age_s, job.name) for job in problem.jobs]",
        "keys = [(job.age_s, job.name) for job in problem.jobs]",
        SUMS,
    ),
    Mutant(
        "of equal optima the one in force stands",
        f"{ENGINE}/answer.py",
        "    if target is None:\n        return solved.x",
        "    if target is not None:\n        return solved.x",
        SHAPES,
    ),
    Mutant(
        "a pair that gains too little is not looked at",
        f"{ENGINE}/pairs.py",
        "> problem.min_combined",
        "> 0.0",
        SHAPES,
    ),
    Mutant(
        "a debt is remembered for so many rounds",
        f"{ENGINE}/rounds.py",
        "owed[cell] = min(most, max(-most, due))",
        "owed[cell] = due",
        ROUNDS,
    ),
    Mutant(
        "a job keeps its devices until others are owed what stopping it costs",
        f"{ENGINE}/rounds.py",
        "return _STAY_S + min(cost / settings.most_lost,",
        "return _STAY_S + min(cost * settings.most_lost,",
        ROUNDS,
    ),
    Mutant(
        "a job that cannot be stopped takes no device without a promise",
        f"{ENGINE}/rounds.py",
        "        if not job.checkpointable:\n            continue\n",
        "",
        ROUNDS,
    ),
    Mutant(
        "devices are kept for a gang after so many rounds",
        f"{ENGINE}/rounds.py",
        "if count >= limit),",
        "if count > limit),",
        ROUNDS,
    ),
    Mutant(
        "a gang that is late breaks a turn",
        f"{ENGINE}/rounds.py",
        "return patient and now + TICK_S < began + settings.round_s",
        "return now + TICK_S < began + settings.round_s",
        TAKEN,
    ),
    Mutant(
        "a turn lasts a round",
        f"{ENGINE}/rounds.py",
        "return patient and now + TICK_S < began + settings.round_s",
        "return False",
        TAKEN,
    ),
    Mutant(
        "a floor stands in its row",
        f"{ENGINE}/lp.py",
        "limits=-np.where(np.isfinite(floors[wanted]), floors[wanted], 0.0) * scale,",
        "limits=0.0 * scale,",
        (*LEVELS, *COSTS),
    ),
    Mutant(
        "no half-solved point leaves",
        f"{ENGINE}/lp.py",
        'method="highs-ipm")\n    if answer.status != 0:',
        'method="highs-ipm")\n    if answer.status < 0:',
        SHAPES,
    ),
    Mutant(
        "of equal optima the one with the fewest devices moved",
        f"{ENGINE}/lp.py",
        "devices = shape.gang[shape.left]",
        "devices = np.ones(count)",
        (*SHAPES, *OBJECTIVES),
    ),
    Mutant(
        "a second solve keeps the goal",
        f"{ENGINE}/lp.py",
        "*([np.array([-value])] if gain.any() else [])]",
        "*([np.array([0.0])] if gain.any() else [])]",
        (*SUMS, *SHAPES),
    ),
    Mutant(
        "a second solve keeps the floors",
        f"{ENGINE}/lp.py",
        "held = at_least(shape, floors)",
        "held = at_least(shape, 0.0 * floors)",
        (*SHAPES, *OBJECTIVES),
    ),
    Mutant(
        "who has more time than there is has more than it needs",
        f"{ENGINE}/lp.py",
        "x /= np.where(ample, np.maximum(used, 1.0), 1.0)[shape.left]",
        "x /= np.where(ample, 1.0, 1.0)[shape.left]",
        (*BIND, *SHAPES),
    ),
    Mutant(
        "rows of time are left out only where they never bind",
        f"{ENGINE}/lp.py",
        "return np.asarray((floors + rise * most) * (1 + _SURE) <= slowest)",
        "return np.asarray((floors + rise * most) * (1 + _SURE) <= best)",
        (*BIND, *SHAPES),
    ),
    Mutant(
        "rows of pairs are never left out",
        f"{ENGINE}/lp.py",
        " or shape.groups < _MANY or (shape.right >= 0).any():",
        " or shape.groups < _MANY:",
        (*BIND, *SHAPES),
    ),
    Mutant(
        "scarce types have a price",
        f"{ENGINE}/lp.py",
        "prices[kept] = duals[: heights[0]]",
        "prices[kept] = 0.0 * duals[: heights[0]]",
        (*SHAPES, *LEVELS, *OBJECTIVES),
    ),
    Mutant(
        "rows are scaled so that speeds of all sizes count",
        f"{ENGINE}/lp.py",
        "(rows.data * np.repeat(by, np.diff(rows.indptr)), rows.indices, rows.indptr),",
        "(-rows.data, rows.indices, rows.indptr),",
        (*LEVELS, *OBJECTIVES),
    ),
    Mutant(
        "what is one's own has its turn before what is borrowed",
        "operator/ullage/engines/allocation/rounds.py",
        "            filling.take(claim, nominal=True)\n",
        "            pass\n",
        ("tests/unit/scheduling/test_tenants_keep_their_quota.py",),
    ),
)
