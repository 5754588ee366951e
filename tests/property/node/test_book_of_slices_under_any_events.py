# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The book under any order of events: invariants hold, nothing leaks, restarts change nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from fakes.examples import examples
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey, SlicePhase
from ullage_node.model.devices import ContainerBinding, ContainerKey
from ullage_node.model.slices import NodeDevice, Pod, SliceRefusal
from ullage_node.slices.checkpoint import decode, encode, snapshot
from ullage_node.slices.prestart import ContainerStart, Leftover, decide
from ullage_node.slices.table import SliceTable

DEVICES = (
    NodeDevice(uuid="gpu-0", memory_mib=4096, contexts=3, overhead_mib=64),
    NodeDevice(uuid="gpu-1", memory_mib=2048, contexts=2),
)
SLOTS = tuple(f"slot-{number:02d}" for number in range(5))
LOST = SliceRefusal(reason=Reason.DEVICE_LOST, message="gone")
SICK = SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message="hot")
gpus = st.sampled_from(["gpu-0", "gpu-1", "gpu-2"])


class Book(RuleBasedStateMachine):
    """Operator, kubelet, devices and restarts act on one table; a model knows what must hold."""

    pods = Bundle("pods")

    @initialize()
    def begin(self) -> None:
        self.table = SliceTable()
        self.table.set_devices(DEVICES)
        self.spec: dict[SliceKey, DesiredSlice] = {}
        self.epoch = 1
        self.bound: dict[str, Pod] = {}
        """Pods that the API server shows on this node."""
        self.alive: set[ContainerKey] = set()
        """Containers with a process."""
        self.uids = itertools.count()
        self.seen_epochs = [0]

    # -- operator --------------------------------------------------------------------------------

    @rule(target=pods, gpu=gpus, percent=st.integers(1, 100), memory=st.integers(1, 3000))
    def place(self, gpu: str, percent: int, memory: int) -> str:
        uid = f"uid-{next(self.uids)}"
        self._want(uid, gpu, percent, memory, 0)
        self._take_in()
        return uid

    @rule(target=pods, memory=st.integers(1, 2048))
    def place_on_two_devices(self, memory: int) -> str:
        uid = f"uid-{next(self.uids)}"
        for index, gpu in enumerate(("gpu-0", "gpu-1")):
            self._want(uid, gpu, 100, memory, index)
        self._take_in()
        return uid

    @rule(uid=pods, percent=st.integers(1, 100), older=st.booleans())
    def change(self, uid: str, percent: int, older: bool) -> None:
        for key, part in list(self.spec.items()):
            if key.pod_uid == uid:
                epoch = max(0, self.epoch - 1) if older else self.epoch
                self.spec[key] = replace(part, percent=percent, epoch=epoch)
        self._take_in()

    @rule(uid=pods)
    def withdraw(self, uid: str) -> None:
        self.spec = {key: part for key, part in self.spec.items() if key.pod_uid != uid}
        self._take_in()

    @rule()
    def another_leader(self) -> None:
        self.epoch += 1
        self._take_in()

    def _want(self, uid: str, gpu: str, percent: int, memory: int, index: int) -> None:
        key = SliceKey(pod_uid=uid, container="main", index=index)
        self.spec[key] = DesiredSlice(
            key=key,
            pod_namespace="team",
            pod_name=f"pod-of-{uid}",
            gpu=gpu,
            percent=percent,
            memory_mib=memory,
            epoch=self.epoch,
        )

    def _take_in(self) -> None:
        self.table.intake(self.epoch, tuple(self.spec.values()))

    # -- pods ------------------------------------------------------------------------------------

    @rule(uid=pods)
    def bind_pod(self, uid: str) -> None:
        self.bound.setdefault(
            uid, Pod(uid=uid, namespace="team", name=f"pod-of-{uid}", phase="Running")
        )

    @rule(uid=pods, phase=st.sampled_from(["Succeeded", "Failed"]))
    def finish_pod(self, uid: str, phase: str) -> None:
        if uid in self.bound:
            self.bound[uid] = replace(self.bound[uid], phase=phase)

    @rule(uid=consumes(pods))
    def delete_pod(self, uid: str) -> None:
        self.bound.pop(uid, None)

    @rule(uid=pods, data=st.data())
    def start(self, uid: str, data: st.DataObject) -> None:
        """Kubelet starts the container on any slots that it thinks are free."""
        container = ContainerKey(pod_uid=uid, container="main")
        pod = self.bound.get(uid)
        if pod is None or pod.terminal or container in self.alive:
            return
        count = max(1, len(self.table.wanted_for(container)))
        slots = tuple(sorted(data.draw(st.permutations(SLOTS))[:count]))
        verdict = decide(self._facts(container, slots))
        if isinstance(verdict, SliceRefusal):
            self.table.refuse(container, verdict)
            return
        for other in {self.table.slots.get(slot, container) for slot in slots} - {container}:
            self.table.free(other)
        self.table.bind(verdict)
        self.alive.add(container)

    def _facts(self, container: ContainerKey, slots: tuple[str, ...]) -> ContainerStart:
        before: set[ContainerBinding] = {
            held for slot in slots if (held := self.table.holder(slot)) is not None
        }
        return ContainerStart(
            slots=slots,
            container=container,
            pod=f"team/pod-of-{container.pod_uid}",
            wanted=self.table.wanted_for(container),
            held=self.table.held_for(container),
            everyone=self.table.held,
            devices=self.table.devices,
            leftovers=tuple(
                Leftover(
                    binding=binding,
                    live=binding.key != container and self._is_live(binding.key),
                    pids=(1,) if binding.key in self.alive else (),
                )
                for binding in sorted(before, key=lambda found: found.key)
            ),
        )

    def _is_live(self, container: ContainerKey) -> bool:
        pod = self.bound.get(container.pod_uid)
        return pod is not None and not pod.terminal

    @rule(uid=pods)
    def end_process(self, uid: str) -> None:
        self.alive.discard(ContainerKey(pod_uid=uid, container="main"))

    @rule(uid=pods, failed=st.booleans())
    def observe(self, uid: str, failed: bool) -> None:
        container = ContainerKey(pod_uid=uid, container="main")
        if container in self.alive and self.table.binding(container):
            why = SliceRefusal(reason=Reason.UNENFORCED, message="x") if failed else None
            phase = SlicePhase.FAILED if failed else SlicePhase.ATTACHED
            self.table.set_phase(container, phase, why)

    @rule()
    def reconcile(self) -> None:
        listed = [binding.key for binding in self.table.bindings if self._is_live(binding.key)]
        for container in self.table.see_pods(self.bound, listed):
            assert not self._is_live(container)
            if container not in self.alive:
                self.table.free(container)

    # -- devices and restarts --------------------------------------------------------------------

    @rule(trouble=st.sampled_from([None, SICK, LOST]), number=st.integers(0, 1))
    def device_turns(self, trouble: SliceRefusal | None, number: int) -> None:
        devices = list(self.table.devices.values())
        devices[number] = replace(devices[number], refusal=trouble)
        self.table.set_devices(devices)

    @rule()
    def restart(self) -> None:
        """The agent dies and comes back: same phases, same slots, same room."""
        before = {part.desired.key: (part.desired, part.phase) for part in self.table.held}
        slots = dict(self.table.slots)
        state = decode(encode(snapshot(self.table, "boot", {})))
        devices = tuple(self.table.devices.values())
        self.table = SliceTable()
        self.table.restore(state.epoch, state.held, state.bindings)
        self.table.set_devices(devices)
        after = {part.desired.key: (part.desired, part.phase) for part in self.table.held}
        assert before == after
        assert slots == dict(self.table.slots)
        self._take_in()

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def nothing_is_overcommitted(self) -> None:
        assert self.table.violations() == []

    @invariant()
    def epochs_never_fall(self) -> None:
        assert self.table.epoch >= self.seen_epochs[-1]
        self.seen_epochs.append(self.table.epoch)

    @invariant()
    def a_bound_slot_has_a_started_slice(self) -> None:
        for binding in self.table.bindings:
            held = self.table.held_for(binding.key)
            assert [part.desired.key.index for part in held] == [
                part.index for part in binding.slices
            ]
            assert all(part.phase.started for part in held)
            for part, bound in zip(held, binding.slices, strict=True):
                assert (part.desired.gpu, part.desired.percent) == (bound.gpu, bound.percent)

    @invariant()
    def a_living_container_keeps_its_room(self) -> None:
        for container in self.alive:
            held = self.table.held_for(container)
            assert held
            assert all(part.phase.holds_capacity for part in held)

    @invariant()
    def an_unstarted_slice_is_in_the_spec(self) -> None:
        for part in self.table.held:
            if not part.phase.started:
                assert part.desired.key in self.spec

    @invariant()
    def every_refusal_has_a_reason(self) -> None:
        for part in self.table.held:
            if part.phase in (SlicePhase.REFUSED, SlicePhase.FAILED):
                assert Reason(part.reason)
                assert part.message

    def teardown(self) -> None:
        """When everyone is gone, nothing is held."""
        self.spec.clear()
        self._take_in()
        self.bound.clear()
        self.alive.clear()
        for _ in range(2):
            self.reconcile()
        assert self.table.held == ()
        assert dict(self.table.slots) == {}


TestBook = Book.TestCase
TestBook.settings = settings(examples(40, many=200), stateful_step_count=50)
