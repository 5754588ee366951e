# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Field validation: which fields of a body the schema does not know.

Built-in kinds are judged by the client library's own models, ours by their CRDs.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kubernetes.aio.client import models
from pydantic import BaseModel


@cache
def _known(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Field name on the wire -> model of what stands there, if it has one."""
    out: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        wire = field.serialization_alias or name
        out[wire] = _model_in(field.annotation)
    return out


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)


def _in_model(value: Any, model: type[BaseModel], path: str) -> Iterator[str]:
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _in_model(item, model, f"{path}[{at}]")
    elif isinstance(value, dict):
        known = _known(model)
        for name, child in value.items():
            here = f"{path}.{name}" if path else name
            if name not in known:
                yield f"{here}"
            elif (below := known[name]) is not None:
                yield from _in_model(child, below, here)


def unknown_in_built_in(kind: str, body: Mapping[str, Any]) -> list[str]:
    """Paths that a built-in kind does not have; none for a kind without a model."""
    model = getattr(models, f"V1{kind}", None)
    return list(_in_model(dict(body), model, "")) if model is not None else []


def unknown_in_schema(value: Any, node: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths below one node of a structural schema that it does not describe."""
    if isinstance(value, dict):
        known = node.get("properties", {})
        values = node.get("additionalProperties")
        open_ = node.get("x-kubernetes-preserve-unknown-fields", False)
        for name, child in value.items():
            below = known.get(name, values if isinstance(values, dict) else None)
            if below is not None:
                yield from unknown_in_schema(child, below, f"{path}.{name}")
            elif not open_:
                yield f"{path}.{name}"
    elif isinstance(value, list) and "items" in node:
        for at, item in enumerate(value):
            yield from unknown_in_schema(item, node["items"], f"{path}[{at}]")
