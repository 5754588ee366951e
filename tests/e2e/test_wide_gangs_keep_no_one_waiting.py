# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gangs that may take 4,096 members leave small jobs of another tenant their slots."""

from __future__ import annotations

from e2e.stack import Stack, busy_template, eventually, share, training_job

DOMAIN = "shared"
WIDE = ["wide-0", "wide-1"]
SMALL = [f"small-{number}" for number in range(4)]


def _is_refused(stack: Stack, namespace: str, name: str) -> bool:
    decision = stack.job(name, namespace).get("decision", {})
    return bool(decision.get("reason") == "ReservationRefused")


def test_two_wide_gangs_on_two_devices_leave_room_for_small_jobs_of_others(
    stack: Stack, namespace: str
) -> None:
    """Their own nodes refuse them: a percent of an emulated device is less than the kernel gives.

    They are refused and back off again and again, and keep no one waiting meanwhile. Without the
    domain strangers would share no device at all, wide or not.
    """
    wide = {
        "elasticity": {"minReplicas": 1, "maxReplicas": 4096},
        "gpu": share(1, 100),
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
            lambda: any(_is_refused(stack, namespace, name) for name in WIDE),
            within_s=120,
            what="a node has refused one of them",
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
