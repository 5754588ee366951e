# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ground that the models of all kinds stand on: spelling, bounds and the CRD's own data.

Every attribute's docstring is user documentation: CRDs and ``kubectl explain`` texts are made from
it. Specs are records of ``ullage.api.spec``, which also read stored objects; models are what stands
around them, and what the live path reads in another way. Nothing here may do I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from ullage.api.labels import API_VERSION
from ullage.api.readers import MOST_COUNTED, WireError, quoted
from ullage.api.scalars import int_or_string
from ullage.api.slices import MAX_EPOCH
from ullage.api.spec import Scalar, patterned, spelling


class Model(BaseModel):
    """Base of every part of an object; fields that a newer version adds are ignored."""

    model_config = ConfigDict(
        alias_generator=spelling,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
    )


class OpenModel(BaseModel):
    """Base of parts that belong to Kubernetes: what we do not declare passes through untouched."""

    model_config = ConfigDict(
        alias_generator=spelling,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="allow",
    )


AMOUNT_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""Every amount that Kubernetes itself accepts, for the parts that belong to it."""

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""Names of objects (DNS subdomain)."""

ACCELERATOR_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Keys of accelerators, see ``contract.accelerator_key``."""


def _amount(value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise WireError(f"expected a string, got {type(value).__name__}")
    if isinstance(value, str) and not re.match(AMOUNT_PATTERN, value):
        raise WireError(f"{quoted(value)} is no amount such as 500m or 4Gi")
    return value


PERCENTILE_PATTERN: Final = r"^[0-9]{1,2}(\.[0-9]{1,3})?$"
"""A percentile above 0 and below 100, as a whole number or a decimal string."""

Amount = Annotated[
    int | str,
    Scalar(read=_amount, write=lambda amount: amount, schema=int_or_string(AMOUNT_PATTERN)),
]
Word = Annotated[str, Field(max_length=64)]
ObjectName = Annotated[str, patterned(NAME_PATTERN, "name of an object", max_length=253)]
AnyName = Annotated[str, Field(max_length=253)]
"""A name as the cluster reports it, not checked again."""
Percent = Annotated[int, Field(ge=1, le=100, json_schema_extra={"format": "int32"})]
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})]
LongCount = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
Epoch = Annotated[int, Field(ge=0, le=MAX_EPOCH)]
Time = AwareDatetime


def list_map(*keys: str) -> JsonDict:
    """Schema of a list whose items are told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


RECORD: Final = "x-record"
"""Name of a record that says what stands there; only the generator of CRDs sees the keyword."""


def record(name: str) -> WithJsonSchema:
    """JSON of this record, as its codec reads and writes it."""
    return WithJsonSchema({RECORD: name})


def records(name: str, most: int, *keys: str) -> WithJsonSchema:
    """A list of at most so many of these records; without keys it is atomic."""
    kind = list_map(*keys) if keys else ATOMIC
    return WithJsonSchema({"type": "array", "items": {RECORD: name}, "maxItems": most, **kind})


SET: Final[JsonDict] = {"x-kubernetes-list-type": "set"}
ATOMIC: Final[JsonDict] = {"x-kubernetes-list-type": "atomic"}


class ObjectMeta(OpenModel):
    """The standard metadata of a Kubernetes object."""

    name: AnyName
    """Name of the object."""
    namespace: AnyName | None = None
    """Namespace of the object; cluster-scoped objects have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of ``kubectl get``; ``wide`` shows it with ``-o wide`` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


AGE: Final = Column(
    name="Age", path=".metadata.creationTimestamp", type="date", description="Time since creation."
)


def condition_column(name: str, type_: str, description: str, *, wide: bool = False) -> Column:
    """Column that shows the status of a condition."""
    path = f'.status.conditions[?(@.type=="{type_}")].status'
    return Column(name=name, path=path, description=description, wide=wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """Part of a CustomResourceDefinition beside the schema."""

    plural: str
    singular: str
    short_name: str
    namespaced: bool
    columns: tuple[Column, ...]
    scale: bool = False
    """Whether ``kubectl scale`` and autoscalers may set ``spec.replicas``."""


class Resource(Model):
    """Base of the kinds."""

    info: ClassVar[KindInfo]

    api_version: Literal["ullage.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    """Version of the API."""
    metadata: ObjectMeta
    """Standard metadata of the object."""
