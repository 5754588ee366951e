# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters and memory of transformers are those that papers state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ullage.engines.parallelism.dimensions import (
    ParallelDegrees,
    Recomputation,
    TransformerShape,
    rank_layers,
    stage_layers,
)
from ullage.engines.parallelism.memory import layer_activation_bytes, rank_memory
from ullage.engines.parallelism.records import PipelineSchedule
from ullage.engines.parallelism.schedules import ahead_of_backward
from unit.engines.parallelism.transformers import LLAMA, gpt

GIB = 2**30
# layers, hidden, heads, billions: PTD-P (SC 2021), table 1
PUBLISHED = [
    (24, 2304, 24, 1.7),
    (30, 3072, 32, 3.6),
    (36, 4096, 32, 7.5),
    (40, 6144, 48, 18.4),
    (48, 8192, 64, 39.1),
    (60, 10240, 80, 76.1),
    (80, 12288, 96, 145.6),
    (96, 16384, 128, 310.1),
    (105, 20480, 128, 529.6),
    (128, 25600, 160, 1008.0),
]
# GiB of a device: arXiv 2205.05198, figure 1; without embedding and output
FIGURE_1 = [
    ("22B", gpt(48, 6144, 64), 1, 1, 4, 45.5625, 59.25, 9.5625),
    ("175B", gpt(96, 12288, 96), 8, 3, 1, 45.5625, 66.84375, 12.3515625),
    ("530B", gpt(105, 20480, 128), 35, 3, 1, 31.640625, 114.0234375, 23.076171875),
    ("1T", gpt(128, 25600, 160), 64, 1, 1, 32.958984375, 131.25, 26.5625),
]


@pytest.mark.parametrize(("layers", "hidden", "heads", "billions"), PUBLISHED)
def test_parameters_are_those_of_the_table(
    layers: int, hidden: int, heads: int, billions: float
) -> None:
    shape = gpt(layers, hidden, heads)
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.1)
    formula = 1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden)
    assert shape.parameters == pytest.approx(12 * layers * hidden**2 * formula, rel=1e-9)


def test_grouped_gated_models_have_the_published_size() -> None:
    assert LLAMA.parameters / 1e9 == pytest.approx(70.55, abs=0.01)
    # Mixtral 8x7B, arXiv 2401.04088, table 1: 46.7 billion
    mixtral = replace(
        LLAMA,
        layers=32,
        hidden=4096,
        heads=32,
        ffn=14336,
        vocabulary=32000,
        experts=8,
        active_experts=2,
    )
    assert mixtral.parameters / 1e9 == pytest.approx(46.7, abs=0.05)


@pytest.mark.parametrize(
    ("shape", "pipeline", "chunks", "microbatch", "state", "kept", "selective"),
    [row[1:] for row in FIGURE_1],
    ids=[row[0] for row in FIGURE_1],
)
def test_memory_is_that_of_the_figure(
    shape: TransformerShape,
    pipeline: int,
    chunks: int,
    microbatch: int,
    state: float,
    kept: float,
    selective: float,
) -> None:
    plain = ParallelDegrees(
        tensor=8,
        pipeline=pipeline,
        chunks=chunks,
        microbatch=microbatch,
        sequence_parallel=False,
        distributed_optimizer=False,
    )
    schedule = (
        PipelineSchedule.INTERLEAVED if chunks > 1 else PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    )
    flight = ahead_of_backward(schedule, 0, pipeline, 8 * pipeline, chunks)
    layers = flight * shape.layers / pipeline / chunks
    assert layers * layer_activation_bytes(shape, plain) / GIB == pytest.approx(kept, rel=0.025)
    shared = replace(plain, recomputation=Recomputation.SELECTIVE, sequence_parallel=True)
    short = layers * layer_activation_bytes(shape, shared) / GIB
    assert short == pytest.approx(selective, rel=0.025)
    bare = replace(shape, vocabulary=1, learned_positions=False)
    assert rank_memory(bare, plain, 8 * pipeline, 0).state / GIB == pytest.approx(state, rel=0.01)
    whole = rank_memory(shape, plain, 8 * pipeline, 0)
    assert whole.activations > layers * layer_activation_bytes(shape, plain)


def test_what_is_computed_again_or_shared_is_not_kept() -> None:
    shape, degrees = gpt(24, 2304, 24), ParallelDegrees(tensor=2, pipeline=2, data=4)
    needs = [
        rank_memory(shape, replace(degrees, recomputation=kind), 8, 0).activations
        for kind in (Recomputation.NONE, Recomputation.SELECTIVE, Recomputation.FULL)
    ]
    assert needs == sorted(needs, reverse=True)
    own = rank_memory(shape, replace(degrees, distributed_optimizer=False), 8, 0).state
    assert rank_memory(shape, degrees, 8, 0).state == pytest.approx(own * (6 + 12 / 4) / 18)
    halves = rank_memory(shape, replace(degrees, context=2), 8, 0).activations
    assert halves == pytest.approx(needs[0] / 2)
    experts = replace(shape, experts=8, active_experts=2, tied=True)
    shared = rank_memory(experts, replace(degrees, expert=4), 8, 0)
    assert shared.state < rank_memory(experts, degrees, 8, 0).state


def test_stages_are_equal_but_for_inner_ones() -> None:
    assert stage_layers(8, 4) == (2, 2, 2, 2)
    assert stage_layers(40, 16) == (2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2)
    assert stage_layers(7, 4) == (2, 2, 2, 1)
    assert stage_layers(5, 1) == (5,)
    assert rank_layers((1, 2, 3, 4), 2) == (4, 6)
    with pytest.raises(ValueError, match="not 4 stages"):
        stage_layers(3, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": 0},
        {"layers": 10**6},
        {"heads": 7},
        {"kv_heads": 5},
        {"vocabulary": 0},
        {"sequence": 2**40},
        {"hidden": True},
        {"experts": 2, "active_experts": 3},
    ],
)
def test_shapes_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|divide|active"):
        replace(LLAMA, **wrong)


def test_vocabularies_are_padded_for_the_tensor_ranks() -> None:
    assert gpt(24, 2304, 24).padded_vocabulary(8) == 51200
    assert replace(LLAMA, vocabulary=1).padded_vocabulary(4) == 512
    with pytest.raises(ValueError, match="divide"):
        ParallelDegrees(data=3, microbatch=2).microbatches(8)
    with pytest.raises(ValueError, match="expert ranks"):
        ParallelDegrees(data=3, expert=2)
