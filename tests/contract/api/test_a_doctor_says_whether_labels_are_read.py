# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether labels on pods of other controllers are read, on objects as an API server gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.apiserver import FakeApiServer
from ullage.api.contract import CheckState
from ullage.cli import adoption_policy
from ullage.cli.adoption_policy import labels_are_read, mutating_policy
from ullage.kube.client import K8sCluster
from ullage.ports import Forbidden, Page

SERVED = mutating_policy("v1beta1")


def a_policy(name: str, owner: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/name": owner}}, "spec": {}}


async def test_an_installed_policy_confirms_it_in_the_version_that_is_served(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    api.put(SERVED, a_policy("gpu-adoption", "ullage"))
    found = await labels_are_read(cluster)
    assert found.state is CheckState.OK
    assert "v1beta1" in found.message


async def test_policies_of_others_do_not_count(api: FakeApiServer, cluster: K8sCluster) -> None:
    api.put(SERVED, a_policy("theirs", "another"))
    found = await labels_are_read(cluster)
    assert found.state is CheckState.UNCONFIRMED
    assert "admissionPolicy.adoption.enabled=true" in found.remedy


async def test_an_api_server_that_serves_none_is_named_with_what_helps(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption_policy, "VERSIONS", ("v1", "v1alpha1"))  # the fake serves neither
    found = await labels_are_read(cluster)
    assert found.state is CheckState.UNCONFIRMED
    assert "serves no MutatingAdmissionPolicy" in found.message
    assert "1.36" in found.remedy


async def test_who_may_not_list_policies_is_told_which_right_is_missing(
    cluster: K8sCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> AsyncIterator[Page]:
        raise Forbidden(403, "bob cannot list mutatingadmissionpolicies")

    monkeypatch.setattr(cluster, "list_paged", refused)
    found = await labels_are_read(cluster)
    assert found.state is CheckState.UNCONFIRMED
    assert "bob cannot list" in found.message
    assert "right to list mutatingadmissionpolicies" in found.remedy
