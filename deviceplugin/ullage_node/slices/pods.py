# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The pods bound to this node, from the API server's watch.

The watch may lag behind kubelet, so presence here never proves that a pod still exists; absence
after a complete list proves that it is gone. Only the watch writes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ullage_node.model.slices import Pod


class PodCache:
    """Pods by uid. ``synced`` turns true with the first complete list and stays."""

    def __init__(self) -> None:
        self.synced = False
        self._pods: dict[str, Pod] = {}

    @property
    def by_uid(self) -> Mapping[str, Pod]:
        """All pods known."""
        return MappingProxyType(self._pods)

    def replace(self, pods: Iterable[Pod]) -> None:
        """Take a complete list: pods not in it are gone."""
        self._pods = {pod.uid: pod for pod in pods}
        self.synced = True

    def put(self, pod: Pod) -> None:
        """A pod was added or changed."""
        self._pods[pod.uid] = pod

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self._pods.pop(uid, None)

    def live_named(self, namespace: str, name: str) -> tuple[Pod, ...]:
        """Pods of this name that may still start containers."""
        return tuple(
            pod
            for pod in self._pods.values()
            if (pod.namespace, pod.name) == (namespace, name)
            and not pod.terminal
            and not pod.deleting
        )
