# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which observations can be believed at all.

Nodes report what containers told them, so a row may be garbage without anyone's ill will. What is
dropped is counted by reason; it must never be repaired here.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Final

from ullage.api.observations import Fingerprint, Observation
from ullage.api.readers import WireError
from ullage.cluster.records.profile import SoloEntry, StepRow
from ullage.cluster.records.snapshot import GPUNodeRecord
from ullage.cluster.values.quantiles import quantile_of
from ullage.scheduling.times import CLOCK_AHEAD_MOST_S, STEP_MOST_S

STEP_MOST_MICROS: Final = 86_400_000_000
"""A step longer than a day is no step."""
RATE_MOST: Final = 1e9
"""Steps or requests a second; none come so fast."""
AMOUNT_MOST: Final = 1e15
"""Largest figure of a fingerprint: a PiB/s."""
SLOWDOWN_LEAST: Final = 0.2
SLOWDOWN_MOST: Final = 1_000.0
PERMILLE_MOST: Final = 1_050
"""Counters overshoot a little; what is above is another unit."""
MEMORY_MOST_MIB: Final = 16 * 2**20


class Dropped(StrEnum):
    """Why an observation, or a part of it, teaches nothing."""

    MALFORMED = "Malformed"
    NO_CLASS = "NoClass"
    OTHER_ACCELERATOR = "OtherAccelerator"
    """No device of the node is of that type."""
    SHARE = "Share"
    STEP_TIME = "StepTime"
    SLOWDOWN = "Slowdown"
    LATENCY = "Latency"
    """No time, or at a percentile that is none."""
    FUTURE = "Future"
    FINGERPRINT = "Fingerprint"
    """The fingerprint alone was left out."""
    NAME_TAKEN = "NameTaken"
    """Someone's profile of another class has the name that the class's would get."""
    NOBODY_LEFT = "NobodyLeft"
    """The class has no profile, and its namespace no workload: it may be gone as a whole."""


def fault(one: Observation, node: GPUNodeRecord, now: float) -> Dropped | None:
    """Why an observation is not taken; ``None`` = it is."""
    if not (one.id and one.workload_class and one.namespace):
        return Dropped.NO_CLASS
    if one.accelerator not in {device.model for device in node.devices}:
        return Dropped.OTHER_ACCELERATOR
    shares = (one.percent, *(partner.percent for partner in one.partners))
    if not all(1 <= share <= 100 for share in shares):
        return Dropped.SHARE
    if not 0 < one.step_micros <= STEP_MOST_MICROS:
        return Dropped.STEP_TIME
    if one.solo_step_micros < 0 or min(one.requests_milli, one.max_slowdown_percent) < 0:
        return Dropped.SLOWDOWN
    if not _is_latency(one):
        return Dropped.LATENCY
    slowdown = one.step_micros / one.solo_step_micros if one.solo_step_micros else 1.0
    if not SLOWDOWN_LEAST <= slowdown <= SLOWDOWN_MOST:
        return Dropped.SLOWDOWN
    if not 0 < one.at_s <= now + CLOCK_AHEAD_MOST_S:
        return Dropped.FUTURE
    return None


def _is_latency(observation: Observation) -> bool:
    """Whether the latency, if there is one, is a time at a percentile."""
    if not 0 <= observation.latency_micros <= STEP_MOST_MICROS:
        return False
    try:
        return not observation.percentile or quantile_of(observation.percentile) > 0
    except WireError:
        return False


def row_believable(one: StepRow, now: float) -> bool:
    """Whether a row of a profile can be an observation, whichever client wrote it."""
    shares = (one.share, *(partner.percent for partner in one.partners))
    rates = (one.max_slowdown, one.requests_per_s, one.latency_s)
    return (
        0 < one.step_s <= STEP_MOST_S
        and 0 <= one.at_s <= now + CLOCK_AHEAD_MOST_S
        and (one.slowdown is None or SLOWDOWN_LEAST <= one.slowdown <= SLOWDOWN_MOST)
        and all(1 <= share <= 100 for share in shares)
        and all(rate is None or 0 <= rate <= RATE_MOST for rate in rates)
    )


def entry_believable(one: SoloEntry) -> bool:
    """Whether what a profile says of a class alone can be so, whichever client wrote it."""
    asked = (getattr(one.fingerprint, field.name) for field in fields(one.fingerprint))
    return (
        1 <= one.share <= 100
        and (one.steps_per_second == 0 or 1 / STEP_MOST_S <= one.steps_per_second <= RATE_MOST)
        and 0 <= one.sm_util <= PERMILLE_MOST / 1000
        and all(value is None or 0 <= value <= AMOUNT_MOST for value in asked)
    )


def believable(print_: Fingerprint) -> bool:
    """Whether every figure of a fingerprint can be what it says."""
    permilles = (
        print_.sm_permille,
        print_.dram_permille,
        print_.tensor_permille,
        print_.fp32_permille,
        print_.fp16_permille,
        print_.fp64_permille,
        print_.occupancy_permille,
        print_.kernel_idle_permille,
        print_.duty_permille,
    )
    amounts = (
        print_.cpu_permille,
        print_.pcie_rx_kib_per_s,
        print_.pcie_tx_kib_per_s,
        print_.power_milliwatts,
    )
    return (
        all(0 <= permille <= PERMILLE_MOST for permille in permilles)
        and all(amount >= 0 for amount in amounts)
        and 0 <= print_.peak_memory_mib <= MEMORY_MOST_MIB
    )
