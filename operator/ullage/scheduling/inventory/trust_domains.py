# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trust domains: a workload shares devices inside its namespace, or a domain granted to it.

A name in a workload alone grants nothing. Work in a domain that is not granted (any more) stays,
isolated from all others, and gets no new place. A class that caused a device fault is a domain of
its own for a while and gets no new neighbours.
"""

from __future__ import annotations

from typing import Final

from ullage.api.schedulingpolicy import EVERY_NAMESPACE
from ullage.api.slices import default_trust_domain
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.view import View

_APART: Final = "//"
"""Prefix of an isolated class; in no other domain."""
_FAULTED: Final = "faulted a device lately and shares devices with itself alone for a while"


def effective_domain(view: View, workload: WorkloadRecord) -> str:
    """The domain whose devices a workload may share.

    An ungranted domain becomes one of its namespace alone, an isolated class a domain of its own;
    no such name can be declared.
    """
    name, namespace = workload.trust_domain, workload.ref.namespace
    domain = name
    if not is_granted(view.snapshot.policy, workload):
        domain = f"{default_trust_domain(namespace)}/{name}"
    if (namespace, workload.workload_class) in view.isolated:
        domain += f"{_APART}{namespace}/{workload.workload_class}"
    return domain


def why_apart(own: str, other: str) -> str:
    """Reason why work in domain ``own`` may not share with work in ``other``, for its user.

    A class is named only if it is of that user's namespace.
    """
    domain, apart, own_class = own.partition(_APART)
    if apart:
        return f"its class {own_class.partition('/')[2]} {_FAULTED}"
    beside, apart, their_class = other.partition(_APART)
    if apart and beside == domain:
        namespace, _, name = their_class.partition("/")
        of_user = domain == default_trust_domain(namespace)
        return f"class {name} on it {_FAULTED}" if of_user else f"a class on it {_FAULTED}"
    return (
        "work that it may not share with is on it: a device is shared inside one trust domain, "
        f"and this workload belongs to {own}"
    )


def is_granted(policy: PolicyRecord, workload: WorkloadRecord) -> bool:
    """True when the domain is the namespace's own, or the policy lists the namespace for it."""
    name, namespace = workload.trust_domain, workload.ref.namespace
    if name == default_trust_domain(namespace):
        return True
    granted = policy.trust_domains.get(name, frozenset())
    return namespace in granted or EVERY_NAMESPACE in granted


def not_granted(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """Reason why a workload may not use the domain that it declares; empty = it may."""
    if is_granted(policy, workload):
        return ""
    return (
        f"trustDomain {workload.trust_domain} is not granted to namespace {workload.ref.namespace}"
    )
