# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of choosing accelerators and pools, and of spending."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

COST: Final[Mapping[Reason, Explanation]] = {
    Reason.ESTIMATED: say(
        "Ullage estimates speeds on device types where the class never ran.",
        "Nothing. One run on such a type replaces the estimate with a measurement.",
    ),
    Reason.INSTANCE_SELECTED: say(
        "One accelerator serves spec.cost best; the message has time and cost of the first two.",
        "Nothing, or name it in spec.accelerators.",
    ),
    Reason.ADVICE_ONLY: say(
        "There is a best accelerator, but its data is incomplete; its row says what is missing.",
        "Supply the missing data: a measured step, or the memory that the job needs.",
    ),
    Reason.CAPACITY_DECIDES: say("The job has a deadline, which decides its capacity.", "Nothing."),
    Reason.RECOMMENDED: say(
        "Of the available accelerators, this one serves spec.cost best.", "Nothing."
    ),
    Reason.FEASIBLE: say(
        "The job runs there within its bounds, but another accelerator is better or as good.",
        "Nothing.",
    ),
    Reason.BETTER_CHOICE: say(
        "Another accelerator would save much of what is left of the job's time or cost. A job with "
        "spec.checkpoint starts again there once there is room and no one waits for it.",
        "Nothing, or set spec.checkpoint; the policy's spec.reconsider says how much is much.",
    ),
    Reason.MEMORY_TOO_LARGE: say(
        "The job needs more memory than a device of the type has, so the type is never "
        "recommended.",
        "Make the batch smaller, or use a type with more memory.",
    ),
    Reason.DID_NOT_RUN: say(
        "The job ran on the type and completed no step.",
        "Look at its pods of that time for the cause.",
    ),
    Reason.NO_ESTIMATE: say(
        "The speed on the type is unknown, and no measurement allows an estimate.",
        "Run the class once on any type, declare stepsPerSecond in a WorkloadProfile, or give the "
        "DeviceProfiles peakFlops and memoryBytesPerSecond.",
    ),
    Reason.FAMILY_NOT_MEASURED: say(
        "No class of the job's family was measured on the type. Other families say too little to "
        "estimate from: by them a step is off by half or more, as by the average ratio.",
        "Run a class of the family once on the type, import a trace of the class, or declare "
        "stepsPerSecond in a WorkloadProfile.",
    ),
    Reason.NOT_AVAILABLE: say(
        "The cluster has no healthy devices of the type in the number that the job needs.",
        "Wait, or add nodes.",
    ),
    Reason.PRICE_MISSING: say(
        "A choice by cost needs a price, and the type has none.",
        "Set spec.pricePerHour of its DeviceProfile, or create a CapacityPool of the type. On the "
        "SchedulingPolicy: time slicing follows MaxMinFairness until then.",
    ),
    Reason.COST_SETTLED: say(
        "The job has ended; the message has its cost and the cost of the same time on on-demand.",
        "Nothing; `kubectl ullage cost` shows all jobs, status.spend this one.",
    ),
    Reason.OVER_COST: say(
        "The training would cost more than spec.cost.maxCost there.",
        "Raise maxCost, or take another type.",
    ),
    Reason.OVER_TIME: say(
        "The training would take longer than spec.cost.maxTime there.",
        "Raise maxTime, or take another type.",
    ),
    Reason.MEMORY_UNKNOWN: say(
        "The job's device memory need is unknown, so the type is advice only.",
        "Set gpu.memory.limit, declare peakMemoryBytes in a WorkloadProfile, or run the job once.",
    ),
    Reason.NOT_ANCHORED: say(
        "The speed is estimated from other classes or peak rates alone, so the type is advice "
        "only.",
        "Run the class once on any type.",
    ),
    Reason.INPUT_BOUND: say(
        "The job waits for its input, so a faster device may not help.",
        "Speed up its input first; `kubectl ullage top` shows how busy its device is.",
    ),
    Reason.COUNT_CHANGES_BATCH: say(
        "Another number of devices changes the batch of a step, and so how the training converges.",
        "Keep the number, or choose the batch again.",
    ),
}


POOLS: Final[Mapping[Reason, Explanation]] = {
    Reason.PRICE_READ: say(
        "The pool's price source answered recently, and its price is accepted.", "Nothing."
    ),
    Reason.NEVER_PRICED: say(
        "The pool's price source has returned no price yet, so no job chooses the pool by cost.",
        "For a new pool, wait a minute. Otherwise check spec.priceSource and the message.",
    ),
    Reason.PRICE_STALE: say(
        "The last price is more than six hours old; it stays in force until a new one arrives.",
        "Check that the writer of the price still runs.",
    ),
    Reason.PRICE_OUTLIER: say(
        "The source returns more than three times the accepted price. Price feeds can show such "
        "values for weeks, so the previous price stays in force.",
        "If the new price is right, delete the pool and create it again, or give it another "
        "priceSource. Otherwise nothing.",
    ),
    Reason.PRICE_UNREADABLE: say(
        "The price source returned no price, or not the requested one; the message says what is "
        "wrong. The previous price stays in force.",
        "Correct spec.priceSource, or the object that it names.",
    ),
    Reason.PRICE_UNREACHABLE: say(
        "The price source does not answer. The operator retries with increasing delays, and the "
        "previous price stays in force.",
        "Check what the message names: the address, the network policy and the rights of the "
        "operator's pod.",
    ),
    Reason.HAZARD_LEARNED: say(
        "The pool's hazard rests on observations more than on the prior.", "Nothing."
    ),
    Reason.HAZARD_FROM_PRIOR: say(
        "The pool has few observations, so its hazard rests mostly on the prior.",
        "Nothing; Ullage learns the hazard while the pool has nodes. spec.prior.advisorBand "
        "improves the prior.",
    ),
}


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
    Reason.POOL_ENDS: say(
        "The CapacityPool is deleted: nothing more is requested of it, and it stays until the "
        "instances that were requested are ready or given up.",
        "Nothing; after 15 minutes it goes without them.",
    ),
    Reason.LAUNCH_FAILED: say(
        "A requested node did not arrive in time; the pool counts a launch failure.",
        "Read the message and the autoscaler's log. Usual causes: quota, capacity of the zone, or "
        "labels of the pool that no node group has.",
    ),
}
"""Reasons of the pools chosen for jobs."""
