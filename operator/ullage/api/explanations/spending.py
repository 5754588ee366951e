# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of choosing pools for jobs. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

SPENDING: Final[Mapping[Reason, Explanation]] = {
    Reason.POOL_ACQUIRED: say(
        "Ullage chose pools for the job by the cost of an hour of its work, losses included.",
        "Nothing; `kubectl ullage why` shows the next best pool and both prices.",
    ),
    Reason.POOL_RELEASED: say("The job left a pool: its work is cheaper without it.", "Nothing."),
    Reason.OFFER_SWITCHED: say(
        "The job moves to other capacity, where it saves more money or time than the restart "
        "costs. It resumes from its checkpoint, and the restart counts as no failure.",
        "Nothing. Raise minSavingsPercent or decisionPeriod of the SchedulingPolicy to move less "
        "often.",
    ),
    Reason.GAIN_TOO_SMALL: say(
        "No other pool is better by enough to pay for a move, so the job stays.", "Nothing."
    ),
    Reason.MINIMUM_HOLD: say(
        "Another pool is better, but the job chose its present pool too recently.",
        "Nothing; spot.minHold of the SchedulingPolicy sets the time.",
    ),
    Reason.LIMITS_SHRANK: say(
        "The job holds more than its limits now allow: the budget shrank, or a pool is gone.",
        "Raise spec.cost.budgetPerHour, or allow other capacity.",
    ),
    Reason.BUDGET_TOO_SMALL: say(
        "No pool takes all members within spec.cost.budgetPerHour at present prices.",
        "Raise budgetPerHour, lower replicas, or wait for lower prices.",
    ),
    Reason.NO_POOL: say(
        "No CapacityPool fits the job's accelerator, node labels, devices per node and allowed "
        "capacity types; or its chosen pools were deleted, and then running work continues.",
        "Read the message; allow more accelerators or spot, or create a pool.",
    ),
    Reason.SPOT_AVAILABLE: say(
        "The deadline leaves room for spot, and spot is available.", "Nothing."
    ),
    Reason.SPOT_RUNNING: say("The job runs on spot until the provider takes it back.", "Nothing."),
    Reason.FALLBACK_TO_ON_DEMAND: say(
        "Progress is behind the deadline schedule and no spot is available, so the job runs on "
        "on-demand until it has caught up.",
        "Nothing. A later deadline or a smaller job would need less on-demand.",
    ),
    Reason.ON_DEMAND_HELD: say(
        "The job keeps its on-demand capacity: moving to spot now would cost another restart, "
        "which its progress does not pay for yet.",
        "Nothing.",
    ),
    Reason.DEADLINE_SAFETY_NET: say(
        "The remaining time is just enough, so the job stays on on-demand until it is done.",
        "Nothing.",
    ),
    Reason.WAITING_FOR_SPOT: say(
        "Progress is ahead of the deadline schedule and no spot is available, so the job waits for "
        "spot; waiting costs nothing.",
        "Nothing; the job takes on-demand in time. Set spec.cost.allowSpot to false not to wait.",
    ),
    Reason.ON_DEMAND_MISSING: say(
        "The deadline requires on-demand capacity and none is available: no pool, no price, or "
        "above the budget. The job may miss its deadline.",
        "Create an OnDemand CapacityPool that suits the job, or raise budgetPerHour.",
    ),
    Reason.DEADLINE_INFEASIBLE: say(
        "The work and two restarts take longer than the deadline allows, so the job does not "
        "start.",
        "Set a later deadline, run on more or faster devices, or correct estimatedWork.",
    ),
    Reason.DEADLINE_KEPT: say(
        "At present progress the job meets its deadline, restarts included.", "Nothing."
    ),
    Reason.DEADLINE_AT_RISK: say(
        "The remaining work and a restart take longer than the remaining time.",
        "Read the message. A later deadline, or more on-demand capacity, would help.",
    ),
    Reason.WORK_UNKNOWN: say(
        "The length of the work is unknown, so Ullage cannot plan the deadline: the job states no "
        "estimate, and the speed of its class is neither measured nor declared.",
        "Set spec.cost.estimatedWork, or declare stepsPerSecond in a WorkloadProfile.",
    ),
    Reason.WORK_DONE: say("All work is done; the job holds no capacity.", "Nothing."),
    Reason.POOL_ORDERED: say(
        "The chosen pool has no free node. The operator requests one with a placeholder pod, and "
        "the cluster's autoscaler buys the machine.",
        "Wait a few minutes. If no node arrives, read the Events of the placeholder pod and the "
        "autoscaler's log.",
    ),
    Reason.LAUNCH_FAILED: say(
        "A requested node did not arrive in time; the pool counts a launch failure.",
        "Read the message and the autoscaler's log. Usual causes: quota, capacity of the zone, or "
        "labels of the pool that no node group has.",
    ),
}
"""Reasons of the pools chosen for jobs."""
