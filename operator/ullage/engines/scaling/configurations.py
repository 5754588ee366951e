# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cheapest configuration for a latency target: replicas, share and accelerator together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ullage.engines.scaling.pooled_queue import (
    LatencyTarget,
    PooledLoad,
    predicted_s,
    replicas_needed,
)
from ullage.engines.scaling.service_times import ServiceTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A possible replica: a share of a type of device.

    ``service`` is its service time at that share; ``cost`` its cost, in any common unit: percent of
    a device, or money per hour.
    """

    accelerator: str
    share_percent: int
    service: ServiceTime
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Objective, load, and the bounds of the number of replicas."""

    target: LatencyTarget
    load: PooledLoad
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOption:
    """A configuration with its number of replicas.

    ``predicted_s`` is the latency at the target's quantile, ``keeps`` = the target is met.
    """

    configuration: Configuration
    replicas: int
    predicted_s: float
    keeps: bool

    @property
    def cost(self) -> float:
        """Cost of all replicas."""
        return self.replicas * self.configuration.cost


def ranked(configurations: Sequence[Configuration], demand: Demand) -> list[ReplicaOption]:
    """The best option of each configuration, the best first.

    Those that meet the target come first, the cheapest first; then those that do not, with the most
    replicas, by predicted latency. Ties go to fewer replicas, then by name, so that the result is
    deterministic.

    Args:
        configurations: Possible replicas.
        demand: Target, load and bounds.
    """
    options = [_option(configuration, demand) for configuration in configurations]
    return sorted(options, key=_rank)


def _option(configuration: Configuration, demand: Demand) -> ReplicaOption:
    service, target = configuration.service, demand.target
    needed = replicas_needed(service, demand.load, target, max(1, demand.most))
    count = max(demand.least, demand.most if needed is None else needed, 1)
    return ReplicaOption(
        configuration=configuration,
        replicas=count,
        predicted_s=predicted_s(service, demand.load, count, target.quantile),
        keeps=needed is not None,
    )


def _rank(option: ReplicaOption) -> tuple[bool, float, float, int, str, int]:
    configuration = option.configuration
    late = 0.0 if option.keeps else option.predicted_s
    return (
        not option.keeps,
        late if math.isfinite(late) else math.inf,
        option.cost,
        option.replicas,
        configuration.accelerator,
        configuration.share_percent,
    )
