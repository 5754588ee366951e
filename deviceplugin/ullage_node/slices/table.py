# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The node's own book of slices: which are wanted, which are held, and the slots of each.

A state machine without I/O and without a clock, changed by one task at a time. It alone decides
whether room is taken: a slice holds room from ``Reserved`` until it left the spec unstarted, was
refused for good, or its container is gone. It never gives a slot to a second live container and
never takes room away from a running one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import structlog

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.process.faults import fault_text
from ullage_node.kubelet.slot_board import DeviceRoom
from ullage_node.model.devices import BoundSlice, ContainerBinding, ContainerKey
from ullage_node.model.slices import (
    HeldSlice,
    NodeDevice,
    Pod,
    SliceRefusal,
    container_of,
    same_share,
)
from ullage_node.slices.invariants import candidate_for, first_refusal, violations

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class SliceTable:
    """Slices of one node.

    ``version`` grows with every change, so that writers know when to write.
    """

    def __init__(self) -> None:
        self.version = 0
        self.epoch = 0
        """Highest epoch ever accepted; it never falls (I6)."""
        self._spec: dict[SliceKey, DesiredSlice] = {}
        self._held: dict[SliceKey, HeldSlice] = {}
        self._bindings: dict[ContainerKey, ContainerBinding] = {}
        self._slots: dict[str, ContainerKey] = {}
        self._ended: set[SliceKey] = set()
        self._devices: dict[str, NodeDevice] = {}

    # -- reading ---------------------------------------------------------------------------------

    @property
    def devices(self) -> Mapping[str, NodeDevice]:
        """The devices as the invariants see them."""
        return MappingProxyType(self._devices)

    @property
    def held(self) -> tuple[HeldSlice, ...]:
        """Every slice the node holds or has refused, in order of their keys."""
        return tuple(self._held[key] for key in sorted(self._held))

    @property
    def bindings(self) -> tuple[ContainerBinding, ...]:
        """Every container that slots were bound to, in order of their keys."""
        return tuple(self._bindings[key] for key in sorted(self._bindings))

    @property
    def slots(self) -> Mapping[str, ContainerKey]:
        """Bound slots and who holds them."""
        return MappingProxyType(self._slots)

    def binding(self, container: ContainerKey) -> ContainerBinding | None:
        """Binding of the container's slots, if any."""
        return self._bindings.get(container)

    def holder(self, slot: str) -> ContainerBinding | None:
        """Holder of a slot, if any."""
        container = self._slots.get(slot)
        return self._bindings[container] if container else None

    def wanted_for(self, container: ContainerKey) -> tuple[DesiredSlice, ...]:
        """Slices that the spec gives a container now, in order of the index."""
        return tuple(self._spec[key] for key in _keys_of(container, self._spec))

    def held_for(self, container: ContainerKey) -> tuple[HeldSlice, ...]:
        """Slices that the node holds for a container, in order of the index."""
        return tuple(self._held[key] for key in _keys_of(container, self._held))

    def uids_named(self, namespace: str, name: str) -> frozenset[str]:
        """Uids of the pods of this name that slices stand for, those over excepted."""
        known = [part.desired for part in self._held.values()]
        known += [part for key, part in self._spec.items() if key not in self._ended]
        return frozenset(
            part.key.pod_uid
            for part in known
            if (part.pod_namespace, part.pod_name) == (namespace, name)
        )

    @property
    def rooms(self) -> list[DeviceRoom]:
        """Room of each device for slots."""
        parts = [part for binding in self._bindings.values() for part in binding.slices]
        return [
            DeviceRoom(
                sharers=device.contexts,
                used=sum(part.gpu == device.uuid for part in parts),
                healthy=device.refusal is None,
            )
            for device in self._devices.values()
        ]

    def violations(self) -> list[str]:
        """Every invariant that does not hold; always empty unless there is a defect."""
        return violations(self._held.values(), self._bindings.values(), self._devices)

    # -- devices ---------------------------------------------------------------------------------

    def set_devices(self, devices: Iterable[NodeDevice]) -> None:
        """Learn the devices; a lost one fails what runs on it and refuses what waits for it."""
        fresh = {device.uuid: device for device in devices}
        if fresh == self._devices:
            return
        self._devices = fresh
        self.version += 1
        for key, part in list(self._held.items()):
            device = fresh.get(part.desired.gpu)
            if part.phase is SlicePhase.REFUSED or device is None or device.refusal is None:
                continue
            if device.refusal.lasting:
                phase = SlicePhase.FAILED if part.phase.started else SlicePhase.REFUSED
                self._mark(key, phase, device.refusal)

    # -- the operator's wishes -------------------------------------------------------------------

    def intake(
        self,
        epoch: int,
        wanted: Sequence[DesiredSlice],
        faulty: Sequence[tuple[DesiredSlice, str]] = (),
    ) -> tuple[SliceKey, ...]:
        """Take in a spec and reserve what is new and fits.

        Args:
            epoch: the epoch of the spec as a whole.
            wanted: all slices of the spec that can be read.
            faulty: the others, as far as they are known, and what is wrong with them.

        Returns:
            Keys of slices ignored because a newer leader was heard already (fencing).
        """
        before = (self._spec, self.epoch)
        self._spec = {part.key: part for part in wanted}
        named = self._spec.keys() | {part.key for part, _ in faulty}
        for key in [key for key in self._held if key not in named]:
            self._leave_spec(key)
        for part, why in faulty:
            self._refuse_unread(part, why)
        self._ended &= self._spec.keys()
        floor = self.epoch
        ordered = sorted(self._spec.values(), key=lambda part: (part.epoch, part.key))
        stale = [part.key for part in ordered if not self._take_alone(part, floor)]
        accepted = (part.epoch for part in ordered if part.key not in stale)
        self.epoch = max(floor, epoch, *accepted)
        if before != (self._spec, self.epoch):
            self.version += 1
        return tuple(stale)

    def _leave_spec(self, key: SliceKey) -> None:
        part = self._held[key]
        if part.phase.started:
            self._put(replace(part, in_spec=False))
        else:
            del self._held[key]
            self.version += 1

    def _refuse_unread(self, part: DesiredSlice, why: str) -> None:
        """An unreadable slice starts nothing; a running one stays as it was."""
        held = self._held.get(part.key)
        if held is not None and held.phase.started:
            self._put(replace(held, in_spec=True))
            return
        self._put(
            HeldSlice(
                desired=part,
                phase=SlicePhase.REFUSED,
                seen=held.seen if held else False,
                reason=Reason.INVALID_OBJECT.value,
                message=why,
            )
        )

    def _take_alone(self, wanted: DesiredSlice, floor: int) -> bool:
        """Judge one slice; what goes wrong over it is its own refusal."""
        try:
            return self._take(wanted, floor)
        except Exception as error:  # the seam of one slice
            _log.exception("slice not judged", slice=wanted.key.directory)
            self._refuse_unread(wanted, fault_text(error))
            return True

    def _take(self, wanted: DesiredSlice, floor: int) -> bool:
        """Judge one slice of the spec; false when its epoch is too old."""
        held = self._held.get(wanted.key)
        if held is not None and held.desired == wanted:
            self._put(replace(held, in_spec=True))
            return True
        if wanted.key in self._ended:
            return True
        if wanted.epoch < floor:
            return False
        if held is not None and held.phase.started:
            # No one can resize a running client: a changed share waits for the next start, which
            # is then refused because the epochs differ.
            adopted = wanted if same_share(held.desired, wanted) else held.desired
            adopted = _in_its_lane(adopted, held.desired)
            self._put(replace(held, in_spec=True, desired=adopted))
            return True
        refusal = first_refusal(candidate_for(wanted, self._held.values(), self._devices))
        self._put(
            HeldSlice(
                desired=wanted,
                phase=SlicePhase.REFUSED if refusal else SlicePhase.RESERVED,
                seen=held.seen if held else False,
                reason=refusal.reason.value if refusal else "",
                message=refusal.message if refusal else "",
            )
        )
        return True

    # -- pods ------------------------------------------------------------------------------------

    def see_pods(
        self, pods: Mapping[str, Pod], listed: Collection[ContainerKey]
    ) -> tuple[ContainerKey, ...]:
        """Compare with the pods bound here; a reservation whose pod is over ends.

        A pod not seen here yet is on its way: its slices were reserved before it was bound.

        Args:
            pods: all pods bound to this node, by uid; never an incomplete list.
            listed: bound containers whose slots kubelet lists for a pod of that name. kubelet may
                know a pod before our watch shows it.

        Returns:
            Containers with slots whose pod is terminal or gone: free them once drained.
        """
        over: set[ContainerKey] = set()
        for key, part in list(self._held.items()):
            pod = pods.get(key.pod_uid)
            if pod is not None and not part.seen:
                self._put(replace(part, seen=True))
            bound = part.container in self._bindings
            if pod is None:
                is_over = part.seen or (bound and part.container not in listed)
            else:
                is_over = pod.terminal
            if is_over and bound:
                over.add(part.container)
            elif is_over:
                self._end(key)
        return tuple(sorted(over))

    def _end(self, key: SliceKey) -> None:
        del self._held[key]
        if key in self._spec:
            self._ended.add(key)
        self.version += 1

    # -- containers ------------------------------------------------------------------------------

    def bind(self, binding: ContainerBinding) -> None:
        """Bind slots to a container that is about to start: its slices become ``Prepared``.

        Raises:
            ValueError: a slot is held by another container, or a slice is not held for it.
        """
        held = self.held_for(binding.key)
        for slot in binding.slots:
            holder = self._slots.get(slot, binding.key)
            if holder != binding.key:
                raise ValueError(f"{slot} is bound to {holder.directory}")
        if [part.desired.key.index for part in held] != [part.index for part in binding.slices]:
            raise ValueError(f"slices of {binding.key.directory} are not held as bound")
        self._unbind(binding.key)
        self._bindings[binding.key] = binding
        self._slots.update(dict.fromkeys(binding.slots, binding.key))
        for part in held:
            self._put(replace(part, phase=SlicePhase.PREPARED, reason="", message=""))
        self.version += 1

    def refuse(self, container: ContainerKey, refusal: SliceRefusal) -> ContainerBinding | None:
        """Note why a container did not start; a lasting refusal gives its room back.

        Only call it for a lasting refusal when no process of the container is left.

        Returns:
            The binding that ended with it, whose files the caller removes.
        """
        for part in self.held_for(container):
            if refusal.lasting:
                self._mark(part.desired.key, SlicePhase.REFUSED, refusal)
            elif part.phase is not SlicePhase.FAILED:
                self._mark(part.desired.key, part.phase, refusal)
        return self._unbind(container) if refusal.lasting else None

    def set_phase(
        self, container: ContainerKey, phase: SlicePhase, refusal: SliceRefusal | None = None
    ) -> None:
        """Say what was seen of a bound container; a failed one stays failed until it is gone."""
        for part in self.held_for(container):
            if part.phase.started and part.phase is not SlicePhase.FAILED:
                self._mark(part.desired.key, phase, refusal)

    def free(self, container: ContainerKey) -> ContainerBinding | None:
        """The container is gone: its slots and slices hold nothing any more.

        Only call it when no process of the container is left.
        """
        for part in self.held_for(container):
            self._end(part.desired.key)
        return self._unbind(container)

    def release_slots(self, container: ContainerKey) -> ContainerBinding | None:
        """Forget which slots a container had, as after a reboot: its slices are reserved only."""
        for part in self.held_for(container):
            if part.phase.started:
                self._put(replace(part, phase=SlicePhase.RESERVED, reason="", message=""))
        return self._unbind(container)

    def restore(
        self, epoch: int, held: Iterable[HeldSlice], bindings: Iterable[ContainerBinding]
    ) -> None:
        """Take over what an earlier life of the agent knew; nothing may be held yet."""
        self.epoch = max(self.epoch, epoch)
        for part in held:
            self._held[part.desired.key] = replace(part, in_spec=False)
        for binding in bindings:
            self._bindings[binding.key] = binding
            self._slots.update(dict.fromkeys(binding.slots, binding.key))
        self.version += 1

    def remember(self, reported: Iterable[ObservedSlice]) -> None:
        """Count what an earlier agent reported as started and this book does not know.

        It holds its room until it is recognised (:meth:`adopt`), starts again, or its pod is gone.
        """
        for seen in reported:
            if seen.key in self._held or not seen.phase.started:
                continue
            desired = DesiredSlice(
                key=seen.key,
                pod_namespace="",
                pod_name="",
                gpu=seen.gpu,
                percent=seen.percent,
                memory_mib=seen.memory_mib,
                persistent_mib=seen.persistent_mib,
                ephemeral_mib=seen.ephemeral_mib,
                lane=seen.lane,
                suspendable=seen.suspendable,
                epoch=seen.epoch,
            )
            self._put(HeldSlice(desired=desired, phase=seen.phase, in_spec=False, seen=True))

    def adopt(self, parts: Sequence[tuple[DesiredSlice, str]]) -> None:
        """Take in a started container that the book does not know, from what its start left.

        Args:
            parts: the container's slices in order of their index, each with its slot.
        """
        for desired, _ in parts:
            before = self._held.get(desired.key)
            failed = before is not None and before.phase is SlicePhase.FAILED
            self._put(
                HeldSlice(
                    desired=desired,
                    phase=SlicePhase.FAILED if failed else SlicePhase.PREPARED,
                    in_spec=desired.key in self._spec,
                    seen=True,
                    reason=before.reason if failed and before else "",
                    message=before.message if failed and before else "",
                )
            )
        binding = binding_of(parts)
        self._unbind(binding.key)
        self._bindings[binding.key] = binding
        self._slots.update(dict.fromkeys(binding.slots, binding.key))
        self.version += 1

    # -- changing one entry ----------------------------------------------------------------------

    def _unbind(self, container: ContainerKey) -> ContainerBinding | None:
        binding = self._bindings.pop(container, None)
        if binding is not None:
            for slot in binding.slots:
                del self._slots[slot]
            self.version += 1
        return binding

    def _mark(self, key: SliceKey, phase: SlicePhase, refusal: SliceRefusal | None) -> None:
        self._put(
            replace(
                self._held[key],
                phase=phase,
                reason=refusal.reason.value if refusal else "",
                message=refusal.message if refusal else "",
            )
        )

    def _put(self, part: HeldSlice) -> None:
        if self._held.get(part.desired.key) != part:
            self._held[part.desired.key] = part
            self.version += 1


def _in_its_lane(decided: DesiredSlice, held: DesiredSlice) -> DesiredSlice:
    """The decision for a program that runs: it stays in the lane in which others know it.

    An operator of before lanes leaves them out of every slice that it writes.
    """
    if not held.lane:
        return decided
    return replace(
        decided,
        lane=held.lane,
        persistent_mib=held.persistent_mib,
        ephemeral_mib=held.ephemeral_mib,
        suspendable=held.suspendable,
    )


def binding_of(parts: Sequence[tuple[DesiredSlice, str]]) -> ContainerBinding:
    """The binding of one container: its slices in order of their index, each with its slot."""
    first = parts[0][0]
    return ContainerBinding(
        key=container_of(first),
        pod_namespace=first.pod_namespace,
        pod_name=first.pod_name,
        slices=tuple(
            BoundSlice(
                slot=slot,
                index=desired.key.index,
                gpu=desired.gpu,
                percent=desired.percent,
                memory_mib=desired.memory_mib,
                protected=desired.protected,
                probation=desired.probation,
                context_overhead_mib=desired.context_overhead_mib,
                lane=desired.lane,
                ephemeral_mib=desired.ephemeral_mib,
                suspendable=desired.suspendable,
            )
            for desired, slot in parts
        ),
    )


def _keys_of(container: ContainerKey, keys: Iterable[SliceKey]) -> list[SliceKey]:
    """Those of a container, in order of the index."""
    uid, name = container.pod_uid, container.container
    return sorted(key for key in keys if key.pod_uid == uid and key.container == name)
