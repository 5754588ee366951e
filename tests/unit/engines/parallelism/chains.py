# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chains of layers for tests: drawn, and small by hand."""

from __future__ import annotations

import numpy as np

from ullage.engines.parallelism.chain import ChainProblem
from ullage.engines.parallelism.records import DeviceLinks, LayerCost, LinkSpeed

AMPLE = 1e15


def layer(number: int, seconds: float, *, weights: float = 0.0, sent: float = 0.0) -> LayerCost:
    """A layer that takes twice as long backward."""
    return LayerCost(
        name=f"layers.{number}",
        forward_s=seconds / 3,
        backward_s=2 * seconds / 3,
        activation_bytes=sent,
        parameter_bytes=weights,
    )


def links(*, in_node: int = 4, fast: float = 1e10, slow: float = 1e9) -> DeviceLinks:
    """Two speeds of links."""
    return DeviceLinks(
        device=LinkSpeed(bytes_per_s=fast, latency_s=1e-6),
        node=LinkSpeed(bytes_per_s=slow, latency_s=1e-5),
        devices=in_node,
    )


def drawn(seed: int, *, layers: int, devices: int, memory: float = AMPLE) -> ChainProblem:
    """A random chain; microbatches divide among any pipelines and fill them."""
    rng = np.random.default_rng(seed)
    costs = tuple(
        LayerCost(
            name=f"layers.{number}",
            forward_s=float(rng.uniform(0, 1)),
            backward_s=float(rng.uniform(0, 2)),
            activation_bytes=float(rng.choice([0, 1e7, 1e9]) * rng.uniform(0, 1)),
            parameter_bytes=float(rng.choice([0, 1e7, 1e9]) * rng.uniform(0, 1)),
            saved_bytes=float(rng.uniform(0, 1e9)) if rng.random() < 0.5 else None,
        )
        for number in range(layers)
    )
    return ChainProblem(
        layers=costs,
        devices=devices,
        links=links(in_node=int(rng.integers(1, 5))),
        memory_bytes=memory,
        microbatches=devices * int(rng.integers(1, 6)) * devices,
    )
