# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of observations: impossible rows are dropped.

Nodes report the values of containers, so rows are untrusted. Dropped rows are counted by reason and
must never be repaired here.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Final

from ullage.api.observations import Fingerprint, Observation
from ullage.api.readers import WireError
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import SoloEntry, StepRow
from ullage.cluster.values.quantiles import quantile_of
from ullage.scheduling.times import CLOCK_AHEAD_MOST_S, STEP_MOST_S

STEP_MOST_MICROS: Final = 86_400_000_000
"""Upper bound of a step: one day."""
RATE_MOST: Final = 1e9
"""Maximum of steps or requests per second."""
AMOUNT_MOST: Final = 1e15
"""Largest figure of a fingerprint: a PiB/s."""
SLOWDOWN_LEAST: Final = 0.2
SLOWDOWN_MOST: Final = 1_000.0
PERMILLE_MOST: Final = 1_050
"""Counters overshoot slightly; a larger value is in another unit."""
MEMORY_MOST_MIB: Final = 16 * 2**20


class Dropped(StrEnum):
    """Reason why an observation, or a part of it, is dropped."""

    MALFORMED = "Malformed"
    NO_CLASS = "NoClass"
    OTHER_ACCELERATOR = "OtherAccelerator"
    """No device of the node is of that type."""
    SHARE = "Share"
    STEP_TIME = "StepTime"
    SLOWDOWN = "Slowdown"
    LATENCY = "Latency"
    """Not a time, or not a percentile."""
    FUTURE = "Future"
    FINGERPRINT = "Fingerprint"
    """Only the fingerprint was left out."""
    NAME_TAKEN = "NameTaken"
    """A profile of another class has the name of the class's profile."""
    NOBODY_LEFT = "NobodyLeft"
    """The class has no profile, and its namespace no workload: both may have been deleted."""


def fault(observation: Observation, node: GPUNodeRecord, now: float) -> Dropped | None:
    """Reason why an observation is dropped; ``None`` = it is accepted."""
    if not (observation.id and observation.workload_class and observation.namespace):
        return Dropped.NO_CLASS
    if observation.accelerator not in {device.model for device in node.devices}:
        return Dropped.OTHER_ACCELERATOR
    shares = (observation.percent, *(partner.percent for partner in observation.partners))
    if not all(1 <= share <= 100 for share in shares):
        return Dropped.SHARE
    if not 0 < observation.step_micros <= STEP_MOST_MICROS:
        return Dropped.STEP_TIME
    if (
        observation.solo_step_micros < 0
        or min(observation.requests_milli, observation.max_slowdown_percent) < 0
    ):
        return Dropped.SLOWDOWN
    if not _is_latency(observation):
        return Dropped.LATENCY
    slowdown = (
        observation.step_micros / observation.solo_step_micros
        if observation.solo_step_micros
        else 1.0
    )
    if not SLOWDOWN_LEAST <= slowdown <= SLOWDOWN_MOST:
        return Dropped.SLOWDOWN
    if not 0 < observation.at_s <= now + CLOCK_AHEAD_MOST_S:
        return Dropped.FUTURE
    return None


def _is_latency(observation: Observation) -> bool:
    """True when the latency, if any, is a time at a percentile."""
    if not 0 <= observation.latency_micros <= STEP_MOST_MICROS:
        return False
    try:
        return not observation.percentile or quantile_of(observation.percentile) > 0
    except WireError:
        return False


def row_believable(row: StepRow, now: float) -> bool:
    """True when a profile's row is a valid observation, whichever client wrote it."""
    shares = (row.share, *(partner.percent for partner in row.partners))
    rates = (row.max_slowdown, row.requests_per_s, row.latency_s)
    return (
        0 < row.step_s <= STEP_MOST_S
        and 0 <= row.at_s <= now + CLOCK_AHEAD_MOST_S
        and (row.slowdown is None or SLOWDOWN_LEAST <= row.slowdown <= SLOWDOWN_MOST)
        and all(1 <= share <= 100 for share in shares)
        and all(rate is None or 0 <= rate <= RATE_MOST for rate in rates)
    )


def entry_believable(entry: SoloEntry) -> bool:
    """True when a profile's entry of a class alone is valid, whichever client wrote it."""
    asked = (getattr(entry.fingerprint, field.name) for field in fields(entry.fingerprint))
    return (
        1 <= entry.share <= 100
        and (entry.steps_per_second == 0 or 1 / STEP_MOST_S <= entry.steps_per_second <= RATE_MOST)
        and 0 <= entry.sm_util <= PERMILLE_MOST / 1000
        and all(value is None or 0 <= value <= AMOUNT_MOST for value in asked)
    )


def believable(print_: Fingerprint) -> bool:
    """True when every figure of a fingerprint is valid."""
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
