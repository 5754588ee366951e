# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the operator's roles, from the verbs that it uses."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.kube.permissions import REQUIRED_VERBS, Scope


def role_rules(scope: Scope) -> list[dict[str, list[str]]]:
    """The ``rules`` of the ClusterRole, or of the Role in the operator's namespace.

    Resources of one group with the same verbs share a rule; everything is sorted, so that the
    result can be compared with the chart's.
    """
    verbs: dict[tuple[str, str], set[str]] = {}
    for permission in REQUIRED_VERBS:
        if permission.scope is scope:
            at = (permission.kind.group, permission.resource)
            verbs.setdefault(at, set()).add(permission.verb)
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), wanted in sorted(verbs.items()):
        rules.setdefault((group, tuple(sorted(wanted))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(wanted)}
        for (group, wanted), resources in rules.items()
    ]


def reasons() -> Iterator[tuple[str, str, str, str]]:
    """API group, resource, verbs and what they are for: one row for each purpose, sorted."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for permission in REQUIRED_VERBS:
        at = (permission.kind.group, permission.resource, permission.why)
        verbs.setdefault(at, []).append(permission.verb)
    for (group, resource, why), held in sorted(verbs.items()):
        yield group, resource, ", ".join(sorted(held)), why
