# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Client of kubelet's pod-resources API (v1), which lists the devices of pods.

Only ``List`` and ``GetAllocatableResources`` are used, which every supported kubelet serves. The
answer names pods, not their uids. Nothing is cached: a stale answer is a wrong answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from ullage.api.labels import FOREIGN_GPU_RESOURCE, SLOT_RESOURCE
from ullage_node.kubelet.proto.podresources.v1 import api_pb2
from ullage_node.kubelet.services import stub_of

POD_RESOURCES: Final = api_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # kubelet is back within seconds of a restart; the library's default waits up to 2 minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

FOREIGN_PREFIXES: Final = (FOREIGN_GPU_RESOURCE, "nvidia.com/mig-")
"""Names under which other plugins offer GPUs or parts of them: ``nvidia.com/gpu``, also followed by
``.shared`` or ``mem``, and MIG slices. Network cards of the same vendor are ignored."""


class KubeletUnavailable(Exception):
    """kubelet's pod-resources API did not answer; the text comes from the transport."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SlotOwner:
    """A container by the names in kubelet's list."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One answer of ``List``: the owner of each of our slots."""

    owners: Mapping[str, frozenset[SlotOwner]]

    def slots_of(self, owner: SlotOwner) -> frozenset[str]:
        """The slots that one container holds."""
        return frozenset(slot for slot, owners in self.owners.items() if owner in owners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocatable:
    """Allocatable devices of the node, as kubelet knows them."""

    slots: frozenset[str]
    foreign: str = ""
    """Resources of another GPU plugin, as text (``2 nvidia.com/gpu``), empty = none."""


class PodResources:
    """Client of one kubelet; it survives restarts of kubelet."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=CHANNEL_OPTIONS)
        self._stub = stub_of(POD_RESOURCES, self._channel)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def list_slots(self, timeout_seconds: float) -> Listing:
        """Read which containers hold our slots.

        Raises:
            KubeletUnavailable: no answer within the time.
        """
        try:
            answer = await self._stub.List(
                api_pb2.ListPodResourcesRequest(), timeout=timeout_seconds
            )
        except grpc.aio.AioRpcError as error:
            raise KubeletUnavailable(str(error.details())) from error
        owners: defaultdict[str, set[SlotOwner]] = defaultdict(set)
        for pod in answer.pod_resources:
            for container in pod.containers:
                owner = SlotOwner(namespace=pod.namespace, pod=pod.name, container=container.name)
                for devices in container.devices:
                    if devices.resource_name == SLOT_RESOURCE:
                        for slot in devices.device_ids:
                            owners[slot].add(owner)
        return Listing(owners={slot: frozenset(holders) for slot, holders in owners.items()})

    async def allocatable(self, timeout_seconds: float) -> Allocatable:
        """Read what kubelet may allocate.

        Raises:
            KubeletUnavailable: no answer within the time.
        """
        try:
            answer = await self._stub.GetAllocatableResources(
                api_pb2.AllocatableResourcesRequest(), timeout=timeout_seconds
            )
        except grpc.aio.AioRpcError as error:
            raise KubeletUnavailable(str(error.details())) from error
        slots: set[str] = set()
        foreign: Counter[str] = Counter()
        for devices in answer.devices:
            if devices.resource_name == SLOT_RESOURCE:
                slots.update(devices.device_ids)
            elif devices.resource_name.startswith(FOREIGN_PREFIXES):
                foreign[devices.resource_name] += len(devices.device_ids)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(foreign.items()) if count)
        return Allocatable(slots=frozenset(slots), foreign=counts)
