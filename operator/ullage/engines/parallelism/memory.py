# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of each rank of a transformer: weights, gradients, optimizer state, activations.

Mixed precision Adam: 18 bytes a parameter, 6 + 12 / d with the distributed optimizer. Activations
of a layer are those of arXiv 2205.05198, equations 1 to 6: s b h (10 + 24 / t + 5 a s / (h t)), all
of it by t with sequence parallelism, without the last term under selective recomputation, 2 s b h
of full. GQA, gated FFNs and experts change the terms that they change (derived).
"""

from __future__ import annotations

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
from ullage.engines.parallelism.records import PipelineSchedule
from ullage.engines.parallelism.schedules import ahead_of_backward

WEIGHT_BYTES: Final = 2.0
"""Weights in half precision."""
GRADIENT_BYTES: Final = 4.0
"""Gradients in single precision."""
OPTIMIZER_BYTES: Final = 12.0
"""Adam's copy of the weights and two moments, in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes on each device of a rank.

    Attributes:
        weights: In half precision.
        gradients: In single precision.
        optimizer: Its part of Adam's state.
        activations: At their peak.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def state(self) -> float:
        """Weights, gradients, optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of them."""
        return self.state + self.activations


def layer_activation_bytes(shape: TransformerShape, degrees: ParallelDegrees) -> float:
    """Bytes that one layer keeps of one microbatch, by the degrees' recomputation."""
    tokens = shape.sequence / degrees.context * degrees.microbatch
    per_token = float(shape.hidden)
    spread = degrees.tensor
    apart = degrees.tensor if degrees.sequence_parallel else 1
    if degrees.recomputation is Recomputation.FULL:
        return 2 * tokens * per_token / apart
    routed = shape.active_experts
    # inputs of norms, projections and FFN, and masks of dropout: 4 + 2 + 2 + 2
    whole = 10.0 + (2.0 * (routed - 1) if shape.experts else 0.0)
    # queries and output projection's input 4, keys and values; FFN's input and output of its middle
    middle = (6 if shape.gated_ffn else 4) * shape.ffn / shape.hidden * routed
    parts = 4 + 4 * shape.kv_fraction + middle
    kept = tokens * per_token * (whole / apart + parts / spread)
    if shape.stored_attention and degrees.recomputation is Recomputation.NONE:
        kept += 5 * shape.heads * shape.sequence * tokens / spread
    return kept


def rank_memory(
    shape: TransformerShape,
    degrees: ParallelDegrees,
    microbatches: int,
    rank: int,
    layers: Sequence[int] | None = None,
) -> RankMemory:
    """Memory of one rank of the pipeline.

    Args:
        shape: The model.
        degrees: Its spread.
        microbatches: Of each pipeline in a step.
        rank: Index of the rank.
        layers: Of each rank; ``None`` = equal.

    Raises:
        ValueError: there are more stages than layers.
    """
    if layers is None:
        stages = stage_layers(shape.layers, degrees.pipeline * degrees.chunks)
        layers = rank_layers(stages, degrees.pipeline)
    first, last = rank == 0, rank == degrees.pipeline - 1
    dense, experts = rank_parameters(shape, degrees, layers[rank], first=first, last=last)
    replicas = degrees.data * degrees.context if degrees.distributed_optimizer else 1
    apart = max(1, replicas // degrees.expert)
    schedule = (
        PipelineSchedule.INTERLEAVED
        if degrees.chunks > 1
        else PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    )
    flight = ahead_of_backward(schedule, rank, degrees.pipeline, microbatches, degrees.chunks)
    kept = layer_activation_bytes(shape, degrees) * layers[rank] / degrees.chunks * flight
    if degrees.recomputation is Recomputation.FULL:
        kept += layer_activation_bytes(shape, _kept_whole(degrees))
    tokens = shape.sequence / degrees.context * degrees.microbatch
    spread = degrees.tensor if degrees.sequence_parallel else 1
    if first:
        kept += tokens * shape.hidden / spread * min(microbatches, degrees.pipeline)
    if last:
        kept += 4 * tokens * shape.hidden / spread
        kept += 4 * tokens * shape.padded_vocabulary(degrees.tensor) / degrees.tensor
    return RankMemory(
        weights=WEIGHT_BYTES * (dense + experts),
        gradients=GRADIENT_BYTES * (dense + experts),
        optimizer=OPTIMIZER_BYTES * (dense / replicas + experts / apart),
        activations=kept,
    )


def _kept_whole(degrees: ParallelDegrees) -> ParallelDegrees:
    """The degrees with nothing computed again: what one layer keeps while it is."""
    return ParallelDegrees(
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        data=degrees.data,
        context=degrees.context,
        expert=degrees.expert,
        chunks=degrees.chunks,
        microbatch=degrees.microbatch,
        sequence_parallel=degrees.sequence_parallel,
        distributed_optimizer=degrees.distributed_optimizer,
    )
