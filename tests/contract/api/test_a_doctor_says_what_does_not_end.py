# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deleted objects that wait for an operator are named, with the time they have waited."""

from __future__ import annotations

import pytest

from builders_raw import raw_pool, raw_service
from fakes.apiserver import FakeApiServer
from ullage.api.checks import CheckState
from ullage.api.times import rfc3339
from ullage.cli.held_back import LATE, NAMED, deletions_end
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD, MOST_OF_NAMESPACE
from ullage.kube.client import K8sCluster
from ullage.ports import CAPACITY_POOL, INFERENCE_DEPLOYMENT

LATE_S = LATE * KINDS_HELD[INFERENCE_DEPLOYMENT]
NOW = 1_800_000_000.0


def put(api: FakeApiServer, name: str, *, since_s: float, finalizer: str = FINALIZER) -> None:
    meta = {"finalizers": [finalizer], "deletionTimestamp": rfc3339(NOW - since_s)}
    api.put(INFERENCE_DEPLOYMENT, raw_service(name, meta=meta))


async def test_what_waits_for_long_is_named(api: FakeApiServer, cluster: K8sCluster) -> None:
    put(api, "web", since_s=600)
    check, _ = await deletions_end(cluster, NOW)
    assert check.state is CheckState.FAILED
    assert "inferencedeployments default/web for 10 min" in check.message
    assert "by hand" in check.remedy


@pytest.mark.parametrize(
    ("since_s", "finalizer"), [(LATE_S - 1, FINALIZER), (LATE_S + 1, "other/finalizer")]
)
async def test_what_ends_soon_or_waits_for_others_is_not(
    api: FakeApiServer, cluster: K8sCluster, since_s: float, finalizer: str
) -> None:
    put(api, "web", since_s=since_s, finalizer=finalizer)
    api.put(INFERENCE_DEPLOYMENT, raw_service("serves", meta={"finalizers": [FINALIZER]}))
    check, _ = await deletions_end(cluster, NOW)
    assert check.state is CheckState.OK


async def test_of_many_a_few_are_named(api: FakeApiServer, cluster: K8sCluster) -> None:
    for number in range(NAMED + 3):
        put(api, f"web-{number}", since_s=LATE_S)
    check, _ = await deletions_end(cluster, NOW)
    assert check.message.endswith("and 3 more")


async def test_who_may_not_list_is_told(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.fail(403, verb="list", plural=INFERENCE_DEPLOYMENT.plural)
    (check,) = await deletions_end(cluster, NOW)
    assert check.state is CheckState.UNCONFIRMED


@pytest.mark.parametrize(("others", "full"), [(0, False), (2, True)])
async def test_a_namespace_with_more_than_end_in_order_is_named(
    api: FakeApiServer, cluster: K8sCluster, others: int, full: bool
) -> None:
    for number in range(MOST_OF_NAMESPACE):
        api.put(INFERENCE_DEPLOYMENT, raw_service(f"h-{number}", meta={"finalizers": [FINALIZER]}))
    for number in range(others):
        api.put(INFERENCE_DEPLOYMENT, raw_service(f"o-{number}"))
    _, order = await deletions_end(cluster, NOW)
    assert order.state is (CheckState.UNCONFIRMED if full else CheckState.OK)
    assert ("of default (200 and 2 others)" in order.message) is full


async def test_pools_beyond_the_bound_are_counted_held_or_not(
    api: FakeApiServer, cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ullage.cli.held_back.MOST", 2)
    for number in range(5):
        api.put(CAPACITY_POOL, raw_pool(f"p-{number}"))
    _, order = await deletions_end(cluster, NOW)
    assert "capacitypools (2 and 3 others)" in order.message
