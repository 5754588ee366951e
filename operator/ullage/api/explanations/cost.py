# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of a recommended accelerator mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

COST: Final[Mapping[Reason, Explanation]] = {
    Reason.ESTIMATED: say(
        "Speeds on types of device where the class never ran were estimated.",
        "Nothing. One run on such a type replaces the estimate by what was measured.",
    ),
    Reason.INSTANCE_SELECTED: say(
        "An accelerator stands out for what spec.cost asks; the message has time and cost of the "
        "first two.",
        "Nothing, or name it in spec.accelerators.",
    ),
    Reason.ADVICE_ONLY: say(
        "There is a best accelerator, but no one vouches for it yet; its row says what is missing.",
        "Supply what is missing: a measured step, or the memory that the job needs.",
    ),
    Reason.CAPACITY_DECIDES: say(
        "A deadline was asked for: which capacity is used follows from it.", "Nothing."
    ),
    Reason.RECOMMENDED: say(
        "The accelerator that serves spec.cost best, of those that may be had.", "Nothing."
    ),
    Reason.FEASIBLE: say(
        "The job runs there within its caps, and another accelerator is better or as good.",
        "Nothing.",
    ),
    Reason.MEMORY_TOO_LARGE: say(
        "The job needs more memory than a device of the type has; such a type is never "
        "recommended.",
        "Make the batch smaller, or use a type with more memory.",
    ),
    Reason.DID_NOT_RUN: say(
        "The job was tried on the type and did no step.", "See its pods of that time for why."
    ),
    Reason.NO_ESTIMATE: say(
        "No speed on the type is known, and nothing measured says anything about it.",
        "Run the class once on any type, declare stepsPerSecond in a WorkloadProfile, or give the "
        "DeviceProfiles peakFlops and memoryBytesPerSecond.",
    ),
    Reason.NOT_AVAILABLE: say(
        "The cluster has no healthy devices of the type in the number that the job needs.",
        "Wait, or add nodes.",
    ),
    Reason.PRICE_MISSING: say(
        "A choice by cost needs a price, and the type has none.",
        "Set spec.pricePerHour of its DeviceProfile, or make a CapacityPool of the type. On the "
        "SchedulingPolicy: time is divided by MaxMinFairness until then.",
    ),
    Reason.COST_SETTLED: say(
        "The job has ended; this is what it cost, and what on-demand would have taken.",
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
        "No one knows how much device memory the job needs, so the type is advice only.",
        "State gpu.memory.limit, declare peakMemoryBytes in a WorkloadProfile, or let it run once.",
    ),
    Reason.NOT_ANCHORED: say(
        "The speed follows from other classes or peak rates alone, so the type is advice only.",
        "Run the class once on any type.",
    ),
    Reason.INPUT_BOUND: say(
        "The job waits for its input, so a faster device may not help.",
        "Speed its input up first; `kubectl ullage top` shows how busy its device is.",
    ),
    Reason.COUNT_CHANGES_BATCH: say(
        "Another number of devices changes the batch of a step, and so how the training converges.",
        "Keep the number, or choose the batch again.",
    ),
}
