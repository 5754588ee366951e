# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Dimensions of a transformer, how it is spread over devices, and how many parameters each holds.

PTD-P (SC 2021, section 5.1): P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)) is what these
counts give for biases, learned positions and a tied output; GQA, gated FFNs, experts: derived.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.engines.parallelism.records import MOST_DEVICES, MOST_MICROBATCHES, whole
from ullage.engines.parallelism.schedules import MOST_CHUNKS

VOCABULARY_MULTIPLE: Final = 128
"""Vocabularies are padded to this times the tensor degree, as Megatron does."""
MOST_WIDE: Final = 2**20
MOST_DEEP: Final = 2_048
MOST_TOKENS: Final = 2**27


class Recomputation(StrEnum):
    """Activations that are computed again in the backward pass instead of being kept."""

    NONE = "None"
    SELECTIVE = "Selective"
    """The core of attention (arXiv 2205.05198, section 5)."""
    FULL = "Full"
    """Each layer, from its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """A decoder.

    Attributes:
        layers: Transformer layers.
        hidden: Width.
        heads: Query heads.
        kv_heads: Key and value heads; below ``heads`` = grouped-query attention.
        ffn: Width inside of the FFN, of each expert.
        vocabulary: Tokens that it knows.
        sequence: Tokens of a sample.
        gated_ffn: Two input projections (SwiGLU).
        experts: FFNs of each layer; 0 = one that takes all tokens.
        active_experts: Experts that take each token.
        biases: Of linear layers and norms.
        learned_positions: A table of the sequence's length.
        tied: The output is the embedding.
        stored_attention: Scores are kept, not computed in tiles (FlashAttention).

    Raises:
        ValueError: a number is out of range, or one does not divide another.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    gated_ffn: bool = False
    experts: int = 0
    active_experts: int = 1
    biases: bool = True
    learned_positions: bool = True
    tied: bool = True
    stored_attention: bool = False

    def __post_init__(self) -> None:
        whole(self.layers, "layers", most=MOST_DEEP)
        for what in ("hidden", "heads", "kv_heads", "ffn", "active_experts"):
            whole(getattr(self, what), what, most=MOST_WIDE)
        whole(self.experts, "experts", most=MOST_WIDE, least=0)
        for what in ("vocabulary", "sequence"):
            whole(getattr(self, what), what, most=MOST_TOKENS)
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.hidden}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} KV heads do not divide {self.heads} heads")
        if self.active_experts > max(1, self.experts):
            raise ValueError(f"{self.active_experts} of {self.experts} experts cannot be active")

    @property
    def kv_fraction(self) -> float:
        """Width of keys beside that of queries."""
        return self.kv_heads / self.heads

    @property
    def attention_parameters(self) -> int:
        """Of one layer, norms included."""
        keys = 2 * self.hidden * self.kv_heads // self.heads
        projections = self.hidden * (2 * self.hidden + keys)
        biases = 2 * self.hidden + keys if self.biases else 0
        return projections + biases + self.norm_parameters

    @property
    def norm_parameters(self) -> int:
        """Of the two norms of a layer."""
        return 2 * self.hidden * (2 if self.biases else 1)

    @property
    def ffn_parameters(self) -> int:
        """Of one FFN, an expert's or the only one."""
        inner = 2 if self.gated_ffn else 1
        biases = inner * self.ffn + self.hidden if self.biases else 0
        return (inner + 1) * self.hidden * self.ffn + biases

    @property
    def router_parameters(self) -> int:
        """Of the choice of experts in a layer."""
        return self.hidden * self.experts

    @property
    def parameters(self) -> int:
        """Of the whole model, each once and without padding; the last norm is left out."""
        layer = self.attention_parameters + self.router_parameters
        layer += max(1, self.experts) * self.ffn_parameters
        tables = self.vocabulary * (1 if self.tied else 2)
        tables += self.sequence if self.learned_positions else 0
        return self.layers * layer + tables * self.hidden

    def padded_vocabulary(self, tensor: int) -> int:
        """Vocabulary as it is held with so many tensor ranks."""
        multiple = VOCABULARY_MULTIPLE * tensor
        return math.ceil(self.vocabulary / multiple) * multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelDegrees:
    """A transformer over devices.

    Attributes:
        tensor: Devices that share each layer.
        pipeline: Ranks of a pipeline.
        data: Replicas.
        context: Devices that share a sequence.
        expert: Devices of a replica group that share the experts; divides ``data``.
        chunks: Stages on each rank.
        microbatch: Samples.
        recomputation: Kept or computed again.
        sequence_parallel: Norms and dropout are shared by the tensor ranks, too.
        distributed_optimizer: Its state is shared by the replicas.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    chunks: int = 1
    microbatch: int = 1
    recomputation: Recomputation = Recomputation.NONE
    sequence_parallel: bool = True
    distributed_optimizer: bool = True

    def __post_init__(self) -> None:
        for what in ("tensor", "pipeline", "data", "context", "expert"):
            whole(getattr(self, what), f"the {what} degree", most=MOST_DEVICES)
        whole(self.chunks, "chunks of a rank", most=MOST_CHUNKS)
        whole(self.microbatch, "samples of a microbatch", most=MOST_MICROBATCHES)
        if self.data * self.context % self.expert:
            raise ValueError(f"{self.expert} expert ranks do not divide {self.data} replicas")

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tensor * self.pipeline * self.data * self.context

    def microbatches(self, batch: int) -> int:
        """Microbatches of each pipeline in a step of so many samples.

        Raises:
            ValueError: they do not divide the batch.
        """
        number, rest = divmod(batch, self.data * self.microbatch)
        if rest or not number:
            raise ValueError(
                f"{self.data} replicas of microbatches of {self.microbatch} do not divide {batch}"
            )
        return number


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage, equal but for a remainder.

    The remainder goes to inner stages first, then to the first stage, last to the one that has the
    output, whose time is that of one to several layers.

    Raises:
        ValueError: a stage would have none.
    """
    if stages > layers:
        raise ValueError(f"{layers} layers are not {stages} stages")
    each, rest = divmod(layers, stages)
    order = [*range(1, stages - 1), 0, stages - 1] if stages > 1 else [0]
    more = set(order[:rest])
    return tuple(each + (stage in more) for stage in range(stages))


def rank_layers(stages: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """Layers of each rank, which has every ``ranks``-th stage."""
    return tuple(sum(stages[rank::ranks]) for rank in range(ranks))


def rank_parameters(
    shape: TransformerShape, degrees: ParallelDegrees, layers: int, *, first: bool, last: bool
) -> tuple[float, float]:
    """Parameters of one device: those that all replicas hold, and those of its experts.

    Args:
        shape: The model.
        degrees: Its spread.
        layers: Layers of the rank.
        first: It has the embedding.
        last: It has the output; a tied one is a second copy in a pipeline.
    """
    tensor = degrees.tensor
    dense = float(shape.router_parameters + shape.norm_parameters)
    dense += (shape.attention_parameters - shape.norm_parameters) / tensor
    experts = 0.0
    if shape.experts:
        experts = shape.ffn_parameters * shape.experts / degrees.expert / tensor
    else:
        dense += shape.ffn_parameters / tensor
    table = shape.padded_vocabulary(tensor) * shape.hidden / tensor
    tables = 0.0
    if first:
        tables += table + (shape.sequence * shape.hidden if shape.learned_positions else 0)
    if last and (not shape.tied or degrees.pipeline > 1):
        tables += table
    return layers * dense + tables, layers * experts
