# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads execution traces in their JSON form, as PyTorch's ExecutionTraceObserver writes them.

Such a trace has sizes of inputs and outputs and no times. The protobuf form (.et) is not read: it
needs its schema, and the JSON form says the same. Two spellings are known: nodes with ``inputs``
as an object (schema 1.1), and with ``input_shapes`` beside it (1.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ullage.engines.profiles.traces import (
    Json,
    Trace,
    TracedOp,
    TraceError,
    decoded,
    number_format,
    objects,
    precision_of,
    product_flops,
    tensor_bytes,
    together,
)

STEP: Final = re.compile(r"ProfilerStep#(\d+)")
OPERATION: Final = "aten::"
SCHEMAS: Final = ("1.0", "1.1")


def read_chakra(text: str, steps: int | None = None) -> Trace:
    """The step that a trace shows, without times.

    Args:
        text: The JSON.
        steps: Steps in the trace, where it does not mark them; one unless told.

    Raises:
        TraceError: it is no such trace, or of a schema that is not known.
    """
    top = decoded(text)
    if not isinstance(top, dict) or "nodes" not in top:
        raise TraceError("the file holds no execution trace: expected an object with nodes")
    schema = str(top.get("schema", ""))
    if not schema.startswith(SCHEMAS):
        raise TraceError(f"schema {schema!r} is not known; {' and '.join(SCHEMAS)} are")
    nodes = objects(top["nodes"], "nodes")
    parents = {_parent(node) for node in nodes if _is_operation(node)}
    ops = [_op(node) for node in nodes if _is_operation(node) and node.get("id") not in parents]
    if not ops:
        raise TraceError(f"the trace holds no operations (names that begin with {OPERATION})")
    marks = {mark[1] for node in nodes if (mark := STEP.search(str(node.get("name", ""))))}
    count = len(marks) or steps or 1
    rows, merged = together(ops, count)
    return Trace(ops=rows, steps=count, precision=precision_of(rows), merged=merged)


def _is_operation(node: Json) -> bool:
    return str(node.get("name", "")).startswith(OPERATION)


def _parent(node: Json) -> object:
    """The node that called it: ``ctrl_deps`` in schema 1.1, ``parent`` in 1.0."""
    return node.get("ctrl_deps", node.get("parent"))


def _op(node: Json) -> TracedOp:
    name = str(node["name"])
    shapes, types = _arguments(node, "input")
    written, kinds = _arguments(node, "output")
    return TracedOp(
        type=name,
        flops=product_flops(name, shapes),
        bytes_read=tensor_bytes(shapes, types),
        bytes_written=tensor_bytes(written, kinds),
        number=number_format(types),
    )


def _arguments(node: Json, which: str) -> tuple[Sequence[object], Sequence[object]]:
    """Sizes and types of the inputs or outputs."""
    held = node.get(f"{which}s")
    if isinstance(held, dict):
        return _list(held.get("shapes")), _list(held.get("types"))
    return _list(node.get(f"{which}_shapes")), _list(node.get(f"{which}_types"))


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
