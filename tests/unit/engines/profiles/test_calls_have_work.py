# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes, parameters and arithmetic of operations follow from the arguments that traces tell.

``kineto-torch-cpu.json`` is one training step of a small network under PyTorch 2.15, without the
events that compute nothing. Its FLOPs are those that PyTorch's own counter gives, except for the
weights' gradients of grouped convolutions, where that counter takes every channel for each group.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.words import Kernel
from ullage.engines.profiles.calls import (
    BROADCAST,
    CONVOLUTIONS,
    FACTORS,
    FIRST,
    POOLS,
    OpCall,
    OpWork,
    work_of,
)
from ullage.engines.profiles.convolutions import Convolution
from ullage.engines.profiles.kineto import read_kineto

TORCH = (Path(__file__).parents[3] / "data" / "traces" / "kineto-torch-cpu.json").read_text("utf-8")
FORWARD = 113_606_656
WEIGHT_ONLY = 38_535_168
"""Of the first convolution, whose input has no gradient."""


def work(name: str, *arguments: object, number: str = "float") -> OpWork:
    """The work of a call: tensors as tuples of sizes, values as the texts of a Kineto trace."""
    shapes = [list(one) if isinstance(one, tuple) else [] for one in arguments]
    types = [number if isinstance(one, tuple) else "" for one in arguments]
    values = ["" if isinstance(one, tuple) or one is None else str(one) for one in arguments]
    return work_of(OpCall.of(name, shapes, types, values))


def total(name: str) -> float:
    return sum((op.flops or 0) * op.count for op in read_kineto(TORCH).ops if name in op.type)


def test_the_arithmetic_of_a_real_trace_is_what_its_framework_counts() -> None:
    backward = total("conv2d_backward") + total("convolution_backward")
    assert total("conv") - backward == FORWARD
    assert backward == 2 * FORWARD - WEIGHT_ONLY
    assert (total("aten::mm"), total("aten::addmm")) == (6_246_400, 1_648_640)
    assert total("aten::bmm") == 153_600


def test_only_the_innermost_operation_counts_the_arithmetic() -> None:
    rows = [op for op in read_kineto(TORCH).ops if op.type == "aten::conv2d"]
    assert rows
    assert all(op.flops is None and op.bytes_written for op in rows)


def test_kinds_of_convolutions_are_told_apart_in_a_real_trace() -> None:
    kinds = {op.kernel for op in read_kineto(TORCH).ops if "conv" in op.type}
    assert kinds == {None, *Kernel}


def test_a_factor_as_large_as_a_parameter_is_one() -> None:
    rows = [op for op in read_kineto(TORCH).ops if op.type == "aten::mm"]
    assert any(op.parameter_bytes == 4 * 192 * 64 for op in rows)
    assert any(op.parameter_bytes is None for op in rows)  # a weight's gradient reads none


def test_a_convolution_of_a_device_trace_has_everything() -> None:
    found = work(
        "aten::cudnn_convolution",
        *((8, 3, 64, 64), (16, 3, 7, 7), [3, 3], [2, 2], [1, 1], 1, False, False, True),
        number="c10::Half",
    )
    written = 8 * 16 * 32 * 32
    assert found == OpWork(
        bytes_read=2.0 * (8 * 3 * 64 * 64 + 16 * 3 * 7 * 7),
        parameter_bytes=2.0 * 16 * 3 * 7 * 7,
        bytes_written=2.0 * written,
        flops=2.0 * written * 3 * 49,
    )


@pytest.mark.parametrize(
    ("weight", "stride", "kernel"),
    [
        ((64, 32, 1, 1), 1, Kernel.POINTWISE),
        ((64, 32, 3, 3), 1, Kernel.THREE_BY_THREE),
        ((64, 32, 3, 3), 2, None),
        ((32, 1, 3, 3), 1, Kernel.DEPTHWISE),
        ((64, 8, 3, 3), 1, Kernel.GROUPED),
    ],
)
def test_groups_follow_from_the_sizes(
    weight: tuple[int, ...], stride: int, kernel: Kernel | None
) -> None:
    one = [stride, stride]
    found = work(
        "aten::conv2d", (8, 32, 28, 28), weight, None, one, [1, 1], [1, 1], 32 // weight[1]
    )
    assert found.kernel is kernel


def test_a_transposed_convolution_spreads_every_input_element() -> None:
    found = work(
        "aten::conv_transpose2d",
        *((8, 64, 16, 16), (64, 8, 2, 2), (8,), [2, 2], [0, 0], [0, 0], 1, [1, 1]),
    )
    assert found.bytes_written == 4 * 8 * 8 * 32 * 32
    assert found.flops == 2 * 8 * 64 * 16 * 16 * 8 * 4
    assert found.parameter_bytes == 4 * (64 * 8 * 4 + 8)


def test_convolutions_backward_cost_as_much_as_forward_for_each_gradient() -> None:
    sizes = ((8, 64, 28, 28), (8, 32, 28, 28), (64, 32, 3, 3))
    rest = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    once = 2.0 * 8 * 64 * 28 * 28 * 32 * 9
    both = work("aten::convolution_backward", *sizes, *rest, [True, True, False])
    weight = work("aten::convolution_backward", *sizes, *rest, [False, True, False])
    untold = work("aten::convolution_backward", *sizes)
    assert (both.flops, weight.flops, untold.flops) == (2 * once, once, 2 * once)
    assert both.bytes_written == 4 * (8 * 32 * 28 * 28 + 64 * 32 * 9)
    assert weight.bytes_written == 4 * 64 * 32 * 9


def test_pools_take_every_tap_of_every_window() -> None:
    found = work(
        "aten::max_pool2d_with_indices", (8, 16, 32, 32), [3, 3], [2, 2], [1, 1], [1, 1], False
    )
    assert (found.bytes_written, found.flops) == (4 * 8 * 16 * 16 * 16, 8 * 16 * 16 * 16 * 9)
    rounded_up = work(
        "aten::max_pool2d_with_indices", (8, 16, 32, 32), [3, 3], [2, 2], [1, 1], [1, 1], True
    )
    assert (rounded_up.bytes_written, rounded_up.flops) == (None, None)


def test_results_are_as_large_as_their_arguments_say() -> None:
    assert work("aten::relu", (8, 4)).bytes_written == 4 * 32
    assert work("aten::add_", (8, 4), (4,)).bytes_written == 4 * 32
    assert work("aten::add", (8, 1), (4,)).bytes_written == 4 * 32
    assert work("aten::unheard_of", (8, 4)).bytes_written is None
    assert work("aten::mm", (2, 3), (3, 4)) == OpWork(
        bytes_read=4.0 * 18, bytes_written=4.0 * 8, flops=48.0
    )
    assert work("aten::linear", (2, 3), (4, 3), (4,)).flops is None  # the product inside counts


@pytest.mark.parametrize("arguments", [(), ((2,),), ((2, 3), (4, 5)), ((2, 3), None)])
def test_products_of_unknown_sizes_have_no_flops(arguments: tuple[object, ...]) -> None:
    assert work("aten::mm", *arguments).flops is None


NAMES = sorted({*CONVOLUTIONS, *FACTORS, *FIRST, *POOLS, *BROADCAST, "aten::embedding"})
WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**20) | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=8,
)
SIZES = st.lists(st.integers(0, 9) | st.integers(0, 10**19), max_size=5)


@pytest.mark.slow
@given(
    name=st.sampled_from(NAMES),
    shapes=st.lists(SIZES | WILD, max_size=12),
    types=st.lists(st.sampled_from(["float", "Tensor(c10::Half)", "long", "", "((("]), max_size=12),
    values=st.lists(WILD | st.sampled_from(["[1, 1]", "[0]", "True", "[True, False, True]"])),
)
def test_wild_arguments_give_finite_work(
    name: str, shapes: list[object], types: list[object], values: list[object]
) -> None:
    found = work_of(OpCall.of(name, shapes, types, values), [(2, 3)])
    for figure in (found.bytes_read, found.parameter_bytes, found.bytes_written, found.flops):
        assert figure is None or 0 <= figure < float("inf")
    if found.bytes_read is not None and found.parameter_bytes is not None:
        assert found.parameter_bytes <= found.bytes_read


def test_a_convolution_of_wild_sizes_has_one_group() -> None:
    assert Convolution(input=(1, 8, 4, 4), weight=(8, 2, 3, 3)).groups == 4
    assert Convolution(input=(1, 8, 4, 4), weight=(8, 0, 3, 3)).groups == 1
    assert Convolution(input=(1, 8, 4, 4), weight=(2, 8, 3, 3), transposed=True).groups == 1
