# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mirrors of API objects: the agent's own GPUNode and the pods of its node.

Each mirror is written by one follower and read by all parts. The last good spec stays in force when
a newer one cannot be read or the API server is away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from ullage.api.faults import DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.observations import Observation
from ullage.api.readers import JsonObject, WireError, section, text
from ullage.api.slices import ObservedSlice
from ullage.process.faults import fault_text
from ullage_node.api_client import CORE, ApiClient, ApiServerError
from ullage_node.model.slices import Pod
from ullage_node.slices.binder import PodUnreachable
from ullage_node.slices.desired import (
    NodeSpec,
    read_conditions,
    read_faults,
    read_gpu_node,
    read_interruption,
    read_observations,
    read_pod,
    read_reported,
)
from ullage_node.slices.pods import PodCache

NOT_FOUND = 404

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class NodeMirror:
    """The node's own GPUNode."""

    def __init__(self) -> None:
        self.unreadable = 0
        self.synced = False
        """True once the API server has answered."""
        self.spec: NodeSpec | None = None
        """``None`` = no such object."""
        self.conditions: tuple[JsonObject, ...] = ()
        """Conditions in the object; they outlive the agent."""
        self._earlier: tuple[ObservedSlice, ...] | None = None
        self._rows: tuple[Observation, ...] = ()
        self._faults: tuple[DeviceFault, ...] = ()
        self._notice: Interruption | None = None
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, items: Sequence[JsonObject]) -> None:
        """A complete list: one object or none."""
        self.synced = True
        if not items:
            self.spec = None
            self.on_change()
            return
        try:
            self.changed(items[0])
        except WireError as error:
            self.unreadable += 1
            _log.warning("GPUNode unreadable", error=str(error))
            self.on_change()

    def changed(self, item: JsonObject) -> None:
        """The object was added or changed.

        Raises:
            WireError: it cannot be read; the last good one stays.
        """
        spec = read_gpu_node(item)
        self.conditions = read_conditions(item)
        if self._earlier is None:
            self._earlier = read_reported(item)
            self._rows = read_observations(item)
            self._faults = read_faults(item)
            self._notice = read_interruption(item)
        if spec != self.spec:
            self.spec = spec
            self.on_change()

    def take_earlier(self) -> tuple[ObservedSlice, ...]:
        """Slices that an earlier agent reported, once; they may be its only trace."""
        earlier = self._earlier or ()
        self._earlier = () if self._earlier is not None else None
        return earlier

    def take_observations(self) -> tuple[Observation, ...]:
        """Rows that an earlier agent reported, once; they are kept nowhere else."""
        rows, self._rows = self._rows, ()
        return rows

    def take_faults(self) -> tuple[DeviceFault, ...]:
        """Faults that an earlier agent reported, once; they are kept nowhere else."""
        faults, self._faults = self._faults, ()
        return faults

    def take_interruption(self) -> Interruption | None:
        """The notice that an earlier agent reported, once."""
        notice, self._notice = self._notice, None
        return notice

    def removed(self, item: JsonObject) -> None:
        """The object is gone."""
        self.spec = None
        self.conditions = ()
        self.on_change()


class PodMirror:
    """The pods bound to the node."""

    def __init__(self, cache: PodCache) -> None:
        self._cache = cache
        self.unreadable = 0
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, items: Sequence[JsonObject]) -> None:
        """A complete list; of a pod that cannot be read the last good record stays."""
        pods: list[Pod] = []
        for item in items:
            try:
                pods.append(read_pod(item))
            except Exception as error:  # one bad pod must not stop the others
                self.unreadable += 1
                _log.warning("pod unreadable", error=fault_text(error))
                metadata = item.get("metadata")
                uid = metadata.get("uid") if isinstance(metadata, dict) else None
                if isinstance(uid, str) and uid in self._cache.by_uid:
                    pods.append(self._cache.by_uid[uid])
        self._cache.replace(pods)
        self.on_change()

    def changed(self, item: JsonObject) -> None:
        """A pod was added or changed.

        Raises:
            WireError: it cannot be read.
        """
        pod = read_pod(item)
        if self._cache.by_uid.get(pod.uid) != pod:
            self._cache.put(pod)
            self.on_change()

    def removed(self, item: JsonObject) -> None:
        """A pod is gone.

        Raises:
            WireError: it has no uid.
        """
        self._cache.drop(text(section(item, "metadata"), "uid"))
        self.on_change()


class ApiPods:
    """Reads one pod from the API server, bypassing every cache."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get_pod(self, namespace: str, name: str, timeout_seconds: float) -> Pod | None:
        """The current pod of this name, ``None`` if there is none.

        Raises:
            PodUnreachable: no answer, or a malformed one.
        """
        path = f"{CORE}/namespaces/{namespace}/pods/{name}"
        try:
            return read_pod(await self._client.get(path, timeout_seconds))
        except ApiServerError as error:
            if error.status == NOT_FOUND:
                return None
            raise PodUnreachable(f"the API server does not answer ({error})") from error
        except WireError as error:
            raise PodUnreachable(f"the API server's answer is unreadable ({error})") from error
