# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the price of a pool's instances comes from, as an admin writes it.

No field holds a credential: clouds are queried with the identity that the operator's pod has.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from ullage.api.base import Count, Model, ObjectName, list_map
from ullage.api.rule import Rule
from ullage.api.rules import (
    HTTP_ONE_ANSWER,
    PRICE_POSITIVE,
    validations,
)

PoolPrice = Annotated[
    str,
    Field(
        max_length=16,
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?$",
        json_schema_extra=validations(PRICE_POSITIVE),
    ),
]
Row = Annotated[str, Field(min_length=1, max_length=253)]


class PriceSourceType(StrEnum):
    """Where the price comes from."""

    STATIC = "Static"
    CONFIG_MAP = "ConfigMap"
    FILE = "File"
    HTTP = "HTTP"
    AWS = "AWS"
    GCP = "GCP"
    AZURE = "Azure"

    @property
    def field(self) -> str:
        """Name of the object that says more: ConfigMap has configMap, HTTP has http."""
        return self.lower() if self.isupper() else self[0].lower() + self[1:]


_FIELDS: Final = tuple(word.field for word in PriceSourceType)
PRICE_SOURCE_OF_TYPE: Final = Rule(
    name="price-source-of-type",
    rule=" && ".join(
        f"has(self.{price_source_type.field}) == (self.type == '{price_source_type}')"
        for price_source_type in PriceSourceType
    ),
    message="priceSource needs exactly one object, the one that type names: "
    f"{', '.join(_FIELDS[:-1])} or {_FIELDS[-1]}",
)


class StaticPrice(Model):
    """A price that stands in the pool."""

    price_per_hour: PoolPrice
    """Price of one whole instance for an hour, as a quoted decimal number."""


class ConfigMapPrice(Model):
    """A row of a JSON table in a ConfigMap of the operator's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "prices.json"
    """Key whose value is the table: an object that maps rows to a price, or to an object with
    `pricePerHour` and `at`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


class FilePrice(Model):
    """A row of a JSON table in a file that is mounted into the operator."""

    path: Annotated[
        str,
        Field(
            max_length=253, pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*$"
        ),
    ]
    """Path below the operator's folder of prices (setting `ULLAGE_PRICE_FILE_ROOT`), such as
    `spot/prices.json`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


class HTTPPrice(Model):
    """A number that a service answers a GET with."""

    model_config = ConfigDict(json_schema_extra=validations(HTTP_ONE_ANSWER))

    url: Annotated[str, Field(max_length=1024, pattern=r"^https?://[^\s/@?#]+([/?][^\s#]*)?$")]
    """Address, http or https and without a user name or password."""
    metric: Annotated[str, Field(max_length=253, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")] | None = (
        None
    )
    """Name of a sample, where the answer is Prometheus text."""
    labels: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=253)]],
            Field(max_length=16),
        ]
        | None
    ) = None
    """Labels that the sample has, among others; exactly one sample must have them."""
    pointer: Annotated[str, Field(max_length=253, pattern=r"^(/[^\s/]+)+$")] | None = None
    """Place of the number, where the answer is JSON: a JSON pointer such as `/pools/a/price`."""


class AWSPrice(Model):
    """The spot price history of the pool's type and zone."""

    product: Annotated[str, Field(min_length=1, max_length=64)] = "Linux/UNIX"
    """Operating system, as AWS describes it."""


class SKU(Model):
    """A part of a machine in the billing catalogue of Google Cloud."""

    sku: Annotated[str, Field(max_length=32, pattern=r"^[0-9A-F]{4}(-[0-9A-F]{4}){2}$")]
    """Id of the SKU."""
    count: Annotated[Count, Field(ge=1, le=100000)]
    """How many units a machine has: cores, GiB of memory, GPUs."""


class GCPPrice(Model):
    """The sum of the SKUs of a machine."""

    parts: Annotated[
        tuple[SKU, ...], Field(min_length=1, max_length=16, json_schema_extra=list_map("sku"))
    ]
    """What the machine consists of."""


class AzurePrice(Model):
    """The public retail price of the pool's type."""

    region: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9]+$")]
    """Region as Azure spells it, such as `eastus`."""


class PriceSource(Model):
    """Where the price of an instance comes from: a type, and the one object of that name."""

    model_config = ConfigDict(json_schema_extra=validations(PRICE_SOURCE_OF_TYPE))

    type: PriceSourceType
    """Which of the objects below is given."""
    static: StaticPrice | None = None
    """With type Static."""
    config_map: ConfigMapPrice | None = None
    """With type ConfigMap."""
    file: FilePrice | None = None
    """With type File."""
    http: HTTPPrice | None = None
    """With type HTTP."""
    aws: AWSPrice | None = None
    """With type AWS; `{}` will do."""
    gcp: GCPPrice | None = None
    """With type GCP."""
    azure: AzurePrice | None = None
    """With type Azure."""
