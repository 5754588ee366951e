# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The node's own book of slices: wanted ones, held ones, and the slots of each.

A state machine without I/O and without a clock, changed by one task at a time. It alone decides on
room: a slice holds room from ``Reserved`` until it left the spec unstarted, was refused
permanently, or its container is gone. It never gives a slot to a second live container and never
revokes room of a running one.
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

    ``version`` grows with every change, so that writers detect changes.
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
        self._claims: dict[str, Pod] = {}
        """Pods that bear a reservation of the spec, by its id."""
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
        """Bound slots and their holders."""
        return MappingProxyType(self._slots)

    def binding(self, container: ContainerKey) -> ContainerBinding | None:
        """Binding of the container's slots, if any."""
        return self._bindings.get(container)

    def holder(self, slot: str) -> ContainerBinding | None:
        """Holder of a slot, if any."""
        container = self._slots.get(slot)
        return self._bindings[container] if container else None

    def wanted_for(self, container: ContainerKey) -> tuple[DesiredSlice, ...]:
        """Slices of a container in the current spec, in index order."""
        return tuple(self._spec[key] for key in _keys_of(container, self._spec))

    def container_of_pod(self, pod_uid: str) -> ContainerKey | None:
        """The container of a pod that started with a slice; ``None`` = there is none now."""
        started = (
            part.container
            for key, part in self._held.items()
            if key.pod_uid == pod_uid and part.phase.started
        )
        return min(started, key=lambda key: key.container, default=None)

    def held_for(self, container: ContainerKey) -> tuple[HeldSlice, ...]:
        """Slices that the node holds for a container, in index order."""
        return tuple(self._held[key] for key in _keys_of(container, self._held))

    def uids_named(self, namespace: str, name: str) -> frozenset[str]:
        """Uids of the unfinished pods of this name that have slices."""
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
        """Texts of violated invariants; always empty unless there is a bug."""
        return violations(self._held.values(), self._bindings.values(), self._devices)

    # -- devices ---------------------------------------------------------------------------------

    def set_devices(self, devices: Iterable[NodeDevice]) -> None:
        """Update the devices; a lost one fails its running slices and refuses the waiting ones."""
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

    # -- the operator's spec ---------------------------------------------------------------------

    def intake(
        self,
        epoch: int,
        wanted: Sequence[DesiredSlice],
        faulty: Sequence[tuple[DesiredSlice, str]] = (),
    ) -> tuple[SliceKey, ...]:
        """Apply a spec and reserve new slices that fit.

        Args:
            epoch: the epoch of the spec as a whole.
            wanted: all slices of the spec that can be read.
            faulty: the other identifiable slices, each with its fault.

        Returns:
            Keys of slices ignored because a newer leader has already written (fencing).
        """
        before = (self._spec, self.epoch)
        reservations = {part.key.pod_uid for part in wanted}
        self._claims = {each: pod for each, pod in self._claims.items() if each in reservations}
        self._spec = {part.key: part for part in map(self.claimed, wanted)}
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
        """Refuse an unreadable slice; a running one stays as it was."""
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
        """Judge one slice; an error refuses this slice only."""
        try:
            return self._take(wanted, floor)
        except Exception as error:  # one bad slice must not stop the others
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
            # A running client cannot be resized: a changed share waits for the next start, which
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

    def claim(self, pod: Pod) -> bool:
        """Give a pod the slices that were reserved before it existed.

        From then on they bear its uid, whatever the spec says. Only the pod for which they were
        reserved gets them, by its namespace and name.

        Returns:
            True if it got any now.
        """
        if pod.reservation in ("", pod.uid):
            return False
        self._claims[pod.reservation] = pod
        mine = [key for key, part in self._spec.items() if self.claimed(part) is not part]
        for key in mine:
            part = self.claimed(self._spec.pop(key))
            self._spec[part.key] = part
            waiting, own = self._held.pop(key, None), self._held.get(part.key)
            if own is not None:
                self._put(replace(own, in_spec=True))
            elif waiting is not None:
                self._put(replace(waiting, desired=replace(waiting.desired, key=part.key)))
            self.version += 1
        return bool(mine)

    def claimed(self, part: DesiredSlice) -> DesiredSlice:
        """A slice of the spec, under the uid of the pod that claimed it."""
        pod = self._claims.get(part.key.pod_uid)
        if pod is None or (part.pod_namespace, part.pod_name) != (pod.namespace, pod.name):
            return part
        return replace(part, key=replace(part.key, pod_uid=pod.uid))

    def see_pods(
        self, pods: Mapping[str, Pod], listed: Collection[ContainerKey]
    ) -> tuple[ContainerKey, ...]:
        """Compare with the pods bound here; a reservation ends with its pod.

        A pod not seen yet is still expected: its slices were reserved before it was bound.

        Args:
            pods: all pods bound to this node, by uid; never an incomplete list.
            listed: bound containers whose slots kubelet lists for a pod of that name. kubelet may
                know a pod before our watch does.

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
        """Record why a container did not start; a lasting refusal frees its room.

        Only call it for a lasting refusal when no process of the container is left.

        Returns:
            The removed binding, whose files the caller must remove.
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
        """Set the observed phase of a bound container; a failed one stays failed."""
        for part in self.held_for(container):
            if part.phase.started and part.phase is not SlicePhase.FAILED:
                self._mark(part.desired.key, phase, refusal)

    def free(self, container: ContainerKey) -> ContainerBinding | None:
        """Free the slots and slices of a container that is gone.

        Only call it when no process of the container is left.
        """
        for part in self.held_for(container):
            self._end(part.desired.key)
        return self._unbind(container)

    def release_slots(self, container: ContainerKey) -> ContainerBinding | None:
        """Forget a container's slots, as after a reboot: its slices are only reserved."""
        for part in self.held_for(container):
            if part.phase.started:
                self._put(replace(part, phase=SlicePhase.RESERVED, reason="", message=""))
        return self._unbind(container)

    def restore(
        self, epoch: int, held: Iterable[HeldSlice], bindings: Iterable[ContainerBinding]
    ) -> None:
        """Restore an earlier agent's state; nothing may be held yet."""
        self.epoch = max(self.epoch, epoch)
        for part in held:
            self._held[part.desired.key] = replace(part, in_spec=False)
        for binding in bindings:
            self._bindings[binding.key] = binding
            self._slots.update(dict.fromkeys(binding.slots, binding.key))
        self.version += 1

    def remember(self, reported: Iterable[ObservedSlice]) -> None:
        """Count slices that an earlier agent reported as started and this book lacks.

        Such a slice holds its room until it is recognised (:meth:`adopt`), starts again, or its pod
        is gone.
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
        """Add a started container that the book lacks, from the files of its start.

        Args:
            parts: the container's slices in index order, each with its slot.
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
    """The decision for a running program: it stays in its lane.

    An older operator without lanes omits them in every slice.
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
    """The binding of one container: its slices in index order, each with its slot."""
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
    """Keys of a container, in index order."""
    uid, name = container.pod_uid, container.container
    return sorted(key for key in keys if key.pod_uid == uid and key.container == name)
