# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of recommended accelerators. Standard library only."""

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
