# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's roles, as an API server applies them."""

from __future__ import annotations

from docs.generate.rights import role_rules
from fakes.apiserver.access import Rule
from ullage.kube.permissions import Scope


def operator_rules(namespace: str) -> list[Rule]:
    """All rules, those of its own namespace in this one."""
    return [
        Rule(
            group=rule["apiGroups"][0],
            resource=resource,
            verbs=tuple(rule["verbs"]),
            namespace=namespace if scope is Scope.OWN_NAMESPACE else "",
        )
        for scope in Scope
        for rule in role_rules(scope)
        for resource in rule["resources"]
    ]
