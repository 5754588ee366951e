# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of slow ranks: who is slow and why, how batches are divided, when all ranks change."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

DETECTOR: Final = "operator/ullage/engines/stragglers/detector.py"
PLAN: Final = "runtime/ullage_run/uneven_plan.py"
AGREEMENT: Final = "runtime/ullage_run/uneven_agreement.py"
NEWS: Final = "operator/ullage/scheduling/observation/stragglers.py"
SLOW: Final = "operator/ullage/scheduling/lifecycle/slow_members.py"
CAUSES: Final = ("tests/unit/engines/stragglers/test_causes_of_slow_ranks_are_named.py",)
DIVIDES: Final = ("tests/unit/run/test_batches_are_divided_by_speed.py",)
AGREES: Final = ("tests/unit/run/test_ranks_change_sizes_at_the_same_batch.py",)
TELLS: Final = ("tests/unit/scheduling/observation/test_owners_are_told_of_slow_ranks.py",)
REPLACES: Final = ("tests/unit/scheduling/test_a_member_on_a_slow_node_is_replaced.py",)

MUTANTS: Final = (
    Mutant(
        "a rank that is slow on two nodes is slow by its program",
        SLOW,
        "if other.rank == slow.rank), None)",
        "if other.rank != other.rank), None)",
        REPLACES,
    ),
    Mutant(
        "another place is on another node",
        SLOW,
        "avoid=frozenset(inventory.sites_on[node]),",
        "avoid=frozenset(),",
        REPLACES,
    ),
    Mutant(
        "a refused eviction is no second replacement",
        SLOW,
        "    if _is_under_way(job, slow):\n        return before\n",
        "",
        REPLACES,
    ),
    Mutant(
        "a slow rank lasts without a pause",
        NEWS,
        "now - before.seen > STRAGGLER_PAUSE_S",
        "now - before.seen > 3600",
        TELLS,
    ),
    Mutant(
        "the status follows what has held for a minute",
        NEWS,
        "if now - slowness.since >= STRAGGLER_SHOWN_S:",
        "if True:",
        TELLS,
    ),
    Mutant(
        "ranks are compared within their stage",
        DETECTOR,
        "by_stage[rank.stage].append(at)",
        "by_stage[0].append(at)",
        CAUSES,
    ),
    Mutant(
        "a CPU limit that holds up all alike is no cause",
        DETECTOR,
        "slow.throttled_percent >= throttled + THROTTLED_LEAST",
        "slow.throttled_percent >= THROTTLED_LEAST",
        CAUSES,
    ),
    Mutant(
        "the next sample goes where it ends first",
        PLAN,
        "(unit_times[rank] * (size + 2), size + 1, rank)",
        "(unit_times[rank], size + 1, rank)",
        DIVIDES,
    ),
    Mutant(
        "no batch grows by more than a quarter",
        PLAN,
        "        if size < most:\n",
        "        if True:\n",
        DIVIDES,
    ),
    Mutant(
        "what one rank gives away goes to one other",
        PLAN,
        "for size in sizes[:rank])",
        "for size in sizes[:0])",
        DIVIDES,
    ),
    Mutant(
        "a proposal is committed once all have acknowledged",
        AGREEMENT,
        "if pending and waiting and all(",
        "if pending and waiting and any(",
        AGREES,
    ),
    Mutant(
        "a rank acknowledges only what it can still follow",
        AGREEMENT,
        ' and state == "proposed" and own.following <= plan.start',
        ' and state == "proposed"',
        AGREES,
    ),
    Mutant(
        "a plan begins at its first batch",
        AGREEMENT,
        "pending is not None and position >= pending.start",
        "pending is not None and position > pending.start and self._rank",
        AGREES,
    ),
    Mutant(
        "ranks that read other data are refused",
        AGREEMENT,
        "(report.at, report.plan, report.data)",
        "(report.at, report.plan, known[report.step][2])",
        AGREES,
    ),
    Mutant(
        "a rank is slow for a while before it is named",
        NEWS,
        "now - after.since >= STRAGGLER_HELD_S and",
        "",
        TELLS,
    ),
)
