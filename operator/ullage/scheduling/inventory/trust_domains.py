# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""With whom a workload shares devices: its own namespace, or a domain that was granted to it.

A name that a workload merely states grants nothing. What runs in a domain that is not granted (any
more) stays, apart from everyone else, and gets no new place. A class that faulted a device is a
domain of its own for a while: no one new comes beside it, nor it beside anyone.
"""

from __future__ import annotations

from ullage.api.contract import default_trust_domain
from ullage.cluster.records.snapshot import PolicyRecord, WorkloadRecord
from ullage.cluster.records.spec_fields import EVERY_NAMESPACE
from ullage.scheduling.model.view import View


def effective_domain(view: View, workload: WorkloadRecord) -> str:
    """The domain whose devices a workload may share.

    One that is not granted becomes a domain of its namespace alone, a class that is isolated one of
    its own; no such name can be stated.
    """
    stated, namespace = workload.trust_domain, workload.ref.namespace
    if (namespace, workload.workload_class) in view.isolated:
        return f"{default_trust_domain(namespace)}/class/{workload.workload_class}"
    if is_granted(view.snapshot.policy, workload):
        return stated
    return f"{default_trust_domain(namespace)}/{stated}"


def is_granted(policy: PolicyRecord, workload: WorkloadRecord) -> bool:
    """Whether the domain is the namespace's own, or the policy lists the namespace for it."""
    stated, namespace = workload.trust_domain, workload.ref.namespace
    if stated == default_trust_domain(namespace):
        return True
    granted = policy.trust_domains.get(stated, frozenset())
    return namespace in granted or EVERY_NAMESPACE in granted


def not_granted(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """What stands in the way of a workload that states a domain; empty = nothing."""
    if is_granted(policy, workload):
        return ""
    return (
        f"trustDomain {workload.trust_domain} is not granted to namespace {workload.ref.namespace}"
    )
