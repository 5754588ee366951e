# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What tenants hold is read with the user's own rights; without them the rest is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.apiserver import FakeApiServer
from ullage.cli.look import as_allowed, quota_held
from ullage.cluster.values import streams
from ullage.kube.client import K8sCluster
from ullage.ports import (
    GPU_NODE,
    POD,
    SCHEDULING_POLICY,
    TRAINING_JOB,
    Forbidden,
    Kind,
    Page,
    Selector,
)


async def test_nodes_and_workloads_are_read(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.put(GPU_NODE, {"metadata": {"name": "node-1"}, "spec": {"slices": []}})
    held = await quota_held(cluster)
    assert held is not None
    assert set(held.gpu_nodes) == {"node-1"}


@pytest.mark.parametrize("kind", [POD, GPU_NODE, TRAINING_JOB])
async def test_who_may_not_list_all_of_it_is_told_nothing_wrong(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    plain = cluster.list_paged

    async def listed(asked: Kind, selector: Selector) -> AsyncIterator[Page]:
        if asked == kind:
            raise Forbidden(403, f"bob cannot list {kind.plural}")
        async for page in plain(asked, selector):
            yield page

    monkeypatch.setattr(cluster, "list_paged", listed)
    assert await quota_held(cluster) is None


async def test_what_is_optional_is_left_out_and_the_rest_is_read(
    api: FakeApiServer, cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(GPU_NODE, {"metadata": {"name": "node-1"}, "spec": {"slices": []}})
    plain = cluster.list_paged

    async def listed(asked: Kind, selector: Selector) -> AsyncIterator[Page]:
        if asked == SCHEDULING_POLICY:
            raise Forbidden(403, f"bob cannot list {asked.plural}")
        async for page in plain(asked, selector):
            yield page

    monkeypatch.setattr(cluster, "list_paged", listed)
    wanted = streams.SCHEDULING_POLICIES, streams.GPU_NODES
    seen, refused = await as_allowed(cluster, wanted, (streams.SCHEDULING_POLICIES,))
    assert set(seen.gpu_nodes) == {"node-1"}
    assert refused == {"SchedulingPolicy": "bob cannot list schedulingpolicies"}
    with pytest.raises(Forbidden):
        await as_allowed(cluster, wanted)
