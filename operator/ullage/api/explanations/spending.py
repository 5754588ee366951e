# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of choosing pools for jobs mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

SPENDING: Final[Mapping[Reason, Explanation]] = {
    Reason.POOL_ACQUIRED: say(
        "Pools were chosen for the job by what an hour of its work costs there, losses included.",
        "Nothing; `kubectl ullage why` shows the next best and both prices.",
    ),
    Reason.POOL_RELEASED: say("A pool was given back: work is cheaper without it.", "Nothing."),
    Reason.OFFER_SWITCHED: say(
        "The job goes to other capacity, where its work is cheaper or sooner done by more than the "
        "restart costs; it goes on from its checkpoint, and no failure is counted.",
        "Nothing. Raise minSavingsPercent or decisionPeriod of the SchedulingPolicy to move less.",
    ),
    Reason.GAIN_TOO_SMALL: say(
        "Another pool is no better by enough to pay for a move, so the job stays.", "Nothing."
    ),
    Reason.MINIMUM_HOLD: say(
        "Another pool is better, but the present one was chosen too short a time ago.",
        "Nothing; spot.minHold of the SchedulingPolicy says how long.",
    ),
    Reason.LIMITS_SHRANK: say(
        "What the job holds is more than its limits allow now: the budget, or a pool that is gone.",
        "Raise spec.cost.budgetPerHour, or allow other capacity.",
    ),
    Reason.BUDGET_TOO_SMALL: say(
        "No pool takes all members within spec.cost.budgetPerHour at the present prices.",
        "Raise budgetPerHour, lower replicas, or wait for lower prices.",
    ),
    Reason.NO_POOL: say(
        "No CapacityPool has what the job asks for: accelerator, node labels, devices per node, or "
        "a kind of capacity that it allows; or the pools that were chosen for it were deleted. "
        "What runs is left alone then.",
        "See the message; allow more accelerators or spot, or create a pool.",
    ),
    Reason.SPOT_AVAILABLE: say("The deadline leaves room for spot, and there is some.", "Nothing."),
    Reason.SPOT_RUNNING: say("The job runs on spot until that is taken.", "Nothing."),
    Reason.FALLBACK_TO_ON_DEMAND: say(
        "Progress is behind the line to the deadline and there is no spot, so the job runs on "
        "on-demand until it has caught up.",
        "Nothing. A later deadline or a smaller job would need less on-demand.",
    ),
    Reason.ON_DEMAND_HELD: say(
        "The job keeps its on-demand capacity: going to spot now would cost a second start that "
        "progress does not pay yet.",
        "Nothing.",
    ),
    Reason.DEADLINE_SAFETY_NET: say(
        "The rest of the time is just enough, so the job stays on on-demand until it is done.",
        "Nothing.",
    ),
    Reason.WAITING_FOR_SPOT: say(
        "Progress is ahead of the line to the deadline and there is no spot, so the job waits for "
        "some; waiting costs nothing.",
        "Nothing; on-demand is taken in time. Set spec.cost.allowSpot to false not to wait.",
    ),
    Reason.ON_DEMAND_MISSING: say(
        "The deadline asks for on-demand capacity and none can be had: no pool, no price, or above "
        "the budget. The deadline may be missed.",
        "Create an OnDemand CapacityPool that suits the job, or raise budgetPerHour.",
    ),
    Reason.DEADLINE_INFEASIBLE: say(
        "The work and two restarts take longer than the deadline allows, so the job is not "
        "started.",
        "Set a later deadline, run on more or faster devices, or correct estimatedWork.",
    ),
    Reason.DEADLINE_KEPT: say(
        "At the present progress the deadline is kept, restarts included.", "Nothing."
    ),
    Reason.DEADLINE_AT_RISK: say(
        "What is left of the time is less than the work left and a restart take.",
        "See the message. A later deadline, or more on-demand capacity, would help.",
    ),
    Reason.WORK_UNKNOWN: say(
        "How long the work takes is not known, so no deadline can be planned: no estimate is "
        "stated and the speed of the class is neither measured nor declared.",
        "Set spec.cost.estimatedWork, or declare stepsPerSecond in a WorkloadProfile.",
    ),
    Reason.WORK_DONE: say("All of the work is done; nothing is held for it.", "Nothing."),
    Reason.POOL_ORDERED: say(
        "The chosen pool has no free node, so one is ordered: a placeholder pod of ours waits for "
        "it, and the autoscaler of the cluster buys the machine.",
        "Wait a few minutes. If nothing comes, see the Events of the placeholder pod and the "
        "autoscaler's log.",
    ),
    Reason.LAUNCH_FAILED: say(
        "A node that was ordered did not come in time; the pool counts a launch failure.",
        "See the message and the autoscaler's log: quota, capacity of the zone, or labels of the "
        "pool that no node group has.",
    ),
}
"""Reasons of pools that are chosen for jobs."""
