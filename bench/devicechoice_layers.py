# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Layer lists as text, read into op tables: what a framework prints of its modules, with sizes.

A line is ``node -- Module(arguments) -- key=value, ...`` or an edge ``node -- node``. It must never
count the time of the input node: that is the loading of data, not the device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ullage.engines.devicechoice.features import LayerOp, TimedOp
from ullage.engines.profiles.convolutions import kernel_class

FLOPS_PER_MULTIPLY_ADD: Final = 2


def conv2d_flops(
    output_bytes: float, *, in_channels: int, groups: int, area: int, element_bytes: int = 4
) -> float:
    """Forward FLOPs of a 2-D convolution: 2 per output element, input channel and tap (derived).

    Args:
        output_bytes: Bytes of its result for the batch.
        in_channels: Channels of the input.
        groups: Groups that channels are cut into; each output sees one.
        area: Taps of the kernel, height times width.
        element_bytes: Bytes of a number.
    """
    elements = output_bytes / element_bytes
    return FLOPS_PER_MULTIPLY_ADD * elements * in_channels / groups * area


def linear_flops(output_bytes: float, *, in_features: int, element_bytes: int = 4) -> float:
    """Forward FLOPs of a fully connected layer (derived).

    Args:
        output_bytes: Bytes of the output of the whole batch.
        in_features: Inputs of each output element.
        element_bytes: Bytes of one element.
    """
    return FLOPS_PER_MULTIPLY_ADD * output_bytes / element_bytes * in_features


def pool_flops(output_bytes: float, *, area: int, element_bytes: int = 4) -> float:
    """Forward FLOPs of a pooling layer: one per output element and tap (derived).

    Args:
        output_bytes: Bytes of the output of the whole batch.
        area: Taps of the window.
        element_bytes: Bytes of one element.
    """
    return output_bytes / element_bytes * area


INPUT: Final = "Input"
_S_PER_MS: Final = 1e-3


class LayerListError(ValueError):
    """A layer list cannot be read; the text says which line, and what it should look like."""


def read_layers(text: str) -> tuple[TimedOp, ...]:
    """Ops of a layer list with times in milliseconds, input nodes left out.

    Args:
        text: The lines; an op's input is what its predecessors write.

    Raises:
        LayerListError: a line is none of the two kinds, or an edge names an unknown node.
    """
    nodes: dict[str, tuple[str, Mapping[str, float]]] = {}
    before: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.strip().split(" -- ")
        if len(parts) == 3:
            nodes[parts[0]] = (parts[1], _values(parts[2], number))
        elif len(parts) == 2:
            before.setdefault(parts[1], []).append(parts[0])
        elif line.strip():
            raise LayerListError(f"line {number}: want 'node -- layer -- values' or 'node -- node'")
    for node in {*before, *(source for many in before.values() for source in many)}:
        if node not in nodes:
            raise LayerListError(f"an edge names {node!r}, which no line describes")
    ops: list[TimedOp] = []
    for node, (layer, values) in nodes.items():
        if layer.split("(", maxsplit=1)[0] == INPUT:
            continue
        read = sum(nodes[source][1]["activation_size"] for source in before.get(node, ()))
        ops.append(
            TimedOp(
                op=_op(layer, read, values),
                forward_s=values["forward_compute_time"] * _S_PER_MS,
                backward_s=values["backward_compute_time"] * _S_PER_MS,
            )
        )
    return tuple(ops)


def _values(text: str, number: int) -> dict[str, float]:
    values: dict[str, float] = {}
    try:
        for pair in text.split(", "):
            name, _, value = pair.partition("=")
            values[name] = float(value)
    except ValueError as error:
        raise LayerListError(f"line {number}: {text!r} is not 'name=number, ...'") from error
    for name in ("activation_size", "forward_compute_time", "backward_compute_time"):
        if name not in values:
            raise LayerListError(f"line {number}: {name} is missing")
    return values


def _op(layer: str, input_bytes: float, values: Mapping[str, float]) -> LayerOp:
    kind, _, arguments = layer.partition("(")
    written = values["activation_size"]
    area = _area(arguments)
    flops, kernel = 0.0, None
    if kind == "Conv2d":
        channels = int(arguments.split(",", maxsplit=1)[0])
        groups = _number(arguments, "groups", 1)
        flops = conv2d_flops(written, in_channels=channels, groups=groups, area=area)
        kernel = kernel_class(
            in_channels=channels, groups=groups, area=area, stride=_number(arguments, "stride", 1)
        )
    elif kind == "Linear":
        flops = linear_flops(written, in_features=_number(arguments, "in_features", 0))
    elif "Pool" in kind:
        flops = pool_flops(written, area=area)
    return LayerOp(
        kind=kind,
        kernel=kernel,
        input_bytes=input_bytes,
        output_bytes=written,
        parameter_bytes=values.get("parameter_size", 0.0),
        flops=flops,
    )


def _area(arguments: str) -> int:
    match = re.search(r"kernel_size=(?:\((\d+), (\d+)\)|(\d+))", arguments)
    if match is None:
        return 1
    return int(match[3]) ** 2 if match[3] else int(match[1]) * int(match[2])


def _number(arguments: str, name: str, otherwise: int) -> int:
    found = re.search(rf"{name}=\(?(\d+)", arguments)
    return int(found[1]) if found else otherwise
