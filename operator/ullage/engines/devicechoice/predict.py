# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of a step, of the training and its price from an op table, term by term.

Batches are per device: an epoch on k devices has ceil(samples / (k * batch)) steps. It must never
say how many epochs a model needs: the global batch changes that, and no time model sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.devicechoice.features import Op
from ullage.engines.devicechoice.fit import OpTimes
from ullage.engines.devicechoice.intervals import Interval, around

S_PER_HOUR: Final = 3600.0
EXTRAPOLATED_FACTOR: Final = 1.5
"""Intervals widen by this where an op is larger than any that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Where the seconds of a step go.

    Attributes:
        heavy_s: Ops with a fit.
        light_s: Ops that count as a median.
        cpu_s: Ops on the host.
        sync_s: Exchange between devices.
        extrapolated: Ops larger than any measured one of their kind.
    """

    heavy_s: float
    light_s: float
    cpu_s: float
    sync_s: float
    extrapolated: int = 0

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.heavy_s + self.light_s + self.cpu_s + self.sync_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of a training.

    Attributes:
        samples: Samples of an epoch.
        epochs: Epochs.
        batch_per_gpu: Samples of a step on each device.
    """

    samples: int
    epochs: int
    batch_per_gpu: int

    def __post_init__(self) -> None:
        if min(self.samples, self.epochs, self.batch_per_gpu) < 1:
            raise ValueError("samples, epochs and batch_per_gpu must be at least 1")

    def steps(self, gpus: int) -> int:
        """Steps of the whole training on ``gpus`` devices.

        Raises:
            ValueError: there is no device.
        """
        if gpus < 1:
            raise ValueError(f"gpus must be at least 1, not {gpus}")
        return self.epochs * math.ceil(self.samples / (gpus * self.batch_per_gpu))


def step_terms(times: OpTimes, ops: Sequence[Op], *, sync_s: float = 0.0) -> Terms:
    """The terms of a step on the type of device that ``times`` was fitted on.

    Args:
        times: Fitted op times.
        ops: Op table for the batch of one device.
        sync_s: Term C for the number of devices, seconds; 0 for one.
    """
    heavy = light = cpu = 0.0
    extrapolated = 0
    for op in ops:
        line = times.line(op)
        if op.on_cpu:
            cpu += op.count * times.cpu_s
        elif line is None:
            light += op.count * times.light_s
        else:
            heavy += op.count * (times.heavy_s(op) or 0.0)
            extrapolated += times.design.row(op)[1] > line.largest_bytes
    return Terms(
        heavy_s=heavy, light_s=light, cpu_s=cpu, sync_s=max(0.0, sync_s), extrapolated=extrapolated
    )


def step_interval(terms: Terms, factor: float) -> Interval:
    """The step's interval from left-out errors, wider where ops are larger than any measured.

    Args:
        terms: Of one step, seconds.
        factor: From ``factor_of``, at least 1.

    Raises:
        ValueError: the factor is below 1.
    """
    wide = factor * (EXTRAPOLATED_FACTOR if terms.extrapolated else 1.0)
    return around(terms.step_s, wide)


def training_interval(step: Interval, work: Work, gpus: int) -> Interval:
    """Seconds of the whole training on ``gpus`` devices.

    Args:
        step: Seconds of one step.
        work: Samples, batch and epochs.
        gpus: Devices.
    """
    return step.times(work.steps(gpus))


def cost_of(total_s: float, price_per_hour: float) -> float:
    """Price of the whole offer for the time, in the price's currency.

    Args:
        total_s: Seconds.
        price_per_hour: Of ALL devices of the offer.

    Raises:
        ValueError: the price is negative or not finite.
    """
    if price_per_hour < 0 or not math.isfinite(price_per_hour):
        raise ValueError(f"price per hour must be finite and not negative, not {price_per_hour}")
    return total_s / S_PER_HOUR * price_per_hour
