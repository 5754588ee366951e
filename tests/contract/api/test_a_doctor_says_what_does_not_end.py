# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deleted objects that wait for an operator are named, with the time they have waited."""

from __future__ import annotations

import pytest

from builders_raw import raw_service
from fakes.apiserver import FakeApiServer
from ullage.api.contract import CheckState
from ullage.api.times import rfc3339
from ullage.cli.held_back import LATE, NAMED, deletions_end
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD
from ullage.kube.client import K8sCluster
from ullage.ports import INFERENCE_DEPLOYMENT

LATE_S = LATE * KINDS_HELD[INFERENCE_DEPLOYMENT]
NOW = 1_800_000_000.0


def put(api: FakeApiServer, name: str, *, since_s: float, finalizer: str = FINALIZER) -> None:
    meta = {"finalizers": [finalizer], "deletionTimestamp": rfc3339(NOW - since_s)}
    api.put(INFERENCE_DEPLOYMENT, raw_service(name, meta=meta))


async def test_what_waits_for_long_is_named(api: FakeApiServer, cluster: K8sCluster) -> None:
    put(api, "web", since_s=600)
    check = await deletions_end(cluster, NOW)
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
    check = await deletions_end(cluster, NOW)
    assert check.state is CheckState.OK


async def test_of_many_a_few_are_named(api: FakeApiServer, cluster: K8sCluster) -> None:
    for number in range(NAMED + 3):
        put(api, f"web-{number}", since_s=LATE_S)
    check = await deletions_end(cluster, NOW)
    assert check.message.endswith("and 3 more")


async def test_who_may_not_list_is_told(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.fail(403, verb="list", plural=INFERENCE_DEPLOYMENT.plural)
    check = await deletions_end(cluster, NOW)
    assert check.state is CheckState.UNCONFIRMED
