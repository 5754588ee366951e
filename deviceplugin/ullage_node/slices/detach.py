# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detaches the processes of a pod under deletion from their devices, before kubelet kills them.

A process killed with outstanding work may take down its server and all clients of the device.
kubelet sends SIGTERM at once and SIGKILL at the end of the grace period, so the clients are
terminated through their server in between: late enough for the program to save its work, early
enough to be done. A pod that is not being deleted is never touched.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from ullage.process.faults import fault_text
from ullage_node.model.devices import Attachment, ContainerBinding, ContainerKey, ShareDriver
from ullage_node.model.slices import Pod
from ullage_node.slices.pods import PodCache
from ullage_node.slices.table import SliceTable
from ullage_node.times import DELETION_LATE_S, DETACH_APART_S, DETACH_RESERVE_S, DETACH_RETRY_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Detacher:
    """Watches for deleted pods with attached processes; one attempt at a time for each container.

    ``results`` counts attempts by their outcome: ``done`` or ``failed``.
    """

    def __init__(
        self,
        table: SliceTable,
        pods: PodCache,
        driver: ShareDriver,
        attachments: Callable[[], Mapping[ContainerKey, Attachment]],
    ) -> None:
        self._table = table
        self._pods = pods
        self._driver = driver
        self._attachments = attachments
        self._first_seen: dict[str, float] = {}
        self._seen_alive: set[str] = set()
        self._attempts: dict[ContainerKey, asyncio.Task[None]] = {}
        self._not_before: dict[ContainerKey, float] = {}
        self._done: dict[ContainerKey, frozenset[int]] = {}
        self.results: Counter[str] = Counter()
        self.on_result: Callable[[ContainerBinding, str], None] = lambda binding, failed: None
        """Called after each attempt; "" = done, else the obstacle."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                self.run_once(now=asyncio.get_running_loop().time(), wall=time.time())
                await asyncio.sleep(DETACH_APART_S)
        finally:
            for task in self._attempts.values():
                task.cancel()
            await asyncio.gather(*self._attempts.values(), return_exceptions=True)

    def run_once(self, *, now: float, wall: float) -> None:
        """Begin due attempts; ``now`` is monotonic seconds, ``wall`` those since the epoch."""
        pods = self._pods.by_uid
        deleting = {uid: pod for uid, pod in pods.items() if pod.deleting}
        self._seen_alive = {uid for uid in pods if uid not in deleting or uid in self._seen_alive}
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in deleting}
        self._attempts = {key: task for key, task in self._attempts.items() if not task.done()}
        attachments = self._attachments()
        for binding in self._table.bindings:
            key, pod = binding.key, deleting.get(binding.key.pod_uid)
            if pod is None or pod.terminal or key in self._attempts:
                continue
            seen = attachments.get(key)
            left = set(seen.pids) - self._done.get(key, frozenset()) if seen else set()
            if left and now >= self._not_before.get(key, 0) and self._due(pod, now, wall):
                work = self._detach(binding, frozenset(seen.pids) if seen else frozenset())
                self._attempts[key] = asyncio.create_task(work)

    def _due(self, pod: Pod, now: float, wall: float) -> bool:
        """True if the end of the grace period is near, by either clock.

        The wall clock covers deletions before the agent's start, but may have jumped.
        """
        reserve = min(DETACH_RESERVE_S, pod.grace_seconds / 2)
        if now - self._first_seen[pod.uid] >= pod.grace_seconds - reserve:
            return True
        late = wall - pod.deletes_at
        believed = pod.uid not in self._seen_alive or late <= DELETION_LATE_S
        return believed and late >= -reserve

    async def _detach(self, binding: ContainerBinding, pids: frozenset[int]) -> None:
        try:
            failed = await self._driver.detach(binding)
        except Exception as error:  # one failed attempt must not end the task
            _log.exception("detach failed", container=binding.key.directory)
            failed = fault_text(error)
        now = asyncio.get_running_loop().time()
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        self._not_before[binding.key] = now + DETACH_RETRY_S
        if not failed:
            bound = {other.key for other in self._table.bindings}
            self._done = {key: old for key, old in self._done.items() if key in bound}
            self._done[binding.key] = pids
        self.results["failed" if failed else "done"] += 1
        (_log.warning if failed else _log.info)(
            "detached", pod=f"{binding.pod_namespace}/{binding.pod_name}", failed=failed
        )
        self.on_result(binding, failed)
