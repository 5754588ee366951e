# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose knowledge is whose: classes of work are told apart by namespace.

Labels, profiles and the speeds that people declare are written by tenants, so a class of one
namespace says nothing of a namesake elsewhere. The administrator may let namespaces share what was
measured in them; what is declared is never shared, unless a namespace's declarations are trusted.
"""

from __future__ import annotations

from dataclasses import replace

from ullage.api.schedulingpolicy import Knowledge
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot


def class_of(profile: ProfileRecord, knowledge: Knowledge) -> str:
    """Key of the profile's class among all namespaces."""
    return named(profile.workload_class, profile.namespace, knowledge)


def named(name: str, namespace: str, knowledge: Knowledge) -> str:
    """A class or family of a namespace as one name among all; empty stays empty."""
    return f"{knowledge.scope(namespace)}/{name}" if name else ""


def partner_of(name: str, namespace: str, knowledge: Knowledge) -> str:
    """The class of a partner in a row of the namespace; one of elsewhere says of which."""
    other, found, rest = name.partition("/")
    return named(rest, other, knowledge) if found else named(name, namespace, knowledge)


def is_shared(profile: ProfileRecord, knowledge: Knowledge) -> bool:
    """Whether other namespaces learn from what was measured of the profile."""
    return knowledge.scope(profile.namespace) != profile.namespace


def measured_only(profile: ProfileRecord, knowledge: Knowledge) -> ProfileRecord:
    """The profile without what was declared, which counts only where declarations are trusted."""
    if knowledge.trusts(profile.namespace):
        return profile
    return replace(profile, solo=(), step_time=(), op_table=None, family="")


def by_scope(snapshot: Snapshot) -> dict[str, list[ProfileRecord]]:
    """Profiles that may learn from each other, in order; where shared, what was measured alone."""
    knowledge = snapshot.policy.knowledge
    found: dict[str, list[ProfileRecord]] = {}
    for key in sorted(snapshot.profiles):
        one = snapshot.profiles[key]
        readable = measured_only(one, knowledge) if is_shared(one, knowledge) else one
        found.setdefault(knowledge.scope(one.namespace), []).append(readable)
    return found
