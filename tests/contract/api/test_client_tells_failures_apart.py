# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the client makes of refusals, silence and broken connections."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from contract.api.suite.world import a_pod
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.apiserver.client import QUICK
from ullage.kube.answers import BadLine, WatchStalled
from ullage.kube.client import APPLY, JSON_PATCH, K8sCluster
from ullage.kube.transport import TransportLimits
from ullage.ports import (
    GPU_NODE,
    POD,
    ApiError,
    BadRequest,
    ClusterPort,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Kind,
    NotFound,
    Selector,
    Throttled,
    Unavailable,
)

ALL = Selector()


def node(name: str, epoch: int = 1) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"epoch": epoch}}


def port(cluster: K8sCluster) -> ClusterPort:
    """The adapter is the seam: mypy checks it here."""
    return cluster


async def watch(cluster: K8sCluster, kind: Kind, version: str, seconds: int = 1) -> list[str]:
    stream = cluster.watch(kind, ALL, resource_version=version, timeout_s=seconds)
    async with aclosing(stream):
        return [event.type async for event in stream]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (413, BadRequest),
        (422, Invalid),
        (429, Throttled),
        (500, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (0, Unavailable),
    ],
)
async def test_each_status_has_its_error(
    api: FakeApiServer, cluster: K8sCluster, status: int, error: type[ApiError]
) -> None:
    api.fail(status, times=None, message="the server's own text", verb="create")
    with pytest.raises(error) as raised:
        await port(cluster).create(GPU_NODE, node("n"))
    assert type(raised.value) is error
    assert raised.value.status == status
    if status:
        assert raised.value.message == "the server's own text"


async def test_a_read_is_repeated_while_the_server_is_unavailable(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.put(GPU_NODE, node("n"))
    api.fail(503, times=1)
    api.fail(0, times=1)
    assert (await cluster.get(GPU_NODE, "n"))["spec"] == {"epoch": 1}
    assert [seen.status for seen in api.requests] == [503, 500, 200]


async def test_a_read_gives_up_after_a_few_tries(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.fail(503, times=None)
    with pytest.raises(Unavailable):
        await cluster.get(GPU_NODE, "n")
    assert len(api.requests) == 3


async def test_a_write_is_never_repeated(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.fail(503, times=1)
    with pytest.raises(Unavailable):
        await cluster.create(GPU_NODE, node("n"))
    assert api.writes == {("create", "gpunodes", "", 503): 1}


async def test_a_write_whose_answer_is_lost_may_have_happened(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.fail(0, after_write=True)
    with pytest.raises(Unavailable):
        await cluster.create(GPU_NODE, node("n"))
    assert api.get(GPU_NODE, "n") is not None


async def test_too_many_requests_say_how_long_to_wait(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.fail(429, retry_after_s=7)
    with pytest.raises(Throttled) as raised:
        await cluster.create(GPU_NODE, node("n"))
    assert raised.value.retry_after_s == 7


async def test_an_eviction_that_a_budget_refuses_is_throttled(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    pod = api.put(POD, {**a_pod("p"), "metadata": {"name": "p", "namespace": "d"}})
    uid = pod["metadata"]["uid"]
    api.faults.eviction_budget = 0
    with pytest.raises(Throttled, match="disruption budget") as raised:
        await cluster.evict("p", namespace="d", uid=uid)
    assert raised.value.retry_after_s == 10
    api.faults.eviction_budget = 1
    await cluster.evict("p", namespace="d", uid=uid)
    assert api.objects(POD) == []


async def test_a_slow_answer_ends_at_the_time_limit(api: FakeApiServer) -> None:
    api.faults.slow_first_byte_s = 5.0
    async with make_cluster(api.url, limits=TransportLimits(write_s=0.1)) as cluster:
        with pytest.raises(Unavailable, match="TimeoutError"):
            await cluster.create(GPU_NODE, node("n"))


async def test_no_one_listening_is_unavailable(api: FakeApiServer, cluster: K8sCluster) -> None:
    await api.stop()
    with pytest.raises(Unavailable) as raised:
        await cluster.get(GPU_NODE, "n")
    assert raised.value.status == 0
    await api.start()


async def test_patches_bear_their_content_type(api: FakeApiServer, cluster: K8sCluster) -> None:
    await cluster.apply(GPU_NODE, "n", node("n"), manager="ullage-scheduler")
    await cluster.json_patch(GPU_NODE, "n", ({"op": "replace", "path": "/spec/epoch", "value": 2},))
    await cluster.json_patch(GPU_NODE, "n", ())
    applied, patched, empty = api.requests
    assert applied.content_type == APPLY
    assert applied.query == {
        "fieldManager": "ullage-scheduler",
        "force": "true",
        "timeout": f"{QUICK.write_s:g}s",
    }
    assert patched.content_type == JSON_PATCH
    assert empty.content_type == JSON_PATCH
    assert patched.user_agent == "ullage-operator"


async def test_a_continued_list_that_is_too_old_is_gone(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    for number in range(3):
        api.put(GPU_NODE, node(f"n{number}"))
    api.faults.list_gone = 1
    pages = cluster.list_paged(GPU_NODE, ALL, limit=2)
    assert len((await anext(pages)).items) == 2
    with pytest.raises(Gone):
        await anext(pages)


async def test_a_frozen_watch_is_a_stall(api: FakeApiServer) -> None:
    api.faults.freeze_watches()
    async with make_cluster(api.url, limits=TransportLimits(watch_grace_s=-0.8)) as cluster:
        with pytest.raises(WatchStalled):
            await watch(cluster, GPU_NODE, str(api.version))


@pytest.mark.parametrize("over_http", [False, True])
async def test_a_watch_from_a_forgotten_version_is_gone(
    api: FakeApiServer, cluster: K8sCluster, over_http: bool
) -> None:
    api.faults.gone_storm = 1
    api.faults.gone_over_http = over_http
    with pytest.raises(Gone):
        await watch(cluster, GPU_NODE, str(api.version))


async def test_an_error_inside_a_watch_is_raised(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.faults.watch_errors = [500]
    with pytest.raises(Unavailable) as raised:
        await watch(cluster, GPU_NODE, str(api.version))
    assert raised.value.status == 500


async def test_a_line_that_is_no_event_is_told_apart(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    start = str(api.version)
    api.put(GPU_NODE, node("n"))
    api.faults.bad_lines = 1
    with pytest.raises(BadLine):
        await watch(cluster, GPU_NODE, start)


@pytest.mark.slow
async def test_half_a_line_is_no_event(api: FakeApiServer, cluster: K8sCluster) -> None:
    start = str(api.version)
    api.put(GPU_NODE, node("n"))
    api.faults.half_lines = 1
    with pytest.raises(Unavailable) as raised:
        await watch(cluster, GPU_NODE, start)
    assert raised.value.status == 0
    assert await watch(cluster, GPU_NODE, start) == ["ADDED", "BOOKMARK"]


async def test_a_namespaced_kind_needs_its_namespace(cluster: K8sCluster) -> None:
    with pytest.raises(ValueError, match="pods are namespaced"):
        await cluster.get(POD, "p")


async def test_names_cannot_escape_their_path(api: FakeApiServer, cluster: K8sCluster) -> None:
    with pytest.raises(NotFound):
        await cluster.get(GPU_NODE, "../nodes")
    assert api.requests[-1].ask.plural == "gpunodes"
