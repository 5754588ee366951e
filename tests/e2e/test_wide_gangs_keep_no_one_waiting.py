# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gangs that may take 4,096 members leave small jobs of another tenant their slots."""

from __future__ import annotations

from e2e.stack import Stack, busy_template, eventually, share, training_job

DOMAIN = "shared"
WIDE = ["wide-0", "wide-1"]
SMALL = [f"small-{number}" for number in range(4)]


def _decision(stack: Stack, namespace: str, name: str) -> dict[str, str]:
    return dict(stack.job(name, namespace).get("decision", {}))


def test_a_share_that_no_node_can_enforce_gets_a_reason_and_no_pod(
    stack: Stack, namespace: str
) -> None:
    """A percent of an emulated device is less than the kernel gives."""
    stack.apply(training_job("tiny", namespace, busy_template(3600), gpu=share(1, 100)))
    eventually(
        lambda: _decision(stack, namespace, "tiny").get("reason") == "ShareTooSmall",
        within_s=60,
        what="it is refused before a node hears of it",
    )
    assert "raise gpu.share.minPercent" in _decision(stack, namespace, "tiny")["message"]
    assert not stack.pods(namespace, "tiny")


def test_two_wide_gangs_on_two_devices_leave_room_for_small_jobs_of_others(
    stack: Stack, namespace: str
) -> None:
    """Without the domain strangers would share no device at all, wide or not."""
    wide = {
        "elasticity": {"minReplicas": 1, "maxReplicas": 4096},
        "gpu": share(2, 100),
        "checkpoint": {"graceSeconds": 5},
        "trustDomain": DOMAIN,
    }
    stack.apply(
        {
            "apiVersion": "ullage.dev/v1alpha1",
            "kind": "SchedulingPolicy",
            "metadata": {"name": "default"},
            "spec": {"trustDomains": [{"name": DOMAIN, "namespaces": ["*"]}]},
        }
    )
    try:
        stack.apply(*(training_job(name, namespace, busy_template(3600), **wide) for name in WIDE))
        eventually(
            lambda: any(_decision(stack, namespace, name) for name in WIDE),
            within_s=120,
            what="one of them was decided about",
        )
        with stack.own_namespace() as others:
            stack.apply(
                *(
                    training_job(
                        name, others, busy_template(3600), gpu=share(5), trustDomain=DOMAIN
                    )
                    for name in SMALL
                )
            )
            for name in SMALL:
                stack.job_reaches(name, others, "Running")
            for name in WIDE:
                stack.delete("trainingjob.ullage.dev", name, namespace)
        stack.books_balance()
    finally:
        stack.cluster.kubectl("delete", "schedulingpolicies.ullage.dev", "default")
