# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Scopes of knowledge: workload classes are separate by namespace.

Tenants write labels, profiles and declared speeds, so a class in one namespace says nothing about
a class of the same name in another. The administrator may let namespaces share measurements.
Declarations are shared only from namespaces that are trusted.
"""

from __future__ import annotations

from dataclasses import replace

from ullage.api.schedulingpolicy import Knowledge
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot


def class_of(profile: ProfileRecord, knowledge: Knowledge) -> str:
    """The cluster-wide key of the profile's class."""
    return named(profile.workload_class, profile.namespace, knowledge)


def named(name: str, namespace: str, knowledge: Knowledge) -> str:
    """The cluster-wide key of a class or family of a namespace; empty for an empty name."""
    return f"{knowledge.scope(namespace)}/{name}" if name else ""


def partner_of(name: str, namespace: str, knowledge: Knowledge) -> str:
    """The key of a partner in a row; a partner of another namespace is ``NAMESPACE/CLASS``."""
    other, separator, class_name = name.partition("/")
    return named(class_name, other, knowledge) if separator else named(name, namespace, knowledge)


def is_shared(profile: ProfileRecord, knowledge: Knowledge) -> bool:
    """True when other namespaces learn from the profile's measurements."""
    return knowledge.scope(profile.namespace) != profile.namespace


def measured_only(profile: ProfileRecord, knowledge: Knowledge) -> ProfileRecord:
    """The profile without its declarations, unless those of its namespace are trusted."""
    if knowledge.trusts(profile.namespace):
        return profile
    return replace(profile, solo=(), step_time=(), op_table=None, family="")


def by_scope(snapshot: Snapshot) -> dict[str, list[ProfileRecord]]:
    """Profiles by scope, in order of their keys; shared ones with measurements only."""
    knowledge = snapshot.policy.knowledge
    profiles: dict[str, list[ProfileRecord]] = {}
    for key in sorted(snapshot.profiles):
        profile = snapshot.profiles[key]
        readable = measured_only(profile, knowledge) if is_shared(profile, knowledge) else profile
        profiles.setdefault(knowledge.scope(profile.namespace), []).append(readable)
    return profiles
