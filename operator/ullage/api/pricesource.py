# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The source of a pool's instance price, as an administrator writes it.

No field holds a credential: the operator queries clouds with the identity of its own pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ullage.api.base import ObjectName
from ullage.api.rules import HTTP_ONE_ANSWER, PRICE_POSITIVE, PRICE_SOURCE_OF_TYPE
from ullage.api.scalars import decimal_number
from ullage.api.spec import KeyedBy, Spec, Whole, listed, patterned, text_map
from ullage.api.words import PriceSourceType

PoolPrice = Annotated[float, decimal_number(PRICE_POSITIVE, digits=6)]
Row = Annotated[str, Field(min_length=1, max_length=253)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPrice(Spec):
    """A price stated in the pool."""

    price_per_hour: PoolPrice
    """Price of one whole instance per hour, a fraction in quotes: 3 or "3.06"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapPrice(Spec):
    """A row of a JSON table in a ConfigMap of the operator's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, patterned(r"^[-._a-zA-Z0-9]+$", "key of a ConfigMap", max_length=253)] = (
        "prices.json"
    )
    """Key of the table: an object that maps rows to a price, or to an object with `pricePerHour`
    and `at`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrice(Spec):
    """A row of a JSON table in a file mounted into the operator."""

    path: Annotated[
        str,
        patterned(
            r"^[A-Za-z0-9_][-A-Za-z0-9_.]*(/[A-Za-z0-9_][-A-Za-z0-9_.]*)*$",
            "path below the folder of prices",
            max_length=253,
        ),
    ]
    """Path below the operator's price folder (setting `ULLAGE_PRICE_FILE_ROOT`), such as
    `spot/prices.json`."""
    row: Row | None = None
    """Row of the table; absent = the pool's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPPrice(Spec):
    """A number that a service returns for a GET."""

    rules: ClassVar = (HTTP_ONE_ANSWER,)

    url: Annotated[
        str,
        patterned(
            r"^https?://[^\s/@?#]+([/?][^\s#]*)?$",
            "http or https URL without user, password and fragment",
            max_length=1024,
        ),
    ]
    """URL, http or https, without a user name or password."""
    metric: (
        Annotated[str, patterned(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", "name of a sample", max_length=253)]
        | None
    ) = None
    """Name of the sample, if the response is Prometheus text."""
    labels: Annotated[dict[str, str], text_map(16, 253)] | None = None
    """Labels that select the sample; exactly one sample must have all of them."""
    pointer: (
        Annotated[
            str, patterned(r"^(/[^\s/]+)+$", "JSON pointer such as /pools/a/price", max_length=253)
        ]
        | None
    ) = None
    """JSON pointer to the number, if the response is JSON, such as `/pools/a/price`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AWSPrice(Spec):
    """The spot price history of the pool's type and zone."""

    product: Annotated[str, Field(min_length=1, max_length=64)] = "Linux/UNIX"
    """Operating system, as AWS describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SKU(Spec):
    """A part of a machine in Google Cloud's billing catalogue."""

    sku: Annotated[
        str,
        patterned(
            r"^[0-9A-F]{4}(-[0-9A-F]{4}){2}$", "id of a SKU such as 1F8B-71B0-3D1B", max_length=32
        ),
    ]
    """Id of the SKU."""
    count: Annotated[int, Whole(1, 100_000)]
    """Units per machine: cores, GiB of memory or GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GCPPrice(Spec):
    """The sum of a machine's SKUs."""

    parts: Annotated[
        tuple[SKU, ...], listed(16, least=1), KeyedBy(fields=("sku",), key=attrgetter("sku"))
    ]
    """Parts of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AzurePrice(Spec):
    """The public retail price of the pool's type."""

    region: Annotated[str, patterned(r"^[a-z0-9]+$", "region such as eastus", max_length=64)]
    """Region as Azure spells it, such as `eastus`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSource(Spec):
    """The source of an instance's price: a type, and the one object of that name."""

    rules: ClassVar = (PRICE_SOURCE_OF_TYPE,)

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

    @property
    def details(self) -> Any:
        """The object that the type names."""
        return getattr(self, self.type.attribute)
