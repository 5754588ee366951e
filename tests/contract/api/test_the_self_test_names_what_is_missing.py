# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Before the operator starts: identity, permissions, CRDs."""

from __future__ import annotations

import pytest

from fakes.apiserver import RESOURCES, FakeApiServer, make_cluster
from fakes.apiserver.roles import operator_rules
from ullage.cluster.values.streams import STREAMS
from ullage.kube.client import K8sCluster
from ullage.kube.permissions import REQUIRED_VERBS
from ullage.kube.self_test import SelfTestFailed, run_self_test
from ullage.ports import GPU_NODE, TRAINING_JOB, Unavailable

OWN = "ullage-system"
USER = f"system:serviceaccount:{OWN}:ullage-operator"


async def test_the_roles_of_the_table_are_enough(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.access.allow_only(operator_rules(OWN))
    assert await run_self_test(cluster, namespace=OWN) == "system:admin"


async def test_every_denied_verb_is_named(api: FakeApiServer, cluster: K8sCluster) -> None:
    for permission in REQUIRED_VERBS[::5]:
        api.access.denied = {(permission.verb, permission.resource)}
        with pytest.raises(SelfTestFailed) as failed:
            await run_self_test(cluster, namespace=OWN)
        assert f"may not {permission.verb} {permission.resource} in API group" in str(failed.value)
        assert "install the roles of chart ullage" in str(failed.value)


async def test_the_lease_is_wanted_in_the_own_namespace_alone(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.access.allow_only(operator_rules(OWN))
    with pytest.raises(SelfTestFailed, match=r"update leases .* in the operator's namespace"):
        await run_self_test(cluster, namespace="elsewhere")


async def test_a_missing_crd_names_the_chart() -> None:
    without = tuple(r for r in RESOURCES if r.kind != TRAINING_JOB)
    async with FakeApiServer(resources=without) as api, make_cluster(api.url) as cluster:
        with pytest.raises(SelfTestFailed) as failed:
            await run_self_test(cluster, namespace=OWN)
    expected = "CRD trainingjobs.ullage.dev is missing: install chart ullage-crds first"
    assert str(failed.value) == expected


async def test_without_any_crd_all_are_named() -> None:
    without = tuple(r for r in RESOURCES if not r.custom)
    async with FakeApiServer(resources=without) as api, make_cluster(api.url) as cluster:
        with pytest.raises(SelfTestFailed) as failed:
            await run_self_test(cluster, namespace=OWN)
    for stream in STREAMS:
        if stream.kind.group == "ullage.dev":
            assert f"{stream.kind.plural}.ullage.dev" in str(failed.value)


async def test_refused_credentials_name_their_source(api: FakeApiServer) -> None:
    api.access.tokens["good"] = USER
    async with make_cluster(api.url, token="bad") as cluster:
        with pytest.raises(SelfTestFailed, match="refuses the credentials"):
            await run_self_test(cluster, namespace=OWN)
    async with make_cluster(api.url, token="good") as cluster:
        assert await run_self_test(cluster, namespace=OWN) == USER


async def test_an_anonymous_client_is_told_so(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.access.anonymous = "system:anonymous"
    with pytest.raises(SelfTestFailed, match="does not know who we are"):
        await run_self_test(cluster, namespace=OWN)


async def test_an_unreachable_server_is_no_failed_self_test(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.fail(503, times=None)
    with pytest.raises(Unavailable):
        await run_self_test(cluster, namespace=OWN)


async def test_the_table_covers_every_call_of_the_streams() -> None:
    granted = {(p.kind, p.verb) for p in REQUIRED_VERBS if not p.subresource}
    for stream in STREAMS:
        assert {(stream.kind, verb) for verb in ("list", "watch")} <= granted


async def test_a_denied_verb_is_refused_with_its_name(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.access.deny("patch", "gpunodes")
    with pytest.raises(Exception, match='cannot patch resource "gpunodes"'):
        await cluster.apply(
            GPU_NODE, "n", {"metadata": {"name": "n"}, "spec": {"epoch": 1}}, manager="m"
        )
