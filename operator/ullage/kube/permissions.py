# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every verb the operator needs, in one table.

The start-up self-test checks each with the API server, and the chart's roles are compared with it:
verbs outside of it must not be called, and unused ones must not be in it.
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
    """Scope in which a permission must hold."""

    CLUSTER = "cluster"
    OWN_NAMESPACE = "own namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One verb on one resource or subresource, and its purpose."""

    kind: Kind
    verb: str
    why: str
    subresource: str = ""
    scope: Scope = Scope.CLUSTER

    @property
    def resource(self) -> str:
        """``plural`` or ``plural/subresource``, as in roles."""
        return "/".join(part for part in (self.kind.plural, self.subresource) if part)

    def __str__(self) -> str:
        """Text for errors: ``patch trainingjobs/status in API group "ullage.dev"``."""
        where = " in the operator's namespace" if self.scope is Scope.OWN_NAMESPACE else ""
        return f'{self.verb} {self.resource} in API group "{self.kind.group}"{where}'


_FOLLOWED: Final = "a decision is made of all of them as they are"
_LOOK_FIRST: Final = "whose it is, before a name that is taken is written to"

_HELD: Final = "the finalizer by which {}; a policy allows no other change"

_VERBS: Final[Mapping[Kind, Mapping[str, str]]] = {
    ports.POD: {
        "get": _LOOK_FIRST,
        "create": "members of gangs, replicas, routers and what orders nodes",
        "delete": "members that are preempted, suspended, scaled in or replaced",
        "patch": "the node, the scheduling gate and the annotations of labelled pods",
    },
    ports.DEPLOYMENT: {
        "get": _LOOK_FIRST,
        "create": "the router of an InferenceDeployment",
        "patch": "a change of the router's settings",
        "delete": "a router that its service asks for no more",
    },
    ports.SERVICE: {
        "get": _LOOK_FIRST,
        "create": "the address of a gang's coordinator, of replicas and of a router",
        "patch": "a change of its ports or selector",
        "delete": "one that nothing asks for any more",
    },
    ports.SECRET: {"create": "the token of a job in tiers, which is never read back"},
    ports.NETWORK_POLICY: {"create": "who may reach the members of a job in tiers"},
    ports.GPU_NODE: {
        "create": "one for each node with devices",
        "patch": "the slices that a node is to give, and the traces that it is to take",
    },
    ports.NODE: {
        "get": "its taints as they are, since many write them",
        "patch": "the taint of a node that is drained or was ordered",
    },
    ports.WORKLOAD_PROFILE: {"create": "what a class of workloads needs and how fast it is"},
    ports.DEVICE_PROFILE: {"create": "what an accelerator is and what was learned of it"},
    ports.TRAINING_JOB: {
        "get": _LOOK_FIRST,
        "create": "the trials of a TuningJob",
        "delete": "trials that ended early",
        "patch": _HELD.format("members save before their lead goes"),
    },
    ports.TUNING_JOB: {"patch": _HELD.format("results are counted before trials go")},
    ports.PROFILE_REQUEST: {
        "create": "traces of the jobs that the policy's sample holds",
        "delete": "requests whose time after their end is over",
    },
    ports.INFERENCE_DEPLOYMENT: {"patch": _HELD.format("a router drains before its replicas go")},
    ports.CAPACITY_POOL: {"patch": _HELD.format("requested nodes come or go before their pool")},
    ports.EFFICIENCY_REPORT: {"list": "reports of device time, every ten minutes"},
    ports.EVENT: {
        "get": "the count of one that a replica before this one wrote",
        "create": "what owners are told",
        "patch": "one that is told again",
    },
}

_STATUS: Final[Mapping[Kind, str]] = {
    ports.TRAINING_JOB: "phase, conditions and what was predicted and observed",
    ports.INFERENCE_DEPLOYMENT: "phase, conditions and what was predicted and observed",
    ports.SCHEDULING_POLICY: "whether decisions come, quota in use",
    ports.WORKLOAD_PROFILE: "what was observed of the class",
    ports.DEVICE_PROFILE: "the model that was learned, for the next start",
    ports.CAPACITY_POOL: "nodes that are ordered, prices",
    ports.TUNING_JOB: "trials and their outcome",
    ports.EFFICIENCY_REPORT: "device time of the week",
    ports.PROFILE_REQUEST: "how far a trace has come, and what was found in it",
    ports.POD: "why a labelled pod waits",
}

_LEASE: Final = {
    "get": "who leads",
    "create": "the first replica of an installation leads",
    "update": "a leader renews, another one takes over",
}


def _followed() -> Iterable[Permission]:
    kinds = {stream.kind.plural: stream.kind for stream in STREAMS}
    return (
        Permission(kind=kind, verb=verb, why=_FOLLOWED)
        for kind in kinds.values()
        for verb in ("list", "watch")
    )


REQUIRED_VERBS: Final[tuple[Permission, ...]] = (
    *_followed(),
    *(
        Permission(kind=kind, verb=verb, why=why)
        for kind, verbs in _VERBS.items()
        for verb, why in verbs.items()
    ),
    Permission(
        kind=ports.POD,
        verb="create",
        subresource="eviction",
        why="pods of others leave a node as their disruption budgets allow",
    ),
    Permission(
        kind=ports.INFERENCE_DEPLOYMENT,
        verb="update",
        subresource="scale",
        why="the number of replicas that the load asks for",
    ),
    *(
        Permission(kind=kind, verb="patch", subresource="status", why=why)
        for kind, why in _STATUS.items()
    ),
    Permission(
        kind=ports.CONFIG_MAP,
        verb="get",
        scope=Scope.OWN_NAMESPACE,
        why="a table of prices that a CapacityPool names",
    ),
    *(
        Permission(kind=ports.LEASE, verb=verb, scope=Scope.OWN_NAMESPACE, why=why)
        for verb, why in _LEASE.items()
    ),
)
