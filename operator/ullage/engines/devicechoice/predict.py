# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts the time of a step, of the training and its price from an op table, term by term.

Batches are per device: an epoch on k devices has ceil(samples / (k * batch)) steps. It must never
predict the number of epochs: it changes with the global batch, and no time model sees it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.engines.devicechoice.intervals import Interval

S_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWork:
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


def training_interval(step: Interval, work: TrainingWork, gpus: int) -> Interval:
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
