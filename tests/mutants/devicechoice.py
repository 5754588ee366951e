# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of device choice: estimates with their bounds, memory, price, and what is picked."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ENGINE: Final = "operator/ullage/engines/devicechoice"
LEARNING: Final = "operator/ullage/scheduling/learning"
UNIT: Final = "tests/unit/engines/devicechoice"

ESTIMATES: Final = ("tests/unit/scheduling/test_unmeasured_speeds_are_estimated.py",)
ADVICE: Final = ("tests/unit/scheduling/test_accelerators_are_recommended.py",)
NUMBERS: Final = ("tests/unit/scheduling/test_numbers_of_devices_are_recommended.py",)
OFFERS: Final = (f"{UNIT}/test_offers_are_ranked.py",)
FITS: Final = (f"{UNIT}/test_op_times_are_fitted.py",)
ACTS: Final = ("tests/unit/scheduling/test_device_choice_acts.py",)
GANG: Final = ("tests/unit/scheduling/test_a_gang_is_of_one_type.py",)
APART: Final = ("tests/unit/scheduling/test_a_gang_pays_for_crossing_nodes.py",)
LINE: Final = ("tests/unit/scheduling/test_the_waiting_line.py",)
STEPS: Final = (f"{UNIT}/test_unmeasured_steps_are_estimated.py",)

MUTANTS: Final = (
    Mutant(
        "no one starts where a cap breaks",
        f"{LEARNING}/device_choice.py",
        "unpriced or Standing.RULED_OUT in reason.standing",
        "unpriced or reason is not Reason.OVER_COST and Standing.RULED_OUT in reason.standing",
        ACTS,
    ),
    Mutant(
        "a cap of cost needs a price",
        f"{LEARNING}/device_choice.py",
        "unpriced = reason is Reason.PRICE_MISSING and cost.max_cost is not None",
        "unpriced = False",
        ACTS,
    ),
    Mutant(
        "nothing starts under a cap before the types were compared",
        f"{LEARNING}/device_choice.py",
        "others=NOT_COMPARED if job.cost.capped else None,",
        "others=None,",
        ACTS,
    ),
    Mutant(
        "an unknown speed is tried where no other type keeps the caps",
        f"{LEARNING}/device_choice.py",
        "another = cost.capped and any(",
        "another = cost.capped or any(",
        ACTS,
    ),
    Mutant(
        "time of a job that minimises cost is divided by cost",
        "operator/ullage/scheduling/model/device_choice.py",
        "if not self.by_cost or not known:",
        "if known or not self.by_cost:",
        ACTS,
    ),
    Mutant(
        "an elastic gang takes the recommended number at most",
        "operator/ullage/scheduling/capacity/budgets.py",
        "    if not members:",
        "    if members:",
        ACTS,
    ),
    Mutant(
        "delay counts in the recommended number",
        f"{ENGINE}/offers.py",
        "return self.cost + cost_of(self.total.value_s, self.delay_per_hour)",
        "return self.cost",
        ACTS,
    ),
    Mutant(
        "an empty cluster is counted one type at a time for a gang of one type",
        "operator/ullage/scheduling/placement/feasible.py",
        "return max(",
        "return sum(",
        GANG,
    ),
    Mutant(
        "a gang is placed on one type",
        "operator/ullage/scheduling/placement/placement.py",
        "        if not request.uniform:",
        "        if request.count:",
        GANG,
    ),
    Mutant(
        "a node of several types gives the one that serves best",
        "operator/ullage/scheduling/placement/candidates.py",
        "if node in inventory.mixed:",
        "if not inventory.nodes:",
        ACTS,
    ),
    Mutant(
        "a gang waits for fewer nodes no longer than its own patience",
        "operator/ullage/scheduling/placement/queue.py",
        "if self.view.now - attempt.waiting_since > patience_s:",
        "if self.view.now - attempt.waiting_since > 2 * patience_s:",
        APART,
    ),
    Mutant(
        "an answer about nodes holds until someone is seated",
        "operator/ullage/scheduling/placement/queue.py",
        "return number, members, self.budget, len(self.placer.occupancy.blocker)",
        "return number, members",
        APART,
    ),
    Mutant(
        "no more is held than the holder needs",
        "operator/ullage/scheduling/placement/nearest.py",
        "for place in sorted(places)[:members] for site",
        "for place in sorted(places) for site",
        LINE,
    ),
    Mutant(
        "the type that serves the holder best is held",
        "operator/ullage/scheduling/placement/nearest.py",
        "return -worth.get(model, 0), max(0, members - free), model",
        "return worth.get(model, 0), max(0, members - free), model",
        LINE,
    ),
    Mutant(
        "what a step takes beyond its operations is added",
        f"{LEARNING}/operations.py",
        "return around(compute + beyond, fit.factor)",
        "return around(compute, fit.factor)",
        ESTIMATES,
    ),
    Mutant(
        "operations on the host take their time",
        f"{ENGINE}/fit.py",
        "each = times.cpu_s if op.on_cpu else times.heavy_s(op)",
        "each = 0.0 if op.on_cpu else times.heavy_s(op)",
        FITS,
    ),
    Mutant(
        "a class without kin is not compared",
        f"{LEARNING}/estimates.py",
        "if evidence.has_kin(profile, anchor.accelerator, accelerator):",
        "if evidence.references(profile, anchor.accelerator, accelerator):",
        ESTIMATES,
    ),
    Mutant(
        "op times of a class without kin are judged by errors across families",
        f"{LEARNING}/estimates.py",
        "(name, name if known_ else family or name, ops)",
        "(name, name, ops)",
        ESTIMATES,
    ),
    Mutant(
        "a level that no run supports is no step time",
        f"{LEARNING}/recommend.py",
        "if speed is None or speed.method is Method.TYPICAL:",
        "if speed is None:",
        ADVICE,
    ),
    Mutant(
        "of devices of one type the smallest memory counts",
        f"{LEARNING}/recommend.py",
        "memory[device.model] = min(least, device.memory_mib)",
        "memory[device.model] = max(least, device.memory_mib)",
        ADVICE,
    ),
    Mutant(
        "a share pays its part",
        f"{LEARNING}/recommend.py",
        "price_per_hour=None if price is None else price * devices * part,",
        "price_per_hour=None if price is None else price * devices,",
        ADVICE,
    ),
    Mutant(
        "fewer members need more memory each",
        f"{LEARNING}/recommend.py",
        "need = known.need_bytes * own / other",
        "need = known.need_bytes",
        NUMBERS,
    ),
    Mutant(
        "bounds of other numbers widen with the ring",
        f"{ENGINE}/comm.py",
        "width = math.hypot(self.still, self.wide * apart)",
        "width = self.still",
        (UNIT,),
    ),
    Mutant(
        "another number has the bounds of the model of communication",
        f"{LEARNING}/recommend.py",
        "high_s=max(step.high_s, known.step.high_s * most),",
        "high_s=step.high_s,",
        NUMBERS,
    ),
    Mutant(
        "an interval holds for one error more than was seen",
        f"{ENGINE}/intervals.py",
        "rank = math.ceil((len(off) + 1) * level)",
        "rank = math.ceil(len(off) * level)",
        (UNIT,),
    ),
    Mutant(
        "too few errors double the widest",
        f"{ENGINE}/intervals.py",
        "return math.exp(off[-1]) * TOO_FEW_FACTOR",
        "return math.exp(off[-1])",
        (UNIT,),
    ),
    Mutant(
        "a failure holds for every device that is not larger",
        f"{ENGINE}/memory.py",
        "run.failed and run.device_bytes >= device_bytes",
        "run.failed and run.device_bytes == device_bytes",
        OFFERS,
    ),
    Mutant(
        "a container needs its context too",
        f"{ENGINE}/memory.py",
        "return judged(need + context_bytes, MemoryEvidence.ESTIMATE)",
        "return judged(need, MemoryEvidence.ESTIMATE)",
        OFFERS,
    ),
    Mutant(
        "an offer is as good as the best only where their bounds overlap",
        f"{ENGINE}/choose.py",
        "(row.value(aim) <= limit and _overlap(row, best, aim))",
        "row.value(aim) <= limit",
        OFFERS,
    ),
    Mutant(
        "the slower of arithmetic and memory binds",
        f"{ENGINE}/roofline.py",
        "max(arithmetic, moved)",
        "min(arithmetic, moved)",
        STEPS,
    ),
    Mutant(
        "rows that repeat one another make no sure transfer",
        f"{ENGINE}/transfer.py",
        "return max(spread, LEAST_SPREAD)",
        "return spread",
        STEPS,
    ),
)
