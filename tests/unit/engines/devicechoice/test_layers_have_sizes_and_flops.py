# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of layers, and layer lists as a framework prints them."""

from __future__ import annotations

import math

import pytest

from bench.devicechoice_layers import LayerListError, conv2d_flops, read_layers
from ullage.api.words import Kernel
from ullage.engines.devicechoice.features import Design, FitSplit, LayerOp, SizeMeasure
from ullage.engines.profiles.convolutions import kernel_class

VALUES = (
    "forward_compute_time=2.0, backward_compute_time=4.0, activation_size={}, parameter_size={}"
)
CONV = "Conv2d(8, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1){})"


def listed(conv: str = CONV.format("")) -> str:
    return "\n".join(
        [
            f"node2 -- {conv} -- {VALUES.format(4096.0, 4608.0)}",
            f"node1 -- Input -- {VALUES.format(2048.0, 0.0)}",
            f"node3 -- Linear(in_features=64, bias=True) -- {VALUES.format(400, 9)}",
            f"node4 -- AvgPool2d(kernel_size=2, stride=2) -- {VALUES.format(800, 0)}",
            f"node5 -- Add(inplace) -- {VALUES.format(800, 0)}",
            "\tnode1 -- node2",
            "\tnode2 -- node3",
            "\tnode2 -- node5",
            "\tnode4 -- node5",
            "",
        ]
    )


def by_kind(text: str) -> dict[str, LayerOp]:
    return {one.op.kind: one.op for one in read_layers(text)}


def test_a_list_gives_bytes_flops_and_seconds_without_the_input_node() -> None:
    ops = by_kind(listed())
    assert set(ops) == {"Conv2d", "Linear", "AvgPool2d", "Add"}
    conv = ops["Conv2d"]
    assert (conv.input_bytes, conv.output_bytes, conv.parameter_bytes) == (2048, 4096, 4608)
    assert conv.flops == 2 * (4096 / 4) * 8 * 9
    assert conv.kernel is Kernel.THREE_BY_THREE
    assert ops["Linear"].flops == 2 * 100 * 64
    assert ops["AvgPool2d"].flops == 200 * 4
    assert ops["Add"].input_bytes == 4096 + 800
    timed = read_layers(listed())[0]
    assert (timed.forward_s, timed.backward_s) == pytest.approx((2e-3, 4e-3))


@pytest.mark.parametrize(
    ("extra", "kernel", "channels_seen"),
    [(", groups=8", Kernel.DEPTHWISE, 1), (", groups=2", Kernel.GROUPED, 4)],
)
def test_groups_divide_the_arithmetic_and_change_the_kernel(
    extra: str, kernel: Kernel, channels_seen: int
) -> None:
    conv = by_kind(listed(CONV.format(extra)))["Conv2d"]
    assert conv.kernel is kernel
    assert conv.flops == 2 * 1024 * channels_seen * 9


def test_kernels_of_convolutions() -> None:
    def kernel(area: int, stride: int) -> Kernel | None:
        return kernel_class(in_channels=8, groups=1, area=area, stride=stride)

    assert kernel(1, 2) is Kernel.POINTWISE
    assert kernel(9, 1) is Kernel.THREE_BY_THREE
    assert kernel(9, 2) is None
    assert kernel(25, 1) is None


def test_flops_do_not_depend_on_how_numbers_are_stored() -> None:
    single = conv2d_flops(4096, in_channels=8, groups=1, area=9)
    half = conv2d_flops(2048, in_channels=8, groups=1, area=9, element_bytes=2)
    assert single == half


@pytest.mark.parametrize(
    ("size", "bytes_used"),
    [
        (SizeMeasure.INPUT, 3),
        (SizeMeasure.OUTPUT, 5),
        (SizeMeasure.SUM, 8),
        (SizeMeasure.LARGER, 5),
    ],
)
def test_a_design_takes_its_own_bytes(size: SizeMeasure, bytes_used: float) -> None:
    op = LayerOp(kind="x", input_bytes=3, output_bytes=5, parameter_bytes=7, flops=11)
    assert Design(size=size, split=FitSplit.TYPE).row(op) == (1.0, bytes_used, 11, 7)
    assert Design(size=size, split=FitSplit.TYPE, arithmetic=False).row(op) == (1.0, bytes_used)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node1 -- a -- b -- c", "line 1"),
        ("node1 -- node2", "no line describes"),
        ("node1 -- ReLU() -- activation_size=many", "not 'name=number"),
        ("node1 -- ReLU() -- activation_size=4.0", "forward_compute_time is missing"),
    ],
)
def test_what_is_no_layer_list_is_named(text: str, says: str) -> None:
    with pytest.raises(LayerListError, match=says):
        read_layers(text)


@pytest.mark.parametrize("broken", [-1.0, math.nan, math.inf])
def test_sizes_are_finite_and_not_negative(broken: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        LayerOp(kind="x", input_bytes=broken, output_bytes=0)
    with pytest.raises(ValueError, match="count"):
        LayerOp(kind="x", input_bytes=0, output_bytes=0, count=0)
