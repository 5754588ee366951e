# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads execution traces in their JSON form, as PyTorch's ExecutionTraceObserver writes them.

Such a trace has sizes of inputs and outputs and no times. The protobuf form (.et) is not read: it
needs its schema, and the JSON form has the same content. Two spellings are supported: nodes with
``inputs`` as an object (schema 1.1), and with ``input_shapes`` beside it (1.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ullage.engines.profiles.calls import GRADIENT, OpCall, work_of
from ullage.engines.profiles.convolutions import Sizes
from ullage.engines.profiles.traces import (
    Json,
    OpTrace,
    OpTraceError,
    TracedOp,
    decoded,
    objects,
    precision_of,
    together,
)

STEP: Final = re.compile(r"ProfilerStep#(\d+)")
OPERATION: Final = "aten::"
SCHEMAS: Final = ("1.0", "1.1")


def read_chakra(text: str, steps: int | None = None) -> OpTrace:
    """The step of a trace, without times.

    Args:
        text: The JSON.
        steps: Steps in the trace, where it does not mark them; one by default.

    Raises:
        TraceError: it is not such a trace, or has an unknown schema.
    """
    top = decoded(text)
    if not isinstance(top, dict) or "nodes" not in top:
        raise OpTraceError("the file holds no execution trace: expected an object with nodes")
    schema = str(top.get("schema", ""))
    if not schema.startswith(SCHEMAS):
        raise OpTraceError(f"schema {schema!r} is not known; {' and '.join(SCHEMAS)} are")
    nodes = objects(top["nodes"], "nodes")
    parents = {_parent(node) for node in nodes if _is_operation(node)}
    parameters = _parameters(nodes)
    ops = [
        _op(node, parameters)
        for node in nodes
        if _is_operation(node) and node.get("id") not in parents
    ]
    if not ops:
        raise OpTraceError(f"the trace holds no operations (names that begin with {OPERATION})")
    marks = {mark[1] for node in nodes if (mark := STEP.search(str(node.get("name", ""))))}
    count = len(marks) or steps or 1
    rows, merged = together(ops, count)
    return OpTrace(ops=rows, steps=count, precision=precision_of(rows), merged=merged)


def _is_operation(node: Json) -> bool:
    return str(node.get("name", "")).startswith(OPERATION)


def _parent(node: Json) -> object:
    """The calling node: ``ctrl_deps`` in schema 1.1, ``parent`` in 1.0."""
    return node.get("ctrl_deps", node.get("parent"))


def _op(node: Json, parameters: frozenset[Sizes]) -> TracedOp:
    call = _call(node, "input")
    results = _call(node, "output")
    work = work_of(call, parameters)
    return TracedOp(
        type=call.name,
        flops=work.flops,
        bytes_read=work.bytes_read,
        parameter_bytes=work.parameter_bytes,
        bytes_written=results.bytes_of(range(len(results.shapes))),
        kernel=work.kernel,
        number=call.format,
    )


def _parameters(nodes: Sequence[Json]) -> frozenset[Sizes]:
    """Sizes of the model's parameters, from their gradients."""
    gradients = (_call(node, "input") for node in nodes if node.get("name") == GRADIENT)
    return frozenset(sizes for call in gradients for sizes in call.shapes if sizes is not None)


def _call(node: Json, which: str) -> OpCall:
    """Sizes, types and values of the inputs or outputs."""
    held = node.get(f"{which}s")
    if isinstance(held, dict):
        lists = (held.get("shapes"), held.get("types"), held.get("values"))
    else:
        lists = (node.get(f"{which}_shapes"), node.get(f"{which}_types"), held)
    shapes, types, values = (_list(entries) for entries in lists)
    return OpCall.of(str(node["name"]), shapes, types, values)


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
