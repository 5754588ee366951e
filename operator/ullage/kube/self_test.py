# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks before the operator starts: authenticated, authorised, CRDs present.

Without it a missing verb looks like slowness for minutes. Never repairs anything: the texts tell
the administrator what to do.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from ullage.api.labels import API_VERSION
from ullage.cluster.values.streams import STREAMS
from ullage.kube.permissions import REQUIRED_VERBS, Permission, Scope
from ullage.ports import ClusterPort, Forbidden, JsonObject, Kind

SUBJECT_REVIEW: Final = Kind(
    group="authentication.k8s.io",
    version="v1",
    plural="selfsubjectreviews",
    kind="SelfSubjectReview",
    namespaced=False,
)
ACCESS_REVIEW: Final = Kind(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    namespaced=False,
)
AT_ONCE: Final = 10
"""Concurrent reviews."""


class SelfTestFailed(Exception):
    """The operator cannot work in this cluster; the text has the reason and the remedy."""


class Introspection(ClusterPort, Protocol):
    """The cluster with its discovery."""

    async def served(self, api_version: str) -> frozenset[str]:
        """Plurals offered under ``group/version``."""
        ...

    @property
    def source(self) -> str:
        """Source of the credentials."""
        ...


async def run_self_test(cluster: Introspection, *, namespace: str) -> str:
    """Check everything and return our user name at the API server.

    Args:
        cluster: The API server.
        namespace: Namespace of the operator and its Lease.

    Raises:
        SelfTestFailed: something is missing.
        ApiError: the API server cannot be reached.
    """
    user = await identity(cluster)
    await check_crds(cluster)
    await check_permissions(cluster, user=user, namespace=namespace)
    return user


async def identity(cluster: Introspection) -> str:
    """Our identity at the API server.

    Raises:
        SelfTestFailed: it rejects our credentials.
    """
    try:
        answer = await cluster.create(SUBJECT_REVIEW, {})
    except Forbidden as error:
        raise SelfTestFailed(
            f"the API server refuses the credentials ({cluster.source}): {error.message}"
        ) from error
    user = str(_section(_section(answer, "status"), "userInfo").get("username", ""))
    if user in ("", "system:anonymous"):
        raise SelfTestFailed(
            f"the API server does not know who we are: no token or certificate came from "
            f"{cluster.source}"
        )
    return user


async def check_crds(cluster: Introspection) -> None:
    """Check that all our kinds are served in this build's version.

    Raises:
        SelfTestFailed: names every CRD that is missing.
    """
    served = await cluster.served(API_VERSION)
    ours = {s.kind.plural: s.kind for s in STREAMS if s.kind.api_version == API_VERSION}
    missing = [f"{plural}.{kind.group}" for plural, kind in ours.items() if plural not in served]
    if missing:
        what = f"CRD {missing[0]} is" if len(missing) == 1 else f"CRDs {', '.join(missing)} are"
        raise SelfTestFailed(f"{what} missing: install chart ullage-crds first")


async def check_permissions(cluster: ClusterPort, *, user: str, namespace: str) -> None:
    """Check that every verb of the table is allowed.

    Raises:
        SelfTestFailed: names every missing verb and resource.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(permission: Permission) -> bool:
        async with gate:
            answer = await cluster.create(ACCESS_REVIEW, _question(permission, namespace))
        return _section(answer, "status").get("allowed") is True

    answers = await asyncio.gather(*(ask(permission) for permission in REQUIRED_VERBS))
    pairs = zip(REQUIRED_VERBS, answers, strict=True)
    denied = [str(permission) for permission, allowed in pairs if not allowed]
    if denied:
        raise SelfTestFailed(
            f"{user} may not {'; may not '.join(denied)}: install the roles of chart ullage of "
            "this version"
        )


def _question(permission: Permission, namespace: str) -> JsonObject:
    attributes = {
        "verb": permission.verb,
        "group": permission.kind.group,
        "version": permission.kind.version,
        "resource": permission.kind.plural,
    }
    if permission.subresource:
        attributes["subresource"] = permission.subresource
    if permission.scope is Scope.OWN_NAMESPACE:
        attributes["namespace"] = namespace
    return {"spec": {"resourceAttributes": attributes}}


def _section(raw: JsonObject, field: str) -> JsonObject:
    value = raw.get(field)
    return value if isinstance(value, dict) else {}
