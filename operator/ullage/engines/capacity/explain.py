# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The text of a decision, with its figures.

It must never state more than the records contain.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.engines.capacity.deadline import DeadlineProgress, ProgressLine
from ullage.engines.capacity.records import OBJECTIVES, Ask, CapacityOption, CapacityWhy

_SAYS: Final = {
    CapacityWhy.ACQUIRED: "take {chosen} instead of {current}",
    CapacityWhy.RELEASED: "keep {chosen} of {current}: work gets cheaper without the rest",
    CapacityWhy.SWITCHED: "move to {chosen} from {current}",
    CapacityWhy.KEPT: "keep {chosen}: nothing gains enough",
    CapacityWhy.HOLDING: "keep {chosen}: what would gain is held too short a time to be given back",
    CapacityWhy.LIMITED: "cut {current} to {chosen}: the limits allow no more",
    CapacityWhy.BUDGET: (
        "nothing fits: {least} replicas cost more than {budget} $/h; raise budgetPerHour"
    ),
    CapacityWhy.NO_CAPACITY: "nothing fits: no pools give {least} replicas now",
    CapacityWhy.NOT_PRICED: "nothing fits: no pool has a price to trust",
    CapacityWhy.ON_SPOT: "run on {chosen}: the deadline leaves room for spot",
    CapacityWhy.STAYS_ON_SPOT: "stay on {chosen} until it is taken",
    CapacityWhy.BEHIND: "run on {chosen}: progress is behind the line and there is no spot",
    CapacityWhy.ON_DEMAND_HELD: "stay on {chosen}: leaving would cost a second start",
    CapacityWhy.SAFETY_NET: "run on {chosen} until the end: the rest of the time is needed",
    CapacityWhy.AHEAD: "wait for spot: progress is ahead of the line",
    CapacityWhy.FINISHED: "hold nothing: the work is done",
    CapacityWhy.NO_ON_DEMAND: "the deadline asks for on-demand and none can be had: {chosen}",
}


def text(
    why: CapacityWhy,
    chosen: CapacityOption,
    current: CapacityOption,
    runner_up: CapacityOption | None,
    ask: Ask,
    *,
    line: ProgressLine | None = None,
    at: DeadlineProgress | None = None,
) -> str:
    """One sentence: decision, reason, alternative, and state of the job.

    Args:
        why: The reason.
        chosen: Allocation to hold.
        current: Allocation held.
        runner_up: The next best.
        ask: Of the job.
        line: Its deadline, if any.
        at: State on the way to it.
    """
    budget = "" if ask.budget_per_hour is None else f"{ask.budget_per_hour:g}"
    sentence = _SAYS[why].format(
        chosen=_option(chosen, ask), current=_option(current, ask), least=ask.least, budget=budget
    )
    if runner_up is not None:
        sentence += f"; next {_option(runner_up, ask)}"
    if line is not None and at is not None:
        expected = at.elapsed_s * line.work_s / line.deadline_s
        left, work = line.deadline_s - at.elapsed_s, line.work_s - at.done_s
        sentence += (
            f"; {at.done_s / 3600:.2f} h done, {expected / 3600:.2f} h expected, "
            f"{left / 3600:.2f} h left for {work / 3600:.2f} h of work"
        )
    return sentence


def _option(option: CapacityOption, ask: Ask) -> str:
    if not option.shares:
        return "nothing"
    names = " + ".join(f"{share.instances} x {share.pool}" for share in option.shares)
    figures = f"{option.expected.per_hour:.2f} $/h"
    if math.isfinite(option.expected.per_work):
        figures += f", {option.expected.per_work:.3f} $ per hour of work"
    if OBJECTIVES[ask.objective].fastest:
        figures += f", {option.expected.work:.2f} h of work in the next"
    return f"{names} ({figures})"
