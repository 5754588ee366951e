# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Streams of the objects in the operator's snapshot, and their receiver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ullage import ports
from ullage.api.labels import LABEL_MANAGED
from ullage.ports import JsonObject, Kind, Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One listed and watched set of objects; ``name`` labels its metrics."""

    name: str
    kind: Kind
    selector: Selector = field(default_factory=Selector)
    optional: bool = False
    """True when an API server need not serve the kind; without it there are no objects."""


NODES: Final = Stream(name="nodes", kind=ports.NODE)
PODS: Final = Stream(name="pods", kind=ports.POD, selector=Selector(labels=f"{LABEL_MANAGED}=true"))
FOREIGN_PODS: Final = Stream(
    name="foreign-pods",
    kind=ports.POD,
    selector=Selector(labels=f"!{LABEL_MANAGED}", fields="spec.nodeName!="),
)
TRAINING_JOBS: Final = Stream(name="trainingjobs", kind=ports.TRAINING_JOB)
INFERENCE_DEPLOYMENTS: Final = Stream(name="inferencedeployments", kind=ports.INFERENCE_DEPLOYMENT)
GPU_NODES: Final = Stream(name="gpunodes", kind=ports.GPU_NODE)
WORKLOAD_PROFILES: Final = Stream(name="workloadprofiles", kind=ports.WORKLOAD_PROFILE)
DEVICE_PROFILES: Final = Stream(name="deviceprofiles", kind=ports.DEVICE_PROFILE)
SCHEDULING_POLICIES: Final = Stream(name="schedulingpolicies", kind=ports.SCHEDULING_POLICY)
CAPACITY_POOLS: Final = Stream(name="capacitypools", kind=ports.CAPACITY_POOL)
TUNING_JOBS: Final = Stream(name="tuningjobs", kind=ports.TUNING_JOB)
PROFILE_REQUESTS: Final = Stream(name="profilerequests", kind=ports.PROFILE_REQUEST)
DEPLOYMENTS: Final = Stream(
    name="deployments", kind=ports.DEPLOYMENT, selector=Selector(labels=f"{LABEL_MANAGED}=true")
)
SERVICES: Final = Stream(
    name="services", kind=ports.SERVICE, selector=Selector(labels=f"{LABEL_MANAGED}=true")
)
NAMESPACES: Final = Stream(name="namespaces", kind=ports.NAMESPACE)
CLAIMS: Final = Stream(name="persistentvolumeclaims", kind=ports.CLAIM)
VOLUMES: Final = Stream(name="persistentvolumes", kind=ports.VOLUME)
STORAGE_CLASSES: Final = Stream(name="storageclasses", kind=ports.STORAGE_CLASS)
POD_GROUPS: Final = Stream(name="podgroups", kind=ports.POD_GROUP, optional=True)

STREAMS: Final[tuple[Stream, ...]] = (
    NODES,
    PODS,
    FOREIGN_PODS,
    TRAINING_JOBS,
    INFERENCE_DEPLOYMENTS,
    GPU_NODES,
    WORKLOAD_PROFILES,
    DEVICE_PROFILES,
    SCHEDULING_POLICIES,
    CAPACITY_POOLS,
    TUNING_JOBS,
    PROFILE_REQUESTS,
    DEPLOYMENTS,
    SERVICES,
    NAMESPACES,
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    POD_GROUPS,
)


class Sink(Protocol):
    """Receives a stream's events; each call returns True if anything relevant changed."""

    def replace(self, stream: Stream, items: Sequence[JsonObject], now: float) -> bool:
        """Process a full list: adds, changes and removals follow from it."""
        ...

    def upsert(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Process an added or changed object."""
        ...

    def remove(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Process the deletion of an object."""
        ...
