# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from builders_raw import raw_policy, raw_pool
from golden_manifests import goldens
from ullage.api.readers import WireError
from ullage.api.spot import SpotTerms
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.projection.pool import project_pool
from ullage.cluster.records.pool import CapacityType, PoolStatus
from ullage.engines.capacity.hazard import AdvisorBand
from ullage.prices.aws import AwsSpotPrice
from ullage.prices.azure import AzureRetailPrice
from ullage.prices.chosen import source_of
from ullage.prices.gcp import GcpSkuPrice
from ullage.prices.http import JsonPrice, PrometheusPrice
from ullage.prices.source import QuoteSource, Where
from ullage.prices.static import StatedPrice, TablePrice

SOURCES: dict[str, QuoteSource] = {
    "pool-static": StatedPrice(price_per_hour=3.06),
    "pool-everything": PrometheusPrice(
        url="http://prices.default.svc:9090/metrics",
        metric="spot_price",
        labels={"zone": "us-east-1b"},
    ),
    "pool-of-config-map": TablePrice(where="configmap:house/gpu-prices/prices.json", row="l4"),
    "pool-of-file": TablePrice(where="/prices/spot/prices.json", row="pool-of-file"),
    "pool-of-json": JsonPrice(
        url="https://prices.example.com/v1?kind=spot", pointer="/pools/l4/price"
    ),
    "pool-of-aws": AwsSpotPrice(
        instance_type="p3.2xlarge", zone="us-east-1a", product="Linux/UNIX"
    ),
    "pool-of-gcp": GcpSkuPrice(parts=(("1F8B-71B0-3D1B", 4.0), ("5812-D8DD-2AB5", 1.0))),
    "pool-of-azure": AzureRetailPrice(sku="Standard_NC6s_v3", region="eastus"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_every_source_of_prices_is_read(case: str) -> None:
    body = goldens()[case].body
    pool = project_pool({**body, "metadata": {"name": case, "uid": "u"}})
    assert source_of(pool, Where(namespace="house", file_root="/prices")) == SOURCES[case]


def test_everything_that_a_pool_says_is_read() -> None:
    body = goldens()["pool-everything"].body
    record = project_pool({**body, "metadata": {"name": "p", "uid": "u", "generation": 3}})
    assert (record.instance_type, record.zone) == ("p3.8xlarge", "us-east-1b")
    assert record.capacity_type is CapacityType.SPOT
    assert (record.gpus_per_instance, record.most, record.notice_s) == (4, 16, 120.0)
    assert (record.advisor_band, record.placement_score) == (AdvisorBand.FROM_5_TO_10, 7)
    assert record.node_selector["topology.kubernetes.io/zone"] == "us-east-1b"
    assert (record.generation, record.status) == (3, PoolStatus())


HTTP = {"type": "HTTP", "http": {"url": "http://me:pw@a/", "pointer": "/p"}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"capacityType": "spot"}, "spec.capacityType"),
        (
            {"priceSource": {"type": "Rumour"}},
            "priceSource.type: 'Rumour' is none of Static, ConfigMap",
        ),
        (
            {"priceSource": {"type": "Static"}},
            "priceSource: priceSource needs exactly one object, .* .type Static.",
        ),
        ({"priceSource": HTTP}, "priceSource.http.url: 'http://me:pw@a/' is no http or https URL"),
        (
            {"priceSource": {"type": "File", "file": {"path": "../secrets/token"}}},
            "priceSource.file.path: '../secrets/token' is no path below the folder of prices",
        ),
        (
            {"priceSource": {"type": "Static", "static": {"pricePerHour": "0"}}},
            "priceSource.static.pricePerHour: a price must be a number above 0",
        ),
        ({"prior": {"advisorBand": "Low"}}, "none of Under5"),
        ({"nodeSelector": {"a": 1}}, "expected a string"),
    ],
)
def test_what_cannot_be_read_names_its_place(spec: dict[str, object], words: str) -> None:
    with pytest.raises(WireError, match=words):
        project_pool(raw_pool(**spec))


def test_the_policy_says_how_fast_is_forgotten() -> None:
    _, policy = project_policy(raw_policy(spot={"hazardHalfLife": "72h", "priorHours": 20}))
    assert (policy.spot.hazard_half_life_s, policy.spot.prior_hours) == (72 * 3600.0, 20)
    _, policy = project_policy(raw_policy())
    assert policy.spot == SpotTerms()
