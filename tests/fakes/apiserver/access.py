# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who asks (bearer tokens) and what they may do (a table of rules)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fakes.apiserver.errors import Refusal

READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One allowed (group, resource or resource/subresource) with verbs; * is everything."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""

    def allows(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        return (
            self.group in ("*", group)
            and self.resource in ("*", resource)
            and ("*" in self.verbs or verb in self.verbs)
            and self.namespace in ("", namespace)
        )


class Access:
    """Open by default; tokens and rules close it."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.rules: list[Rule] | None = None
        self.anonymous = "system:admin"
        """Who a client without a token is while no tokens are set."""
        self.denied: set[tuple[str, str]] = set()

    def user(self, authorization: str) -> str:
        """Name of whoever asks; 401 for an unknown token."""
        if not self.tokens:
            return self.anonymous
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token not in self.tokens:
            raise Refusal(401, "Unauthorized")
        return self.tokens[token]

    def rotate(self, old: str, new: str) -> None:
        """The old token is answered with 401 from now on."""
        self.tokens[new] = self.tokens.pop(old)

    def allow_only(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)

    def deny(self, verb: str, resource: str) -> None:
        """Refuse one verb on ``plural`` or ``plural/subresource``."""
        self.denied.add((verb, resource))

    def allows(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        if (verb, resource) in self.denied:
            return False
        if self.rules is None or group in ("authorization.k8s.io", "authentication.k8s.io"):
            return True
        return any(rule.allows(verb, group, resource, namespace) for rule in self.rules)

    def check(
        self, user: str, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> None:
        """403 with the text of the real server."""
        if self.allows(verb, group, resource, namespace):
            return
        plural, _, _ = resource.partition("/")
        what = f'{plural} "{name}"' if name else plural
        if group:
            what = f'{plural}.{group} "{name}"' if name else f"{plural}.{group}"
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        raise Refusal(
            403,
            f'{what} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group '
            f'"{group}"{where}',
        )
