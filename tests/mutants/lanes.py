# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of lanes: whose memory is where, and whose step is next."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

LANES: Final = "operator/ullage/engines/lanes"
UNIT: Final = "tests/unit/engines/lanes"

RULES: Final = (
    f"{UNIT}/test_lanes_open_join_enlarge_and_queue.py",
    f"{UNIT}/test_lanes_are_exact_on_tiny_devices.py",
)
STEPS: Final = (f"{UNIT}/test_whose_step_is_next.py",)
GROWTH: Final = (f"{UNIT}/test_a_step_that_outgrows_its_lane.py",)
RESTORED: Final = (f"{UNIT}/test_a_lane_table_outlives_its_process.py",)
ASSIGNED: Final = (f"{UNIT}/test_assigned_lanes_are_kept.py",)
AWAY: Final = (f"{UNIT}/test_idle_residents_make_room.py",)
PLACED: Final = (
    "tests/unit/scheduling/test_small_jobs_share_lanes.py",
    "tests/property/test_lanes_are_assigned_safely.py",
)

MUTANTS: Final = (
    Mutant(
        "a lane that grows counts with its larger size",
        f"{LANES}/state.py",
        "return max(self.size_mib, self.target_mib)",
        "return self.size_mib",
        RULES,
    ),
    Mutant(
        "a lane changes its size while it holds nothing",
        f"{LANES}/memory.py",
        "        if not lane.idle:\n            return\n",
        "",
        RULES,
    ),
    Mutant(
        "a newcomer joins the lane that fits best",
        f"{LANES}/rules.py",
        "return sorted(seen, key=lambda size: (size.size_mib, size.lane))",
        "return sorted(seen, key=lambda size: (-size.size_mib, size.lane))",
        RULES,
    ),
    Mutant(
        "no one joins a lane of another's own",
        f"{LANES}/rules.py",
        "return self.shared and not need.own and self.assigned == need.assigned",
        "return not need.own and self.assigned == need.assigned",
        RULES,
    ),
    Mutant(
        "a job that was assigned a lane shares it with its own number alone",
        f"{LANES}/rules.py",
        "return self.shared and not need.own and self.assigned == need.assigned",
        "return self.shared and not need.own",
        ASSIGNED,
    ),
    Mutant(
        "a lane counts its largest step once",
        f"{LANES}/assignment.py",
        "tenant.ephemeral_mib > tenants[before].ephemeral_mib",
        "tenant.ephemeral_mib < tenants[before].ephemeral_mib",
        PLACED,
    ),
    Mutant(
        "no lane opens where shares leave no room for one",
        f"{LANES}/rules.py",
        "if left >= need.ephemeral_mib and may_open and not (need.assigned and shared):",
        "if left >= need.ephemeral_mib and not (need.assigned and shared):",
        ASSIGNED,
    ),
    Mutant(
        "who joins a lane takes its share",
        "operator/ullage/scheduling/feasibility/lanes.py",
        "if request.min_percent <= lane.percent <= request.max_percent and lane.lane not in kept",
        "if lane.lane not in kept",
        PLACED,
    ),
    Mutant(
        "members of a gang share no lane",
        "operator/ullage/scheduling/feasibility/slices.py",
        "if gang or not workload.sharing.allow or has_objective(workload):",
        "if not workload.sharing.allow or has_objective(workload):",
        PLACED,
    ),
    Mutant(
        "lanes merge where the first that waits then fits",
        f"{LANES}/rules.py",
        "    if missing_mib(need, shared, free_mib + freed):\n        return ()\n",
        "",
        RULES,
    ),
    Mutant(
        "a merge waits for the smaller lane's boundary",
        f"{LANES}/memory.py",
        "        if small.idle:\n            self._move",
        "        if True:\n            self._move",
        RULES,
    ),
    Mutant(
        "merges for throughput lose none",
        f"{LANES}/rules.py",
        "return after < before - _LEAST_GAIN",
        "return False",
        RULES,
    ),
    Mutant(
        "no one passes the first that waits",
        f"{LANES}/admission.py",
        "            if assigned is None:\n                return False\n",
        "            if assigned is None:\n                self.queue.move_to_end(first.name)\n"
        "                return False\n",
        RULES,
    ),
    Mutant(
        "one step runs in a lane",
        f"{LANES}/turns.py",
        "        if lane.holder is not None:\n            return None\n",
        "",
        RULES,
    ),
    Mutant(
        "a deadline is twice the expected step",
        f"{LANES}/turns.py",
        "deadline_s=now_s + settings.deadline_factor * known,",
        "deadline_s=now_s + known,",
        RULES,
    ),
    Mutant(
        "an unsafe state is an error",
        f"{LANES}/safety.py",
        "    if used > usable_mib:\n",
        "    if used > 2 * usable_mib:\n",
        RULES,
    ),
    Mutant(
        "a step that is known to be too large does not run",
        f"{LANES}/larger_steps.py",
        "                if resident.peak_mib > resident.ephemeral_mib:\n",
        "                if False:\n",
        GROWTH,
    ),
    Mutant(
        "a newcomer starts where its lane stands",
        f"{LANES}/state.py",
        "resident.level_steps = self.clock_steps + lead_steps",
        "resident.level_steps = lead_steps",
        STEPS,
    ),
    Mutant(
        "who sleeps may catch up by a credit alone",
        f"{LANES}/turns.py",
        "resident.level_s = max(resident.level_s, lane.clock_s - settings.credit_s)",
        "resident.level_s = max(resident.level_s, lane.clock_s - 1e9)",
        STEPS,
    ),
    Mutant(
        "the wait counts under SRTF",
        f"{LANES}/policies.py",
        "return remaining_s(resident) - resident.wait_s(now_s) / settings.aging",
        "return remaining_s(resident)",
        STEPS,
    ),
    Mutant(
        "a length that is too short helps until it is over",
        f"{LANES}/policies.py",
        "return left_s if left_s > 0 else resident.ran_s",
        "return left_s if left_s else resident.ran_s",
        STEPS,
    ),
    Mutant(
        "the first steps of a job tell how long a step is",
        f"{LANES}/policies.py",
        "elif demand.total_steps is not None and resident.steps >= FIRST_STEPS:",
        "elif demand.total_steps is not None and demand.total_steps > 9 * FIRST_STEPS:",
        STEPS,
    ),
    Mutant(
        "a restored table counts its leases on",
        f"{LANES}/table.py",
        "table._turns.leases = max((record.leases, *held))",
        "table._turns.leases = 0",
        RESTORED,
    ),
    Mutant(
        "what is restored is checked",
        f"{LANES}/table.py",
        "        memory.check()\n        for demand in record.queue:\n",
        "        for demand in record.queue:\n",
        RESTORED,
    ),
    Mutant(
        "a job that works makes room only for one that has waited for long",
        f"{LANES}/suspension.py",
        "return moment.overdue(settings) and (resident.served or resident.lease is not None)",
        "return resident.served or resident.lease is not None",
        AWAY,
    ),
    Mutant(
        "a job that came back has a step before it leaves again",
        f"{LANES}/suspension.py",
        "return moment.overdue(settings) and (resident.served or resident.lease is not None)",
        "return moment.overdue(settings)",
        AWAY,
    ),
    Mutant(
        "no more jobs are suspended than are needed",
        f"{LANES}/suspension.py",
        "            chosen = rest\n",
        "            pass\n",
        AWAY,
    ),
    Mutant(
        "those that leave already count as gone",
        f"{LANES}/suspension.py",
        "gone = [resident for resident in everyone if resident.memory is MemoryPlace.LEAVING]",
        "gone: list[LaneResident] = []",
        AWAY,
    ),
    Mutant(
        "a job whose memory is elsewhere runs no step",
        f"{LANES}/turns.py",
        "            if resident.may_run\n            and not resident.needs_mib\n",
        "            if not resident.needs_mib\n",
        AWAY,
    ),
    Mutant(
        "a job that keeps more than it said has less for its steps",
        f"{LANES}/away.py",
        "        resident.ephemeral_mib -= more\n",
        "",
        AWAY,
    ),
    Mutant(
        "what is away is kept for the next keeper",
        f"{LANES}/table.py",
        "away=tuple(recorded_resident(resident) for resident in self.away.jobs.values()),",
        "",
        AWAY,
    ),
    Mutant(
        "a program that may leave keeps nothing of its device for good",
        f"{LANES}/assignment.py",
        "part.memory_mib if part.suspendable else part.ephemeral_mib",
        "part.ephemeral_mib",
        (
            "tests/unit/scheduling/test_programs_that_may_leave_share_all_memory.py",
            "tests/property/test_lanes_are_assigned_safely.py",
        ),
    ),
)
