# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kubelet's device manager without its sockets: who got which device ids, and who is still active.

Facts that it copies: ids are any free healthy ones; those of a pod that is no longer active are
taken back only when the next pod is admitted; there is no call that says so to the plugin.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field


class AdmissionFailed(Exception):
    """The pod fails for good (``UnexpectedAdmissionError``)."""


@dataclass(slots=True, kw_only=True)
class KubeletPod:
    """A pod as kubelet knows it; ``containers`` says how many slots each wants."""

    uid: str
    namespace: str
    name: str
    containers: dict[str, int]
    phase: str = "Pending"

    @property
    def active(self) -> bool:
        return self.phase not in ("Succeeded", "Failed")


@dataclass(slots=True)
class DeviceManager:
    """Allocation of the ids of one resource."""

    rng: random.Random
    healthy: set[str] = field(default_factory=set)
    pods: dict[str, KubeletPod] = field(default_factory=dict)
    allocated: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    list_finished: bool = False
    """Some kubelets list the devices of finished pods too."""

    def admit(self, pod: KubeletPod) -> dict[str, tuple[str, ...]]:
        """Pick ids for every container that wants some."""
        self._take_back()
        free = sorted(self.healthy - {slot for ids in self.allocated.values() for slot in ids})
        self.rng.shuffle(free)
        if sum(pod.containers.values()) > len(free):
            raise AdmissionFailed(f"requested {pod.containers}, available {len(free)}")
        self.pods[pod.uid] = pod
        given: dict[str, tuple[str, ...]] = {}
        for container, count in pod.containers.items():
            given[container] = tuple(free.pop() for _ in range(count))
            self.allocated[pod.uid, container] = given[container]
        return given

    def forget(self, uid: str) -> None:
        """The pod's object is gone and so are its containers."""
        self.pods.pop(uid, None)

    def _take_back(self) -> None:
        for uid, container in list(self.allocated):
            pod = self.pods.get(uid)
            if pod is None or not pod.active:
                del self.allocated[uid, container]

    def holdings(self) -> Iterator[tuple[KubeletPod, str, tuple[str, ...]]]:
        """What pod-resources ``List`` shows."""
        for (uid, container), ids in self.allocated.items():
            pod = self.pods.get(uid)
            if pod is not None and (pod.active or self.list_finished):
                yield pod, container, ids
