# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""PreStartContainer: gathers the facts, calls :mod:`prestart`, carries the decision out.

kubelet reports only the slots of a container. kubelet's list identifies the pod by name, the API
server by uid: a pod re-created under the same name is another pod with another slice, and our watch
may not have seen it yet, so the API server is queried once per start. When it does not answer, the
watch is used only if it has no other pod of that name.

This module starts nothing and never waits; anything not ready is a refusal and kubelet retries in
about ten seconds. The final order is: backend, step record, CDI files, book, checkpoint, answer. A
crash between any two of them leaves a container that kubelet starts again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from ullage.api.environment import ENV_STRAGGLERS, HOOK_FOLDER, PYTHON_PATH, REBALANCE
from ullage.api.reasons import Reason
from ullage.api.slices import SLOT_PATTERN
from ullage_node.kubelet.pod_resources import KubeletUnavailable, Listing, PodResources, SlotOwner
from ullage_node.model.devices import (
    Attachment,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    PrepareRefused,
    ShareDriver,
)
from ullage_node.model.slices import Pod, SliceRefusal, shares_lane
from ullage_node.slices.cdi import CDIDirectory, render
from ullage_node.slices.library import Library
from ullage_node.slices.pods import PodCache
from ullage_node.slices.prestart import ContainerStart, Leftover, decide, owner_of
from ullage_node.slices.steps import StepRecords
from ullage_node.slices.table import SliceTable
from ullage_node.times import LEFTOVERS_S, OWNER_PAUSE_S, OWNER_S, POD_READ_S, PREPARE_S

SLOTS_MOST: Final = 64
"""Most devices of one container."""
LIST_TRIES: Final = 3


class StartRefused(Exception):
    """The container must not start now; ``refusal`` says why, ``pod`` is its pod if known."""

    def __init__(self, refusal: SliceRefusal, pod: Pod | None = None) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.pod = pod


class PodUnreachable(Exception):
    """The API server gave no answer about a pod."""


class PodReader(Protocol):
    """Reads one pod from the API server."""

    async def get_pod(self, namespace: str, name: str, timeout_seconds: float) -> Pod | None:
        """The current pod of this name, ``None`` if there is none.

        Raises:
            PodUnreachable: no answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BinderDependencies:
    """Dependencies of the binder, all shared with the rest of the agent."""

    node: str
    table: SliceTable
    pods: PodCache
    lister: PodResources
    reader: PodReader
    driver: ShareDriver
    cdi: CDIDirectory
    steps: StepRecords
    library: Library
    save: Callable[[], Awaitable[None]]
    """Writes the checkpoint and returns when it is durable."""
    lane_folder: Callable[[ContainerKey, str], Path]
    """Creates the socket directory of a container that starts on this first slot."""
    missing_room: Callable[[ContainerKey], str] = lambda _: ""
    """Reason why the memory of a container's slices is not free yet; empty = it is."""


class Binder:
    """Binds slots to slices, one container at a time."""

    def __init__(self, surroundings: BinderDependencies) -> None:
        self._s = surroundings
        self._lock = asyncio.Lock()
        self.without_hook: dict[ContainerKey, str] = {}
        """Reasons why containers that ask for the step hook start without it."""
        self.last_listing = Listing(owners={})
        """kubelet's newest answer, for callers that may use a cached one."""

    @property
    def lock(self) -> asyncio.Lock:
        """Held while the book and the files of a container change together."""
        return self._lock

    async def start_container(self, slots: Sequence[str]) -> ContainerBinding:
        """Prepare one container for creation.

        Raises:
            StartRefused: it must not start now.
        """
        ordered = tuple(sorted(slots))
        owner, listing = await self._owner(ordered)
        pod = await self._identify(owner)
        self._s.table.claim(pod)  # our watch may not have shown the pod yet
        container = ContainerKey(pod_uid=pod.uid, container=owner.container)
        async with self._lock:
            try:
                return await self._bind(ordered, owner, container, listing, pod)
            except StartRefused as refused:
                refusal = refused.refusal
            except OSError as error:
                refusal = SliceRefusal(
                    reason=Reason.CDI_UNAVAILABLE,
                    message=f"cannot write {error.filename or 'a file'}: {error.strerror}",
                )
            await self._note(container, refusal)
            raise StartRefused(refusal, pod)

    # -- identity --------------------------------------------------------------------------------

    async def _owner(self, slots: tuple[str, ...]) -> tuple[SlotOwner, Listing]:
        if not slots:
            raise StartRefused(SliceRefusal(reason=Reason.SLOT_COUNT, message="no slot was named"))
        if len(slots) > SLOTS_MOST or not all(map(SLOT_PATTERN.fullmatch, slots)):
            message = f"kubelet names {len(slots)} slots, not all of them ours"
            raise StartRefused(SliceRefusal(reason=Reason.SLOT_UNKNOWN, message=message))
        deadline = time.monotonic() + OWNER_S
        result: SlotOwner | SliceRefusal = SliceRefusal(reason=Reason.SLOT_UNKNOWN, message="")
        for attempt in range(LIST_TRIES):
            left = deadline - time.monotonic()
            if attempt:
                await asyncio.sleep(min(OWNER_PAUSE_S, max(left, 0)))
            if left <= 0:
                break
            try:
                listing = await self._s.lister.list_slots(left)
            except KubeletUnavailable as error:
                result = SliceRefusal(reason=Reason.SLOT_UNKNOWN, message=f"pod-resources: {error}")
                continue
            self.last_listing = listing
            result = owner_of(slots, listing, self._s.pods.by_uid.values())
            if isinstance(result, SlotOwner):
                return result, listing
        assert isinstance(result, SliceRefusal)
        raise StartRefused(result)

    async def _identify(self, owner: SlotOwner) -> Pod:
        """The pod that kubelet starts, never an earlier one of the same name."""
        name = f"{owner.namespace}/{owner.pod}"
        try:
            pod = await self._s.reader.get_pod(owner.namespace, owner.pod, POD_READ_S)
        except PodUnreachable as error:
            return self._identify_unasked(owner, str(error))
        if pod is None:
            raise _unknown(f"the API server knows no pod {name}")
        if pod.node != self._s.node:
            raise _unknown(f"{name} is bound to {pod.node or 'no node'}, not here")
        if pod.terminal or pod.deleting:
            raise _unknown(f"{name} is {pod.phase if pod.terminal else 'being deleted'}")
        return pod

    def _identify_unasked(self, owner: SlotOwner, why: str) -> Pod:
        name = f"{owner.namespace}/{owner.pod}"
        live = self._s.pods.live_named(owner.namespace, owner.pod)
        uids = self._s.table.uids_named(owner.namespace, owner.pod)
        uids |= {pod.uid for pod in live}
        if len(live) == 1 and len(uids) == 1:
            return live[0]
        raise _unknown(f"{len(uids)} pods called {name} are in play and {why}")

    # -- binding ---------------------------------------------------------------------------------

    async def _bind(
        self,
        slots: tuple[str, ...],
        owner: SlotOwner,
        container: ContainerKey,
        listing: Listing,
        pod: Pod,
    ) -> ContainerBinding:
        leftovers = await self._leftovers(slots, owner, container, listing)
        binding = self._decide(slots, owner, container, leftovers)
        if missing := self._s.missing_room(container):
            raise StartRefused(SliceRefusal(reason=Reason.DRAINING, message=missing))
        for left in leftovers:
            if left.binding.key != container:
                await self.release(left.binding.key)
        try:
            async with asyncio.timeout(PREPARE_S):
                edits = await self._s.driver.prepare(binding)
        except PrepareRefused as error:
            raise StartRefused(SliceRefusal(reason=error.reason, message=error.message)) from error
        except TimeoutError as error:
            message = f"the device backend was not ready within {PREPARE_S:.0f} s"
            raise StartRefused(
                SliceRefusal(reason=Reason.MPS_NOT_READY, message=message)
            ) from error
        # The spec may have changed while the backend worked: the decision must still be the same.
        if self._decide(slots, owner, container, ()) != binding:
            raise StartRefused(
                SliceRefusal(reason=Reason.DRAINING, message="the slice changed during the start")
            )
        await self._write(binding, self._with_hook(binding.key, edits, pod))
        return binding

    def _with_hook(
        self, container: ContainerKey, edits: ContainerEdits, pod: Pod
    ) -> ContainerEdits:
        """The edits, with the step hook first on PYTHONPATH where the slice asks for it."""
        self.without_hook.pop(container, None)
        if pod.without_hook or not any(part.inject for part in self._s.table.wanted_for(container)):
            return edits
        if not self._s.library.mount():
            self.without_hook[container] = "this node has no copy of ullage_run"
            return edits
        own = dict(pod.python_paths).get(container.container, "")
        if own is None:
            self.without_hook[container] = (
                f"its {PYTHON_PATH} comes, or may come, from a reference (valueFrom, envFrom or"
                f" $(NAME)): write {PYTHON_PATH} with its value into the container's env"
            )
            return edits
        folders = own.split(":") if own else []
        env = dict(edits.env)
        if any(part.rebalance for part in self._s.table.wanted_for(container)):
            env[ENV_STRAGGLERS] = REBALANCE
        if HOOK_FOLDER not in folders:
            env[PYTHON_PATH] = ":".join((HOOK_FOLDER, *folders))
        return replace(edits, env=env)

    def _decide(
        self,
        slots: tuple[str, ...],
        owner: SlotOwner,
        container: ContainerKey,
        leftovers: tuple[Leftover, ...],
    ) -> ContainerBinding:
        table = self._s.table
        verdict = decide(
            ContainerStart(
                slots=slots,
                container=container,
                pod=f"{owner.namespace}/{owner.pod}",
                wanted=table.wanted_for(container),
                held=table.held_for(container),
                everyone=table.held,
                devices=table.devices,
                leftovers=leftovers,
            )
        )
        if isinstance(verdict, SliceRefusal):
            raise StartRefused(verdict)
        return verdict

    async def _write(self, binding: ContainerBinding, edits: ContainerEdits) -> None:
        old = self._s.table.binding(binding.key)
        record = self._s.steps.reset(binding.key, binding.slots[0])
        decided = {part.key.index: part for part in self._s.table.wanted_for(binding.key)}
        lane = None
        if shares_lane(tuple(decided.values())):
            lane = self._s.lane_folder(binding.key, binding.slots[0])
        mounts = (*self._s.library.mount(), *self._s.steps.trace_mount(record))
        files = render(binding, decided, edits, record, mounts, lane)
        for slot in set(old.slots if old else ()) - set(binding.slots):
            self._s.cdi.remove(slot)
        self._s.cdi.write(files)
        self._s.table.bind(binding)
        await self._s.save()

    async def _leftovers(
        self, slots: tuple[str, ...], owner: SlotOwner, container: ContainerKey, listing: Listing
    ) -> tuple[Leftover, ...]:
        table = self._s.table
        before = {
            binding.key: binding
            for binding in (*(table.holder(slot) for slot in slots), table.binding(container))
            if binding is not None
        }
        if not before:
            return ()
        seen = await self.observe(tuple(before.values()))
        return tuple(
            Leftover(
                binding=binding,
                live=owner_of_binding(binding) != owner
                and bool(listing.slots_of(owner_of_binding(binding)) & set(binding.slots)),
                pids=seen[key].pids,
            )
            for key, binding in sorted(before.items())
        )

    async def observe(self, bindings: Sequence[ContainerBinding]) -> dict[ContainerKey, Attachment]:
        """A reading of every container.

        Raises:
            StartRefused: the backend did not answer.
        """
        try:
            async with asyncio.timeout(LEFTOVERS_S):
                attachments = await self._s.driver.observe(bindings)
        except TimeoutError as error:
            message = "the device backend did not say who still uses the slots"
            raise StartRefused(SliceRefusal(reason=Reason.DRAINING, message=message)) from error
        return {binding.key: attachments[binding.key] for binding in bindings}

    # -- unbinding -------------------------------------------------------------------------------

    async def release(self, container: ContainerKey) -> None:
        """Forget a container that is gone, and remove its files; hold the lock."""
        binding = self._s.table.free(container)
        self.without_hook.pop(container, None)
        if binding is not None:
            await self._remove_traces(binding)

    async def _note(self, container: ContainerKey, refusal: SliceRefusal) -> None:
        ended = self._s.table.refuse(container, refusal)
        if ended is not None:
            await self._remove_traces(ended)

    async def _remove_traces(self, binding: ContainerBinding) -> None:
        for slot in binding.slots:
            self._s.cdi.remove(slot)
        self._s.steps.remove(binding.key)
        await self._s.driver.release(binding)


def owner_of_binding(binding: ContainerBinding) -> SlotOwner:
    """A bound container by the names in kubelet's list."""
    return SlotOwner(
        namespace=binding.pod_namespace, pod=binding.pod_name, container=binding.key.container
    )


def _unknown(message: str) -> StartRefused:
    return StartRefused(SliceRefusal(reason=Reason.POD_UNKNOWN, message=message))
