# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Step time of a transformer over devices (derived, beside PTD-P, SC 2021, section 3).

A matrix product takes max(FLOPs / (E * peak * n / (n + 96)), bytes / bandwidth), n its smallest
dimension: E is the one constant that is fitted to a type of device. Other kernels take the bytes
that they move. Transfers come from the links. Ranks are numbered tensor, context, data, pipeline,
the first innermost. Nothing is taken to hide behind anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.parallelism.dimensions import (
    ParallelDegrees,
    Recomputation,
    TransformerShape,
    rank_layers,
    rank_parameters,
    stage_layers,
)
from ullage.engines.parallelism.records import DeviceLinks, LinkSpeed, positive

HALF: Final = 2
"""Bytes of a number in half precision."""
SMALL_DIMENSION: Final = 96.0
"""A product whose smallest dimension is this has half of the full efficiency."""
STREAMING: Final = 0.8
"""Part of the memory's bandwidth that kernels reach which only move bytes."""
OPTIMIZER_TRAFFIC: Final = 38.0
"""Bytes that Adam moves per parameter: reads gradients, weights and moments 16, writes 14, clears
and measures the gradients 8."""
ACCUMULATION: Final = 8.0
"""Bytes to add to a gradient in single precision, for each microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpeed:
    """A type of device.

    Attributes:
        peak_flops: Of matrix products in half precision.
        bytes_per_s: Of its memory.
        efficiency: E, part of the peak that large products reach.

    Raises:
        ValueError: a figure is not above 0.
    """

    peak_flops: float
    bytes_per_s: float
    efficiency: float = 0.7

    def __post_init__(self) -> None:
        positive(self.peak_flops, "peak of a device")
        positive(self.bytes_per_s, "bandwidth of a device's memory")
        positive(self.efficiency, "efficiency of a device")

    def product_s(self, rows: float, inner: float, columns: float, times: float = 1.0) -> float:
        """Seconds of so many products of rows x inner by inner x columns."""
        smallest = min(rows, inner, columns)
        rate = self.efficiency * self.peak_flops * smallest / (smallest + SMALL_DIMENSION)
        moved = HALF * (rows * inner + inner * columns + rows * columns)
        return times * max(
            2 * rows * inner * columns / rate, moved / (STREAMING * self.bytes_per_s)
        )

    def moved_s(self, size: float) -> float:
        """Seconds of kernels that move so many bytes."""
        return size / (STREAMING * self.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds of a microbatch in a layer, recomputation in the backward pass.

    Attributes:
        forward_s: Computation.
        backward_s: Computation.
        traffic_s: Tensor, context and expert ranks wait for each other.
    """

    forward_s: float
    backward_s: float
    traffic_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.forward_s + self.backward_s + self.traffic_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """A predicted step and its parts, which add up to it.

    Attributes:
        step_s: The step.
        compute_s: Of the slowest rank, with recomputation.
        tensor_s: Waits for tensor, context and expert ranks.
        pipeline_s: Sends of the slowest rank.
        bubble_s: Waits for other stages.
        gradient_s: All-reduce of the gradients.
        optimizer_s: Update of the weights.
    """

    step_s: float
    compute_s: float
    tensor_s: float
    pipeline_s: float
    bubble_s: float
    gradient_s: float
    optimizer_s: float


def layer_time(
    shape: TransformerShape, degrees: ParallelDegrees, speed: DeviceSpeed, links: DeviceLinks
) -> LayerTime:
    """Time of one layer; arguments of :func:`step_estimate`."""
    tensor, tokens = degrees.tensor, shape.sequence / degrees.context * degrees.microbatch
    core_s, core_back_s = _attention_core(shape, degrees, speed)
    hidden, inner = shape.hidden, 2 if shape.gated_ffn else 1
    routed = tokens * shape.active_experts
    products = speed.product_s(tokens, hidden, hidden * (1 + 2 * shape.kv_fraction) / tensor)
    products += speed.product_s(tokens, hidden / tensor, hidden)
    sharing = max(1.0, shape.experts / degrees.expert)
    products += speed.product_s(routed / sharing, hidden, inner * shape.ffn / tensor, sharing)
    products += speed.product_s(routed / sharing, shape.ffn / tensor, hidden, sharing)
    apart = tensor if degrees.sequence_parallel else 1
    # norms 2 * 4 and additions with dropout 2 * 7, then their gradients 2 * 6 and 2 * 11
    norms_s = speed.moved_s(22 * tokens * hidden / apart)
    norms_back_s = speed.moved_s(34 * tokens * hidden / apart)
    middle = routed * shape.ffn / tensor
    middle_s = speed.moved_s((6 if shape.gated_ffn else 4) * middle)
    middle_back_s = speed.moved_s((10 if shape.gated_ffn else 6) * middle)
    parameters = (shape.attention_parameters + shape.ffn_parameters * sharing) / tensor
    forward = products + core_s + norms_s + middle_s
    backward = 2 * products + core_back_s + norms_back_s + middle_back_s
    backward += speed.moved_s(ACCUMULATION * parameters)
    traffic, again = _layer_traffic(shape, degrees, links)
    match degrees.recomputation:
        case Recomputation.FULL:
            backward, traffic = backward + forward, traffic + again
        case Recomputation.SELECTIVE:
            backward += core_s if shape.stored_attention else 0.0
        case Recomputation.NONE:
            pass
    return LayerTime(forward_s=forward, backward_s=backward, traffic_s=traffic)


def _attention_core(
    shape: TransformerShape, degrees: ParallelDegrees, speed: DeviceSpeed
) -> tuple[float, float]:
    """Scores, softmax and their use, forward and backward."""
    per_head = shape.hidden / shape.heads
    queries = shape.sequence / degrees.context
    batched = degrees.microbatch * shape.heads / degrees.tensor
    products = speed.product_s(queries, per_head, shape.sequence, batched)
    products += speed.product_s(queries, shape.sequence, per_head, batched)
    if not shape.stored_attention:
        # tiles above the diagonal are left out; the backward pass computes the scores again
        return products / 2, 5 / 4 * products
    scores = batched * queries * shape.sequence
    return products + speed.moved_s(9 * scores), 2 * products + speed.moved_s(11 * scores)


def _layer_traffic(
    shape: TransformerShape, degrees: ParallelDegrees, links: DeviceLinks
) -> tuple[float, float]:
    """Waits of both passes of a layer, and those of one more forward pass."""
    tokens = shape.sequence / degrees.context * degrees.microbatch
    size = HALF * tokens * shape.hidden
    link = _link(links, degrees.tensor)
    gather = link.gather_s(size, degrees.tensor)
    # two all-reduces each way; in sequence parallelism two more gathers of inputs backward
    forward, backward = 4 * gather, (6 if degrees.sequence_parallel else 4) * gather
    if degrees.context > 1:
        ring = _link(links, degrees.tensor * degrees.context)
        passed = 2 * size * shape.kv_fraction / degrees.tensor
        forward += (degrees.context - 1) * ring.send_s(passed)
        backward += 2 * (degrees.context - 1) * ring.send_s(passed)
    if degrees.expert > 1:
        ring = _link(links, degrees.tensor * degrees.expert)
        spread = degrees.tensor if degrees.sequence_parallel else 1
        sent = size * shape.active_experts * (1 - 1 / degrees.expert) / spread
        forward += 2 * ring.send_s(sent)
        backward += 2 * ring.send_s(sent)
    return forward + backward, forward


def _link(links: DeviceLinks, devices: int) -> LinkSpeed:
    return links.between(0, devices - 1)


def step_estimate(
    shape: TransformerShape,
    degrees: ParallelDegrees,
    speed: DeviceSpeed,
    links: DeviceLinks,
    batch: int,
    layer: LayerTime | None = None,
    layers: Sequence[int] | None = None,
) -> StepEstimate:
    """Predict a step.

    Args:
        shape: The model.
        degrees: Its spread.
        speed: Of the devices.
        links: Between them.
        batch: Samples of a step.
        layer: Of :func:`layer_time`, for those who have it.
        layers: Of each rank; ``None`` = equal.

    Raises:
        ValueError: the degrees do not divide the batch, or there are more stages than layers.
    """
    microbatches = degrees.microbatches(batch)
    ranks, chunks = degrees.pipeline, degrees.chunks
    if layers is None:
        layers = rank_layers(stage_layers(shape.layers, ranks * chunks), ranks)
    layer = layer or layer_time(shape, degrees, speed, links)
    send_s = 0.0
    tokens = shape.sequence / degrees.context * degrees.microbatch
    if ranks > 1:
        # tensor ranks send a part each; a boundary of every chunk, both ways
        boundary = _link(links, degrees.devices)
        send_s = 2 * chunks * boundary.send_s(HALF * tokens * shape.hidden / degrees.tensor)
    ends = [0.0] * ranks
    ends[0] += speed.moved_s(8 * tokens * shape.hidden)
    ends[-1] += _output_s(shape, degrees, speed)
    seconds = [number * layer.seconds + end for number, end in zip(layers, ends, strict=True)]
    slowest = max(range(ranks), key=seconds.__getitem__)
    rank_s = seconds[slowest] + send_s
    total = math.fsum(seconds) + ranks * send_s
    bubble = (total - rank_s) / chunks
    gradient, optimizer = _update_s(shape, degrees, speed, links, layers)
    traffic = microbatches * layers[slowest] * layer.traffic_s
    return StepEstimate(
        step_s=microbatches * rank_s + bubble + gradient + optimizer,
        compute_s=microbatches * seconds[slowest] - traffic,
        tensor_s=traffic,
        pipeline_s=microbatches * send_s,
        bubble_s=bubble,
        gradient_s=gradient,
        optimizer_s=optimizer,
    )


def _output_s(shape: TransformerShape, degrees: ParallelDegrees, speed: DeviceSpeed) -> float:
    """The output's product and the loss, both passes."""
    tokens = shape.sequence / degrees.context * degrees.microbatch
    own = shape.padded_vocabulary(degrees.tensor) / degrees.tensor
    # logits in single precision: loss reads and writes, backward the same
    return 3 * speed.product_s(tokens, shape.hidden, own) + speed.moved_s(20 * tokens * own)


def _update_s(
    shape: TransformerShape,
    degrees: ParallelDegrees,
    speed: DeviceSpeed,
    links: DeviceLinks,
    layers: Sequence[int],
) -> tuple[float, float]:
    """All-reduce of the gradients and update of the rank that has most parameters."""
    held = [
        sum(
            rank_parameters(
                shape, degrees, layers[rank], first=rank == 0, last=rank == degrees.pipeline - 1
            )
        )
        for rank in {0, degrees.pipeline // 2, degrees.pipeline - 1}
    ]
    parameters = max(held)
    replicas = degrees.data * degrees.context
    ring = _link(links, degrees.tensor * replicas)
    # NCCL's channels: the members of a ring in one node send over the links of all of them
    beside = max(1, links.devices // (degrees.tensor * degrees.context))
    if ring is links.node and beside > 1:
        passed = min(links.device.bytes_per_s, beside * ring.bytes_per_s)
        ring = LinkSpeed(bytes_per_s=max(ring.bytes_per_s, passed), latency_s=ring.latency_s)
    if not degrees.distributed_optimizer:
        reduced = ring.all_reduce_s(4 * parameters, replicas)
        return reduced, speed.moved_s(OPTIMIZER_TRAFFIC * parameters)
    reduced = ring.gather_s(4 * parameters, replicas) + ring.gather_s(HALF * parameters, replicas)
    return reduced, speed.moved_s(OPTIMIZER_TRAFFIC * parameters / replicas)
