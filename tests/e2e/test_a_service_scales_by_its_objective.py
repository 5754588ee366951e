# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``scaling.policy: SLO`` on a real cluster: a load grows, replicas follow; it ends, they go."""

from __future__ import annotations

from e2e.served import (
    HEAVY_PER_S,
    KIND,
    LIGHT_PER_S,
    MOST,
    NAME,
    offered,
    replicas_of,
    scaled_service,
    status_of,
    until,
    url_of,
)
from e2e.stack import Stack


def test_replicas_follow_the_load_and_go_with_it(stack: Stack, namespace: str) -> None:
    stack.apply(scaled_service(namespace, "SLO"))
    until(
        stack,
        namespace,
        "a ready replica",
        120,
        lambda it: it.get("status", {}).get("readyReplicas") == 1,
    )
    url = url_of(stack, namespace)
    with offered(url, LIGHT_PER_S):
        known = until(
            stack,
            namespace,
            "its load is known",
            120,
            lambda it: it.get("status", {}).get("scaling", {}).get("load"),
        )
        assert known["spec"]["replicas"] == 1
        conditions = {one["type"]: one for one in known["status"]["conditions"]}
        assert conditions["ScalingActive"]["status"] == "True"
    with offered(url, HEAVY_PER_S) as load:
        more = until(stack, namespace, "more replicas", 180, lambda it: it["spec"]["replicas"] >= 2)
        assert more["spec"]["replicas"] <= MOST
        until(
            stack,
            namespace,
            "two ready replicas",
            180,
            lambda it: it.get("status", {}).get("readyReplicas", 0) >= 2,
        )
    assert any(one.latency_s is not None for one in load.made)
    reasons = [one["reason"] for one in stack.events(namespace, NAME)]
    assert "ScaledUp" in reasons
    with offered(url, LIGHT_PER_S):
        until(stack, namespace, "one replica again", 420, lambda it: it["spec"]["replicas"] == 1)
    assert "ScaledDown" in [one["reason"] for one in stack.events(namespace, NAME)]


def test_with_policy_external_the_number_is_that_of_others(stack: Stack, namespace: str) -> None:
    stack.apply(scaled_service(namespace, "External"))
    until(
        stack,
        namespace,
        "a ready replica",
        120,
        lambda it: it.get("status", {}).get("readyReplicas") == 1,
    )
    stack.cluster.kubectl("scale", f"{KIND}/{NAME}", "--replicas", "2", "--namespace", namespace)
    with offered(url_of(stack, namespace), LIGHT_PER_S):
        until(
            stack,
            namespace,
            "two replicas that exist",
            120,
            lambda it: it.get("status", {}).get("replicas") == 2,
        )
    assert replicas_of(stack, namespace) == 2
    assert "scaling" not in status_of(stack, namespace)
