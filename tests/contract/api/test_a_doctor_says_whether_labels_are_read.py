# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether labels on pods of other controllers are read, on objects as an API server gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.apiserver import FakeApiServer
from fakes.apiserver.patches import json_patch
from ullage.api.checks import CheckState
from ullage.cli import adoption_policy
from ullage.cli.adoption_policy import REHEARSED, WEBHOOKS, labels_are_read, mutating_policy
from ullage.kube.client import K8sCluster
from ullage.ports import POD, Forbidden, JsonObject, Kind, Page, Selector, Unavailable
from ullage.webhook.mutation import mutation

SERVED = mutating_policy("v1beta1")


def installed(name: str, chart: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"helm.sh/chart": chart}}, "spec": {}}


@pytest.fixture
def prepares(cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server prepares labelled pods, as with the policy or the webhook."""
    plain = cluster.rehearse

    async def prepared(kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        pod = dict(await plain(kind, body, namespace=namespace))
        return dict(json_patch(pod, mutation(pod)))

    monkeypatch.setattr(cluster, "rehearse", prepared)


@pytest.mark.usefixtures("prepares")
@pytest.mark.parametrize(
    ("kind", "said"), [(SERVED, "MutatingAdmissionPolicy v1beta1"), (WEBHOOKS, "the webhook")]
)
async def test_what_is_installed_and_answers_is_named(
    api: FakeApiServer, cluster: K8sCluster, kind: Kind, said: str
) -> None:
    api.put(kind, installed("gpu-adoption", "ullage-0.1.0"))
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.OK
    assert f"{said} is installed; it prepares" in found.message


@pytest.mark.parametrize("kind", [SERVED, WEBHOOKS])
async def test_what_is_installed_and_does_not_answer_is_not_confirmed(
    api: FakeApiServer, cluster: K8sCluster, kind: Kind
) -> None:
    api.put(kind, installed("gpu-adoption", "ullage-0.1.0"))
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.UNCONFIRMED
    assert "is installed; a labelled pod in default is not prepared" in found.message
    assert "component=webhook" in found.remedy


async def test_policies_of_others_do_not_count(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.put(SERVED, installed("theirs", "another-1.0.0"))
    api.put(WEBHOOKS, installed("theirs", "another-1.0.0"))
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.UNCONFIRMED
    assert "v1beta1 of MutatingAdmissionPolicy is served, none of Ullage" in found.message
    assert "admissionPolicy.adoption.enabled=true" in found.remedy


async def test_an_api_server_that_serves_none_is_named(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption_policy, "VERSIONS", ("v1", "v1alpha1"))  # the fake serves neither
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.UNCONFIRMED
    assert "no MutatingAdmissionPolicy is served" in found.message


@pytest.mark.usefixtures("prepares")
async def test_who_may_not_list_policies_is_told_what_pods_get(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(kind: Kind, _: Selector) -> AsyncIterator[Page]:
        raise Forbidden(403, f"bob cannot list {kind.plural}")

    monkeypatch.setattr(cluster, "list_paged", refused)
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.OK
    assert "bob cannot list mutatingadmissionpolicies" in found.message


@pytest.mark.parametrize(
    "error", [Forbidden(403, "bob cannot create pods"), Unavailable(0, "timed out")]
)
async def test_who_may_create_no_pods_is_told_what_to_name(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def refused(*_: object, **__: object) -> JsonObject:
        raise error

    monkeypatch.setattr(cluster, "rehearse", refused)
    found = await labels_are_read(cluster, "default")
    assert found.state is CheckState.UNCONFIRMED
    assert error.args[0].partition(": ")[2] in found.message
    assert "a namespace in which you may create pods (now default)" in found.remedy


async def test_a_rehearsal_stores_nothing(api: FakeApiServer, cluster: K8sCluster) -> None:
    pod = await cluster.rehearse(POD, REHEARSED, namespace="default")
    assert str(pod["metadata"]["name"]).startswith("ullage-doctor-")  # type: ignore[index]
    assert [page.items async for page in cluster.list_paged(POD, Selector())] == [[]]
