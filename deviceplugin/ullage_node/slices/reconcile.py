# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares kubelet, the API server and the devices with our own book every few seconds.

kubelet never reports that a device is free again, so this module detects it. Nothing is freed while
a process of the container is left, even when the pod is reported gone; no container is adopted
without the file of one of our starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog

from ullage.api.slices import DesiredSlice
from ullage_node.kubelet.pod_resources import KubeletUnavailable, Listing, SlotOwner
from ullage_node.model.devices import ContainerKey
from ullage_node.model.slices import container_of
from ullage_node.slices.binder import Binder, BinderDependencies, StartRefused, owner_of_binding
from ullage_node.times import LISTING_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Reconciler:
    """Compares and repairs; only call it once spec and pods are complete."""

    def __init__(self, surroundings: BinderDependencies, binder: Binder) -> None:
        self._s = surroundings
        self._binder = binder
        self.before_release: Callable[[], Awaitable[None]] = _nothing
        """Awaited once before containers are forgotten, while their final figures exist."""

    async def run_once(self) -> tuple[ContainerKey, ...]:
        """One comparison.

        Returns:
            Containers that were freed.
        """
        # Query kubelet under the lock: a container bound while the answer is under way would be
        # missing in it and look gone.
        async with self._binder.lock:
            listing = await self._ask()
            if listing is not None:
                self._adopt(listing)
            freed = await self._free(listing)
            if listing is not None:
                self._sweep(listing)
        for broken in self._s.table.violations():
            _log.error("invariant broken", what=broken)
        return freed

    async def _ask(self) -> Listing | None:
        try:
            listing = await self._s.lister.list_slots(LISTING_S)
        except KubeletUnavailable:
            return None
        self._binder.last_listing = listing
        return listing

    async def _free(self, listing: Listing | None) -> tuple[ContainerKey, ...]:
        table = self._s.table
        over = table.see_pods(self._s.pods.by_uid, self._listed(listing))
        bindings = [binding for key in over if (binding := table.binding(key))]
        if not bindings:
            return ()
        try:
            seen = await self._binder.observe(bindings)
        except StartRefused as error:
            _log.warning("cannot free", why=str(error))
            return ()
        gone = tuple(binding.key for binding in bindings if not seen[binding.key].pids)
        if gone:
            await self.before_release()
        for container in gone:
            await self._binder.release(container)
        return gone

    def _listed(self, listing: Listing | None) -> frozenset[ContainerKey]:
        """Bound containers that kubelet lists with their slots; without an answer, all of them."""
        return frozenset(
            binding.key
            for binding in self._s.table.bindings
            if listing is None or listing.slots_of(owner_of_binding(binding)) & set(binding.slots)
        )

    def _adopt(self, listing: Listing) -> None:
        """Adopt containers that run on our slots but are not in the book."""
        owners: defaultdict[SlotOwner, list[str]] = defaultdict(list)
        for slot, holders in sorted(listing.owners.items()):
            if slot not in self._s.table.slots and len(holders) == 1:
                owners[next(iter(holders))].append(slot)
        for owner, slots in sorted(owners.items()):
            parts = self._recognise(owner, slots)
            if parts:
                self._s.table.adopt(parts)
                _log.info("recognised", pod=f"{owner.namespace}/{owner.pod}", slots=slots)

    def _recognise(self, owner: SlotOwner, slots: list[str]) -> list[tuple[DesiredSlice, str]]:
        """The slices with which a container was started, if it still lives and they are known.

        Read from its CDI files; after a retirement they are gone and the saved status is used.
        """
        decisions = [(self._s.cdi.decision(slot), slot) for slot in slots]
        parts = [(desired, slot) for desired, slot in decisions if desired is not None]
        if len(parts) != len(slots):
            parts = self._remembered(owner, slots)
        containers = {container_of(desired) for desired, _ in parts}
        if len(parts) != len(slots) or len(containers) != 1:
            return []
        container = containers.pop()
        if container.container != owner.container or not self._lives(container, owner):
            return []
        return sorted(parts, key=lambda part: part[0].key)

    def _remembered(self, owner: SlotOwner, slots: list[str]) -> list[tuple[DesiredSlice, str]]:
        parts = [
            replace(part.desired, pod_namespace=owner.namespace, pod_name=owner.pod)
            for part in self._s.table.held
            if part.phase.started
            and part.container.container == owner.container
            and self._lives(part.container, owner)
        ]
        return list(zip(parts, sorted(slots), strict=False))

    def _lives(self, container: ContainerKey, owner: SlotOwner) -> bool:
        """True if the container is the one in kubelet's list and not in the book yet."""
        pod = self._s.pods.by_uid.get(container.pod_uid)
        return (
            pod is not None
            and not pod.terminal
            and (pod.namespace, pod.name) == (owner.namespace, owner.pod)
            and self._s.table.binding(container) is None
        )

    def _sweep(self, listing: Listing) -> None:
        """Remove orphaned files: neither the book nor kubelet has an owner."""
        gone = self._s.cdi.sweep(in_use(listing, self._s.table.slots))
        pods = {uid for uid, pod in self._s.pods.by_uid.items() if not pod.terminal}
        bound = {binding.key.pod_uid for binding in self._s.table.bindings}
        self._s.steps.sweep(pods | bound)
        if gone:
            _log.info("removed files of slots without owner", slots=gone)


def in_use(listing: Listing, bound: Mapping[str, ContainerKey]) -> frozenset[str]:
    """Slots in use: kubelet has allocated them, or a slice is bound to them."""
    return frozenset(listing.owners) | frozenset(bound)


async def _nothing() -> None:
    return None
