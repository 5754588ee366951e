# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Transformers and devices for tests. Dimensions of GPT models: PTD-P (SC 2021), table 1."""

from __future__ import annotations

from typing import Final

from ullage.engines.parallelism.dimensions import TransformerShape
from ullage.engines.parallelism.records import DeviceLinks, LinkSpeed
from ullage.engines.parallelism.step_time import DeviceSpeed

A100: Final = DeviceSpeed(peak_flops=312e12, bytes_per_s=2.039e12, efficiency=0.85)
NODES: Final = DeviceLinks(
    device=LinkSpeed(bytes_per_s=2.4e11, latency_s=8e-6),
    node=LinkSpeed(bytes_per_s=2.1e10, latency_s=1e-5),
    devices=8,
)
LLAMA: Final = TransformerShape(
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    ffn=28672,
    vocabulary=128256,
    sequence=8192,
    gated_ffn=True,
    biases=False,
    learned_positions=False,
    tied=False,
)


def gpt(layers: int, hidden: int, heads: int, *, sequence: int = 2048) -> TransformerShape:
    """A GPT as Megatron trained it in 2021."""
    return TransformerShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        vocabulary=51200,
        sequence=sequence,
        stored_attention=True,
    )
