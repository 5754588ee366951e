# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A deleted service answers what its router holds; the operator may hold it back and no more."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from bench.api_client import Answer, ApiClient
from demo.install import NAMESPACE
from e2e.routed import KIND, loaded, replicas_of, routers, serves, service
from e2e.stack import Stack, eventually

OPERATOR = f"system:serviceaccount:{NAMESPACE}:ullage-operator"
FINALIZER = "ullage.dev/life"


def _finalizers(stack: Stack, namespace: str) -> list[str]:
    held = stack.get(KIND, "reader", namespace)
    return held["metadata"].get("finalizers", []) if held else []


def test_a_deleted_service_answers_what_its_router_holds(stack: Stack, namespace: str) -> None:
    stack.apply(service(namespace, hidden="4096"))
    url = serves(stack, namespace, 2)
    assert _finalizers(stack, namespace) == [FINALIZER]
    # a connection to the address of a Service that is gone is never answered
    with loaded(url, timeout_s=20) as load:
        load.more(20)
        stack.delete(KIND, "reader", namespace, "--wait=false")
        draining = True
        while draining:
            replicas = replicas_of(stack, namespace)
            draining = any(
                router["status"]["phase"] == "Running" for router in routers(stack, namespace)
            )
            assert replicas or not draining, "the replicas outlive the router"
        eventually(
            lambda: stack.get(KIND, "reader", namespace) is None,
            within_s=60,
            what="the service is gone",
        )
    # a listener that is closed refuses; a request that was taken has its answer
    assert [error for error in load.errors if "HTTPError" in error] == []
    stack.tells(namespace, "reader", "RouterDrains")


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"replicas": 7}},
        {"metadata": {"labels": {"team": "other"}}},
        {"metadata": {"annotations": {"note": "other"}}},
        {"metadata": {"finalizers": ["other/finalizer"]}},
    ],
    ids=["spec", "labels", "annotations", "finalizers"],
)
def test_the_operator_changes_nothing_but_its_finalizer(
    stack: Stack, namespace: str, patch: dict[str, object]
) -> None:
    stack.apply(service(namespace, replicas=0))
    api = ApiClient(stack.cluster.kubeconfig)
    path = f"/apis/ullage.dev/v1alpha1/namespaces/{namespace}/inferencedeployments/reader"

    def patched(body: dict[str, object]) -> Answer:
        content = "application/merge-patch+json"
        return api.ask("PATCH", path, json.dumps(body), user=OPERATOR, content=content)

    ours = patched({"metadata": {"finalizers": ["ullage.dev/life"]}})
    assert ours.accepted, ours.message
    refused = patched(patch)
    assert refused.status == HTTPStatus.FORBIDDEN
    assert "the operator" in refused.message
