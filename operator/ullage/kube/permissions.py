# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every verb the operator needs, in one table.

The start-up self-test asks the API server for each, and the chart's roles are held against it:
what is not here must not be called, what no one calls must not be here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage import ports
from ullage.cluster.values.streams import STREAMS
from ullage.ports import Kind


class Scope(StrEnum):
    """Where a permission must hold."""

    CLUSTER = "cluster"
    OWN_NAMESPACE = "own namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One verb on one resource or subresource."""

    kind: Kind
    verb: str
    subresource: str = ""
    scope: Scope = Scope.CLUSTER

    @property
    def resource(self) -> str:
        """``plural`` or ``plural/subresource``, as roles spell it."""
        return "/".join(part for part in (self.kind.plural, self.subresource) if part)

    def __str__(self) -> str:
        """For an error text: ``patch trainingjobs/status in API group "ullage.dev"``."""
        where = " in the operator's namespace" if self.scope is Scope.OWN_NAMESPACE else ""
        return f'{self.verb} {self.resource} in API group "{self.kind.group}"{where}'


def _reads() -> Iterable[Permission]:
    kinds = {stream.kind.plural: stream.kind for stream in STREAMS}
    return (
        Permission(kind=kind, verb=verb)
        for kind in kinds.values()
        for verb in ("get", "list", "watch")
    )


def _writes() -> Iterable[Permission]:
    verbs: Mapping[Kind, tuple[str, ...]] = {
        ports.POD: ("create", "delete", "patch"),
        # deleted where a service asks for a router no more
        ports.DEPLOYMENT: ("create", "delete", "patch"),
        ports.SERVICE: ("create", "delete", "patch"),
        # of jobs in tiers; what is in a Secret is never read back
        ports.SECRET: ("create",),
        ports.NETWORK_POLICY: ("create",),
        ports.GPU_NODE: ("create", "patch"),
        ports.NODE: ("patch",),
        ports.WORKLOAD_PROFILE: ("create",),
        ports.DEVICE_PROFILE: ("create",),
        # of the trials of TuningJobs
        ports.TRAINING_JOB: ("create", "delete"),
        ports.EVENT: ("get", "create", "patch"),
    }
    return (Permission(kind=kind, verb=verb) for kind, all_ in verbs.items() for verb in all_)


_STATUS: Final = (
    ports.TRAINING_JOB,
    ports.INFERENCE_DEPLOYMENT,
    ports.SCHEDULING_POLICY,
    ports.WORKLOAD_PROFILE,
    ports.DEVICE_PROFILE,
    ports.CAPACITY_POOL,
    ports.TUNING_JOB,
    ports.POD,
)

REQUIRED_VERBS: Final[tuple[Permission, ...]] = (
    *_reads(),
    *_writes(),
    Permission(kind=ports.POD, verb="create", subresource="eviction"),
    Permission(kind=ports.INFERENCE_DEPLOYMENT, verb="update", subresource="scale"),
    *(Permission(kind=kind, verb="patch", subresource="status") for kind in _STATUS),
    Permission(kind=ports.CONFIG_MAP, verb="get", scope=Scope.OWN_NAMESPACE),
    *(
        Permission(kind=ports.LEASE, verb=verb, scope=Scope.OWN_NAMESPACE)
        for verb in ("get", "create", "update")
    ),
)
