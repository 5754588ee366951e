# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two namespaces of two tenants: one borrows what the other leaves unused, and gives it back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from e2e.stack import Json, Stack, busy_template, eventually, training_job, whole_device


def tenant(name: str, namespace: str) -> Json:
    return {
        "name": name,
        "namespaces": [namespace],
        "cohort": "all",
        "reclaimWithinCohort": "Any",
        "quota": [{"accelerator": "emulated", "nominalQuota": 100}],
    }


@pytest.fixture
def owner(stack: Stack, namespace: str) -> Iterator[str]:
    """A second namespace and a policy with one device for each; as before afterwards."""
    other = f"t-{uuid.uuid4().hex[:8]}"
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {"tenants": [tenant("borrower", namespace), tenant("owner", other)]},
    }
    stack.create_namespace(other)
    try:
        stack.apply(policy)
        yield other
    finally:
        stack.cluster.kubectl("delete", "trainingjobs.ullage.dev", "--all", "-n", namespace)
        stack.clean(other)
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )


def job(name: str, namespace: str, seconds: int) -> Json:
    return training_job(
        name, namespace, busy_template(seconds), gpu=whole_device(), checkpoint={"graceSeconds": 5}
    )


def held(stack: Stack) -> dict[str, tuple[int, ...]]:
    """Nominal quota, used, borrowed and available by tenant, as the policy's status tells it."""
    status = (stack.get("schedulingpolicies.ullage.dev", "default") or {}).get("status", {})
    figures = ("nominalQuota", "used", "borrowed", "available")
    return {
        one["tenant"]: tuple(one[figure] for figure in figures)
        for one in status.get("quota", {}).get("usage", [])
    }


def test_lent_quota_is_borrowed_and_taken_back(stack: Stack, namespace: str, owner: str) -> None:
    stack.apply(job("inside", namespace, 3600))
    stack.job_reaches("inside", namespace, "Running")
    stack.apply(job("borrows", namespace, 3600))
    stack.job_reaches("borrows", namespace, "Running")
    stack.apply(job("third", namespace, 3600))
    decision = stack.job_waits_for("third", namespace, "QuotaExceeded")
    assert (
        "tenant borrower holds 200 % of emulated, its nominal quota is 100 %"
        in (decision["message"])
    )
    eventually(
        lambda: held(stack) == {"borrower": (100, 200, 100, 0), "owner": (100, 0, 0, 0)},
        within_s=30,
        what="the policy's status tells what is borrowed",
    )
    head, row = stack.cluster.kubectl("get", "schedulingpolicies.ullage.dev").stdout.splitlines()
    assert row[head.index("BORROWING") :].split()[0] == "1"
    stack.delete(
        "trainingjob.ullage.dev", "third", namespace
    )  # else it borrows what returns leaves
    stack.apply(job("returns", owner, 3))
    stack.job_reaches("returns", owner, "Succeeded")
    told = eventually(
        lambda: [e for e in stack.events(namespace, "borrows") if e["reason"] == "QuotaReclaimed"],
        within_s=30,
        what="an Event on the job that gave back what it borrowed",
    )
    assert (
        "takes back quota of tenant owner that tenant borrower had borrowed" in (told[0]["message"])
    )
    reasons = {e["reason"] for e in stack.events(namespace, "inside")}
    assert reasons.isdisjoint({"Preempted", "QuotaReclaimed"})
    stack.job_reaches("borrows", namespace, "Running", within_s=120)
    stack.books_balance()


def test_no_name_is_a_way_around_a_quota(stack: Stack, namespace: str, owner: str) -> None:
    forged = job("forged", namespace, 3600)
    forged["spec"]["tenant"] = "owner"
    stack.apply(forged)
    stack.job_waits_for("forged", namespace, "TenantNotAllowed")


def test_a_resource_quota_of_slots_counts_beside_it(stack: Stack, namespace: str) -> None:
    slots = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "one-slot", "namespace": namespace},
        "spec": {"hard": {"requests.ullage.dev/slot": "1"}},
    }
    stack.apply(slots)
    stack.apply(job("fits", namespace, 3600))
    stack.job_reaches("fits", namespace, "Running")
    stack.apply(job("second", namespace, 3600))
    decision = stack.job_waits_for("second", namespace, "CreateRefused")
    assert "exceeded quota: one-slot" in decision["message"]
