# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every price source keeps one contract; answers are written after the providers' documents."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_plus

import orjson
import pytest

from ullage.prices.aws import AwsSpotPrice
from ullage.prices.azure import AzureRetailPrice
from ullage.prices.gcp import GcpSkuPrice
from ullage.prices.http import JsonPrice, PrometheusPrice
from ullage.prices.source import PriceUnreadable, QuoteSource
from ullage.prices.static import StatedPrice, TablePrice

NOW_S = 1_700_000_000.0
"""2023-11-14T22:13:20Z."""


def history(*rows: tuple[str, str, str, str, str]) -> bytes:
    names = ("AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")
    entries = [dict(zip(names, row, strict=True)) for row in rows]
    return orjson.dumps({"SpotPriceHistory": entries, "NextToken": ""})


HISTORY = history(
    ("us-east-1a", "p3.2xlarge", "Linux/UNIX", "0.981000", "2023-11-14T20:00:00.000Z"),
    ("us-east-1a", "p3.2xlarge", "Linux/UNIX", "0.979100", "2023-11-13T20:00:00.000Z"),
    ("us-east-1b", "p3.2xlarge", "Linux/UNIX", "1.400000", "2023-11-14T21:00:00.000Z"),
    ("us-east-1a", "p3.2xlarge", "Windows", "3.100000", "2023-11-14T21:00:00.000Z"),
    ("us-east-1a", "p3.2xlarge", "Linux/UNIX", "9.000000", "2023-11-15T21:00:00.000Z"),
)
XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>
  <spotPriceHistorySet>
    <item>
      <instanceType>p3.2xlarge</instanceType>
      <productDescription>Linux/UNIX</productDescription>
      <spotPrice>0.981000</spotPrice>
      <timestamp>2023-11-14T20:00:00.000Z</timestamp>
      <availabilityZone>us-east-1a</availabilityZone>
    </item>
  </spotPriceHistorySet>
  <nextToken/>
</DescribeSpotPriceHistoryResponse>"""
REFUSED = b"""<?xml version="1.0"?><Response><Errors><Error><Code>RequestLimitExceeded</Code>
<Message>Request limit exceeded.</Message></Error></Errors></Response>"""


def sku(name: str, units: object, nanos: int, unit: str = "h") -> dict[str, object]:
    rates = [
        {
            "startUsageAmount": 0,
            "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos},
        }
    ]
    expression = {"usageUnit": unit, "tieredRates": rates}
    return {
        "skuId": name,
        "description": f"Spot Preemptible {name}",
        "category": {"usageType": "Preemptible"},
        "pricingInfo": [{"effectiveTime": "2023-11-01T00:00:00Z", "pricingExpression": expression}],
    }


SKUS = [
    sku("gpu", "0", 740_000_000),
    sku("core", "0", 7_000_000),
    sku("memory", 0, 1_000_000, "GiBy.h"),
]
CATALOGUE = orjson.dumps({"skus": SKUS, "nextPageToken": ""})


def item(sku_name: str, value: float, **changed: object) -> dict[str, object]:
    return {
        "currencyCode": "USD",
        "retailPrice": value,
        "armRegionName": "eastus",
        "effectiveStartDate": "2023-11-01T00:00:00Z",
        "productName": "Virtual Machines NCSv3 Series",
        "skuName": sku_name,
        "armSkuName": "Standard_NC6s_v3",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        **changed,
    }


RETAIL = orjson.dumps(
    {
        "BillingCurrency": "USD",
        "Items": [
            item("NC6s v3", 3.06),
            item("NC6s v3 Spot", 0.918),
            item("NC6s v3 Spot", 0.99, effectiveStartDate="2023-01-01T00:00:00Z"),
            item("NC6s v3 Spot", 0.5, effectiveStartDate="2024-01-01T00:00:00Z"),
            item("NC6s v3 Low Priority", 0.612),
            item("NC6s v3 Spot", 1.5, productName="Virtual Machines NCSv3 Series Windows"),
            item("NC6s v3 Spot", 0.1, armRegionName="westus"),
            item("NC6s v3", 1.9, type="Reservation", reservationTerm="1 Year"),
        ],
        "NextPageLink": None,
    }
)
EXPOSITION = b"""# HELP spot_price Dollars per hour.
# TYPE spot_price gauge
spot_price{zone="a",type="p3.2xlarge"} 0.98 1699999000000
spot_price{zone="b",type="p3.2xlarge"} 1.02
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A source with an answer it can read and ones it cannot."""

    name: str
    source: QuoteSource
    body: bytes
    price: float
    at_s: float = NOW_S
    unreadable: tuple[bytes, ...] = (b"", b"not a document", b"{}", b"[]", b"\xff\xfe")


AWS = AwsSpotPrice(instance_type="p3.2xlarge", zone="us-east-1a", product="Linux/UNIX")
CASES = (
    Case(
        name="table",
        source=TablePrice(where="/prices.json", row="a100"),
        body=b'{"a100": 1.25, "h100": 3}',
        price=1.25,
        unreadable=(b"", b"{", b"[]", b'{"h100": 1}', b'{"a100": 0}', b'{"a100": true}'),
    ),
    Case(
        name="table with a time",
        source=TablePrice(where="configmap:ullage/prices/table", row="a100"),
        body=b'{"a100": {"pricePerHour": "1.25", "at": "2023-11-14T22:00:00"}}',
        price=1.25,
        at_s=NOW_S - 800,
        unreadable=(b'{"a100": {}}', b'{"a100": {"pricePerHour": 1, "at": "noon"}}'),
    ),
    Case(
        name="prometheus",
        source=PrometheusPrice(url="http://p/metrics", metric="spot_price", labels={"zone": "b"}),
        body=EXPOSITION,
        price=1.02,
        unreadable=(
            b"",
            b"spot_price{zone=",
            b'spot_price{zone="b"} NaN\n',
            b"\xff",
            b'spot_price{zone="b",x="1"} 1\nspot_price{zone="b",x="2"} 1\n',
        ),
    ),
    Case(
        name="prometheus with a time",
        source=PrometheusPrice(url="http://p/metrics", metric="spot_price", labels={"zone": "a"}),
        body=EXPOSITION,
        price=0.98,
        at_s=1_699_999_000.0,
    ),
    Case(
        name="json",
        source=JsonPrice(url="http://p/v1", pointer="/pools/0/us~1east/price"),
        body=b'{"pools": [{"us/east": {"price": 2.5}}]}',
        price=2.5,
        unreadable=(b"", b"{}", b'{"pools": []}', b'{"pools": [{"us/east": {"price": -1}}]}'),
    ),
    Case(name="aws json", source=AWS, body=HISTORY, price=0.981),
    Case(
        name="aws xml",
        source=AWS,
        body=XML,
        price=0.981,
        unreadable=(REFUSED, XML[:200], b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"),
    ),
    Case(
        name="gcp",
        source=GcpSkuPrice(parts=(("gpu", 1), ("core", 8), ("memory", 30))),
        body=CATALOGUE,
        price=0.74 + 8 * 0.007 + 30 * 0.001,
        unreadable=(
            b"",
            b"{}",
            orjson.dumps({"skus": SKUS[:2]}),
            orjson.dumps({"skus": [*SKUS[:2], sku("memory", 0, 1, "GiBy.mo")]}),
            orjson.dumps({"skus": [*SKUS[:2], sku("memory", "x", 1)]}),
            orjson.dumps({"skus": [*SKUS[:2], {"skuId": "memory", "pricingInfo": [{}]}]}),
        ),
    ),
    Case(
        name="azure spot",
        source=AzureRetailPrice(sku="Standard_NC6s_v3", region="eastus"),
        body=RETAIL,
        price=0.918,
    ),
    Case(
        name="azure pay as you go",
        source=AzureRetailPrice(sku="Standard_NC6s_v3", region="eastus", spot=False),
        body=RETAIL,
        price=3.06,
    ),
)
BY_NAME = [pytest.param(case, id=case.name) for case in CASES]


@pytest.mark.parametrize("case", BY_NAME)
def test_the_price_that_was_asked_for_is_read(case: Case) -> None:
    found = case.source.read(case.body, NOW_S)
    assert found.price_per_hour == pytest.approx(case.price)
    assert found.at_s == pytest.approx(case.at_s)


@pytest.mark.parametrize("case", BY_NAME)
def test_an_answer_without_it_is_an_error_and_never_a_price(case: Case) -> None:
    for body in case.unreadable:
        with pytest.raises(PriceUnreadable):
            case.source.read(body, NOW_S)


@pytest.mark.parametrize("case", BY_NAME)
def test_what_to_get_is_named_without_credentials(case: Case) -> None:
    wanted = case.source.fetch()
    assert wanted is not None
    assert wanted.url
    assert "@" not in wanted.url


def test_a_static_price_needs_nothing() -> None:
    source: QuoteSource = StatedPrice(price_per_hour=1.5)
    assert source.fetch() is None
    assert source.read(b"", NOW_S).price_per_hour == 1.5
    with pytest.raises(PriceUnreadable, match="static price"):
        StatedPrice(price_per_hour=0.0).read(b"", NOW_S)


def test_requests_name_what_is_asked() -> None:
    aws, azure = AWS.fetch(), AzureRetailPrice(sku="Standard_NC6s_v3", region="eastus").fetch()
    assert aws is not None
    assert aws.signed_for == ("ec2", "us-east-1")
    assert "InstanceType.1=p3.2xlarge" in aws.url
    assert azure is not None
    assert "armSkuName eq 'Standard_NC6s_v3'" in unquote_plus(azure.url)


def test_what_aws_refused_is_said() -> None:
    with pytest.raises(PriceUnreadable, match="RequestLimitExceeded"):
        AWS.read(REFUSED, NOW_S)
