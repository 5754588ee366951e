# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Google's billing catalogue comes in pages: what is wanted may stand in any of them.

The pages are written by hand after the documents of the catalogue, cut down to what is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ullage.ports import JsonObject, Kind, NotFound
from ullage.prices import fetcher
from ullage.prices.fetcher import Fetcher, Unreachable
from ullage.prices.gcp import GcpSkuPrice
from ullage.prices.source import PriceFetch, PriceUnreadable

NOW_S = 1_700_000_000.0
GPU, CORE, MEMORY = "2B2E-8C5E-4F2F", "9431-52B1-2C4F", "39F4-0112-6F39"


def sku(name: str, nanos: int, unit: str = "h") -> dict[str, object]:
    price = {"currencyCode": "USD", "units": "0", "nanos": nanos}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}
    return {
        "name": f"services/6F81-5844-456A/skus/{name}",
        "skuId": name,
        "category": {"serviceDisplayName": "Compute Engine", "usageType": "Preemptible"},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"effectiveTime": "2023-11-01T00:00:00Z", "pricingExpression": expression}],
    }


FIRST = {
    "skus": [sku("0000-0000-0001", 1), sku(GPU, 740_000_000)],
    "nextPageToken": "AIPD5z4=&x",
}
SECOND = {"skus": [sku(CORE, 7_000_000), sku(MEMORY, 1_000_000, "GiBy.h")], "nextPageToken": ""}


class NoConfigMaps:
    """A cluster without ConfigMaps."""

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        raise NotFound(404, name, "NotFound")


class Catalogue:
    """Answers pages by their token."""

    def __init__(self) -> None:
        self.pages: dict[str, object] = {"": FIRST, "AIPD5z4=&x": SECOND}
        self.asked: list[str] = []
        app = web.Application()
        app.router.add_get("/v1/skus", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.Response:
        token = request.query.get("pageToken", "")
        assert request.query["pageSize"] == "5000"
        self.asked.append(token)
        return web.Response(body=orjson.dumps(self.pages[token]))

    def fetch(self, source: GcpSkuPrice) -> PriceFetch:
        """What the source asks for, from this server and without a token of Google's."""
        asked = source.fetch()
        assert asked is not None
        query = asked.url.partition("?")[2]
        return replace(asked, url=f"{self.server.make_url('/v1/skus')}?{query}", bearer=False)


@pytest.fixture
async def catalogue() -> AsyncIterator[Catalogue]:
    found = Catalogue()
    await found.server.start_server()
    yield found
    await found.server.close()


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Fetcher]:
    found = Fetcher(
        NoConfigMaps(), environment={}, file_root=str(tmp_path), timeout_s=5.0, now=lambda: NOW_S
    )
    yield found
    await found.close()


async def test_parts_on_two_pages_make_one_price(catalogue: Catalogue, ask: Fetcher) -> None:
    machine = GcpSkuPrice(parts=((GPU, 1), (CORE, 8), (MEMORY, 30)))
    body = await ask.get(catalogue.fetch(machine))
    assert machine.read(body, NOW_S).price_per_hour == pytest.approx(0.74 + 8 * 0.007 + 30 * 0.001)
    assert catalogue.asked == ["", "AIPD5z4=&x"]
    assert b"0000-0000-0001" not in body  # what no one wants is not kept


async def test_no_page_is_asked_for_when_everything_was_found(
    catalogue: Catalogue, ask: Fetcher
) -> None:
    device = GcpSkuPrice(parts=((GPU, 1),))
    body = await ask.get(catalogue.fetch(device))
    assert device.read(body, NOW_S).price_per_hour == pytest.approx(0.74)
    assert catalogue.asked == [""]


async def test_what_is_on_no_page_is_named(catalogue: Catalogue, ask: Fetcher) -> None:
    wrong = GcpSkuPrice(parts=((GPU, 1), ("no-such-sku", 1)))
    body = await ask.get(catalogue.fetch(wrong))
    with pytest.raises(PriceUnreadable, match="has no SKU no-such-sku"):
        wrong.read(body, NOW_S)


@pytest.mark.parametrize("page", [{"error": {"code": 400}}, [], "text"])
async def test_a_page_that_is_none_is_no_price(
    catalogue: Catalogue, ask: Fetcher, page: object
) -> None:
    catalogue.pages["AIPD5z4=&x"] = page
    machine = GcpSkuPrice(parts=((GPU, 1), (CORE, 8)))
    body = await ask.get(catalogue.fetch(machine))
    with pytest.raises(PriceUnreadable):
        machine.read(body, NOW_S)


async def test_a_catalogue_without_an_end_is_given_up(
    catalogue: Catalogue, ask: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "MOST_PAGES", 3)
    catalogue.pages["AIPD5z4=&x"] = {"skus": [], "nextPageToken": "AIPD5z4=&x"}
    with pytest.raises(Unreachable, match="more than 3 pages"):
        await ask.get(catalogue.fetch(GcpSkuPrice(parts=((CORE, 1),))))
    assert len(catalogue.asked) == 3
