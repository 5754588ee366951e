# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The source of a pool's instance price, as an administrator writes it.

No field holds a credential: the operator queries clouds with the identity of its own pod.
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
from ullage.api.scalars import decimal_number

PoolPrice = Annotated[float, decimal_number(PRICE_POSITIVE, digits=6)]
Row = Annotated[str, Field(min_length=1, max_length=253)]


class PriceSourceType(StrEnum):
    """Types of price sources."""

    STATIC = "Static"
    CONFIG_MAP = "ConfigMap"
    FILE = "File"
    HTTP = "HTTP"
    AWS = "AWS"
    GCP = "GCP"
    AZURE = "Azure"

    @property
    def field(self) -> str:
        """Name of the object with the details: ConfigMap has configMap, HTTP has http."""
        return self.lower() if self.isupper() else self[0].lower() + self[1:]


_FIELDS: Final = tuple(word.field for word in PriceSourceType)
PRICE_SOURCE_OF_TYPE: Final = Rule(
    name="price-source-of-type",
    rule=" && ".join(
        f"has(self.{source.field}) == (self.type == '{source}')" for source in PriceSourceType
    ),
    message="priceSource needs exactly one object, the one that type names: "
    f"{', '.join(_FIELDS[:-1])} or {_FIELDS[-1]}",
)


class StaticPrice(Model):
    """A price stated in the pool."""

    price_per_hour: PoolPrice
    """Price of one whole instance per hour, a fraction in quotes: 3 or "3.06"."""


class ConfigMapPrice(Model):
    """A row of a JSON table in a ConfigMap of the operator's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "prices.json"
    """Key of the table: an object that maps rows to a price, or to an object with `pricePerHour`
    and `at`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


class FilePrice(Model):
    """A row of a JSON table in a file mounted into the operator."""

    path: Annotated[
        str,
        Field(
            max_length=253, pattern=r"^[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*$"
        ),
    ]
    """Path below the operator's price folder (setting `ULLAGE_PRICE_FILE_ROOT`), such as
    `spot/prices.json`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


class HTTPPrice(Model):
    """A number that a service returns for a GET."""

    model_config = ConfigDict(json_schema_extra=validations(HTTP_ONE_ANSWER))

    url: Annotated[str, Field(max_length=1024, pattern=r"^https?://[^\s/@?#]+([/?][^\s#]*)?$")]
    """URL, http or https, without a user name or password."""
    metric: Annotated[str, Field(max_length=253, pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")] | None = (
        None
    )
    """Name of the sample, if the response is Prometheus text."""
    labels: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=253)]],
            Field(max_length=16),
        ]
        | None
    ) = None
    """Labels that select the sample; exactly one sample must have all of them."""
    pointer: Annotated[str, Field(max_length=253, pattern=r"^(/[^\s/]+)+$")] | None = None
    """JSON pointer to the number, if the response is JSON, such as `/pools/a/price`."""


class AWSPrice(Model):
    """The spot price history of the pool's type and zone."""

    product: Annotated[str, Field(min_length=1, max_length=64)] = "Linux/UNIX"
    """Operating system, as AWS describes it."""


class SKU(Model):
    """A part of a machine in Google Cloud's billing catalogue."""

    sku: Annotated[str, Field(max_length=32, pattern=r"^[0-9A-F]{4}(-[0-9A-F]{4}){2}$")]
    """Id of the SKU."""
    count: Annotated[Count, Field(ge=1, le=100000)]
    """Units per machine: cores, GiB of memory or GPUs."""


class GCPPrice(Model):
    """The sum of a machine's SKUs."""

    parts: Annotated[
        tuple[SKU, ...], Field(min_length=1, max_length=16, json_schema_extra=list_map("sku"))
    ]
    """Parts of the machine."""


class AzurePrice(Model):
    """The public retail price of the pool's type."""

    region: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9]+$")]
    """Region as Azure spells it, such as `eastus`."""


class PriceSource(Model):
    """The source of an instance's price: a type, and the one object of that name."""

    model_config = ConfigDict(json_schema_extra=validations(PRICE_SOURCE_OF_TYPE))

    type: PriceSourceType
    """Type of the source; set the object below with the same name."""
    static: StaticPrice | None = None
    """A price stated here; for type Static."""
    config_map: ConfigMapPrice | None = None
    """A row of a table in a ConfigMap; for type ConfigMap."""
    file: FilePrice | None = None
    """A row of a table in a file; for type File."""
    http: HTTPPrice | None = None
    """The response of a service; for type HTTP."""
    aws: AWSPrice | None = None
    """The AWS spot price history; for type AWS. `{}` uses the defaults."""
    gcp: GCPPrice | None = None
    """The sum of Google Cloud SKUs; for type GCP."""
    azure: AzurePrice | None = None
    """The Azure retail price; for type Azure."""
