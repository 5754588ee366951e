# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of frameworks for the degrees of a transformer; those of schedules are in ``schedules``.

Of torchtitan 0.3.0 and Megatron-LM with core 0.16.1, read in their sources.
"""

from __future__ import annotations

from typing import Final

from ullage.engines.parallelism.dimensions import ParallelDegrees, Recomputation, TransformerShape
from ullage.engines.parallelism.records import TrainingFramework

WITH_TENSOR_RANKS: Final = frozenset({TrainingFramework.TORCHTITAN, TrainingFramework.MEGATRON})
"""Frameworks that share layers, sequences and experts by themselves."""


def degrees_fault(
    framework: TrainingFramework, shape: TransformerShape, degrees: ParallelDegrees
) -> str:
    """Reason of a framework to refuse the degrees of a model; empty = it takes them.

    Args:
        framework: The framework.
        shape: The model.
        degrees: Its spread.
    """
    if framework not in WITH_TENSOR_RANKS:
        shared = degrees.tensor * degrees.context * degrees.expert > 1
        return f"{framework} has no tensor, context or expert ranks" if shared else ""
    if framework is TrainingFramework.TORCHTITAN:
        # Decoder.Config.update_from_config refuses it
        if shape.tied and degrees.pipeline > 1:
            return "Torchtitan does not tie the output to the embedding in a pipeline"
        # its expert ranks take tensor ranks: efsdp = dp_shard * cp * tp / ep
        if shape.experts and degrees.tensor > 1:
            return "Torchtitan does not share an expert among tensor ranks"
        if degrees.recomputation is Recomputation.SELECTIVE:
            return "Torchtitan's selective policy keeps the core of attention"
    return ""
