# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Adopted pods come, run, fail and go in any order, and the operator restarts between.

The world is raw objects: what the operator writes is applied to them and read back. Others create
and end the pods; a node agent confirms each slice, and kube-scheduler binds what is let go.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from builders_nodes import a_device
from builders_raw import owner_reference, raw_adopted_pod, raw_foreign_pod, raw_gpu_node, raw_node
from fakes.apiserver.patches import json_patch
from ullage.api.labels import GATE
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.api.times import rfc3339
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.kube.manifests.applied import status_body
from ullage.kube.manifests.ungate import ungate_patch
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    CreateDeviceProfile,
    CreateProfile,
    DecideSettings,
    Emit,
    EvictPod,
    RegisterNode,
    TellPod,
    UngatePod,
)

Raw = dict[str, Any]
START = 1_767_330_000.0
STEPS = 60
NODES = ("node-1", "node-2")
IGNORED = (Emit, CreateProfile, CreateDeviceProfile, RegisterNode)
KUEUE = {"name": "kueue.x-k8s.io/admission"}


class World:
    """Raw objects, and an operator that reads and writes them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now, self.born = START, 0
        self.pods: dict[str, Raw] = {}
        self.slices: dict[str, tuple[DesiredSlice, ...]] = dict.fromkeys(NODES, ())
        self.held: dict[str, tuple[DesiredSlice, ...]] = {}
        """Slices that containers use, by node, whatever was decided since."""
        self.acts: list[Action] = []
        self.restart()

    def restart(self) -> None:
        """A new process: it knows what the objects say, and nothing else."""
        self.state, self.cache = ClusterState(effect_of), CycleCache()

    # -- what others do ------------------------------------------------------------------------

    def stir(self) -> None:
        happen = (self.create, self.create, self.gang, self.gang, self.end, self.delete,
                  self.restart, self.lift, self.forge)  # fmt: skip
        self.dice.choice(happen)()

    def create(self, **more: Any) -> None:
        self.born += 1
        name = f"p-{self.born}"
        keys = {"share": self.dice.choice(("10", "30-60", "100", "60"))}
        if self.dice.random() < 0.2:
            keys = {"devices": "1"}
        notes = {}
        if self.dice.random() < 0.3:
            notes["checkpoint"] = "true"
        if self.dice.random() < 0.1:
            notes["memory"] = "wild"
        controller = owner_reference("ReplicaSet", "web") if self.dice.random() < 0.6 else None
        pod = raw_adopted_pod(name, keys=keys, notes=notes, controller=controller, **more)
        pod["spec"]["priority"] = self.dice.choice((0, 0, 10))
        if self.dice.random() < 0.2:
            pod["spec"]["schedulingGates"].insert(0, KUEUE)
        self.keep(pod)

    def gang(self) -> None:
        self.born += 1
        pod = raw_adopted_pod(
            f"g-{self.born}",
            keys={"share": "30", "gang": self.dice.choice(("a", "b"))},
            notes={"gang-size": "3"},
            controller=owner_reference("Job", "j"),
        )
        self.keep(pod)

    def keep(self, pod: Raw) -> None:
        pod["metadata"]["creationTimestamp"] = rfc3339(self.now)
        self.pods[pod["metadata"]["uid"]] = pod

    def end(self) -> None:
        running = [pod for pod in self.pods.values() if pod["status"]["phase"] == "Running"]
        if running:
            self.dice.choice(running)["status"]["phase"] = self.dice.choice(("Succeeded", "Failed"))

    def delete(self) -> None:
        if self.pods:
            del self.pods[self.dice.choice(sorted(self.pods))]

    def lift(self) -> None:
        for pod in self.pods.values():
            gates = pod["spec"].get("schedulingGates", [])
            pod["spec"]["schedulingGates"] = [gate for gate in gates if gate != KUEUE]

    def forge(self) -> None:
        if self.pods:
            pod = self.pods[self.dice.choice(sorted(self.pods))]
            wild = self.dice.choice(("{", '{"phase":"Running"}', "x" * 2_000, '{"decision":7}'))
            pod["metadata"]["annotations"]["ullage.dev/scheduling"] = wild

    def bind(self) -> None:
        """kube-scheduler and kubelet: what has no gate goes to its pin, and runs."""
        for pod in self.pods.values():
            if pod["spec"].get("schedulingGates") or pod["status"]["phase"] != "Pending":
                continue
            (term,) = pod["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"]
            pod["spec"]["nodeName"] = term["matchFields"][0]["values"][0]
            pod["status"]["phase"] = "Running"

    # -- the operator ----------------------------------------------------------------------------

    def read(self) -> None:
        heard = rfc3339(self.now)
        nodes = [
            raw_gpu_node(
                name,
                desired=self.slices[name],
                observed=[
                    self.confirmed(one) for one in {*self.slices[name], *self.held.get(name, ())}
                ],
                devices=[a_device(f"GPU-{name}-{index}") for index in range(2)],
                heartbeat=heard,
            )
            for name in NODES
        ]
        pods = [copy.deepcopy(pod) for pod in self.pods.values()]
        self.dice.shuffle(pods)
        told = [
            (streams.NODES, [raw_node(name) for name in NODES]),
            (streams.GPU_NODES, nodes),
            (streams.PODS, pods),
        ]
        self.dice.shuffle(told)
        for stream, items in told:
            self.state.replace(stream, items, self.now)

    def confirmed(self, wanted: DesiredSlice) -> ObservedSlice:
        pod = self.pods.get(wanted.key.pod_uid)
        runs = pod is not None and pod["status"]["phase"] == "Running"
        return ObservedSlice(
            key=wanted.key,
            phase=SlicePhase.ATTACHED if runs else SlicePhase.RESERVED,
            gpu=wanted.gpu,
            percent=wanted.percent,
            memory_mib=wanted.memory_mib,
            epoch=wanted.epoch,
        )

    def cycle(self) -> list[Action]:
        """Read, decide, check, write; returns what was written."""
        self.now += 1.0
        self.read()
        snapshot = self.state.freeze(self.now)
        plan = decide(snapshot, self.now, DecideSettings(epoch=7), None, self.cache)
        assert not plan.faults, plan.faults
        actions = [one for one in diff(plan, snapshot) if not isinstance(one, IGNORED)]
        for action in actions:
            self.write(action)
        self.check()
        return actions

    def write(self, action: Action) -> None:
        match action:
            case ApplyGPUNode():
                self.slices[action.name] = action.slices
            case UngatePod():
                self.check_let_go(action)
                pod = self.pods[action.pod.uid]
                patch = ungate_patch(
                    action.pod.uid, action.gate_index, action.affinity, action.node
                )
                self.pods[action.pod.uid] = json_patch(pod, patch)
            case TellPod() if action.owner.uid not in self.pods:
                pass  # it was evicted in this cycle
            case TellPod():
                pod, body = self.pods[action.owner.uid], status_body(action, "")
                pod["metadata"]["annotations"] |= body["metadata"]["annotations"]  # type: ignore[index]
                pod["status"]["conditions"] = body["status"]["conditions"]  # type: ignore[index]
            case EvictPod():
                pod = self.pods.pop(action.pod.uid)
                notes = pod["metadata"]["annotations"]
                saves = notes.get("ullage.dev/checkpoint") == "true"
                assert saves or pod["metadata"]["ownerReferences"], action
            case _:
                raise AssertionError(f"nothing else is done to pods of others: {action}")

    # -- what must hold --------------------------------------------------------------------------

    def check_let_go(self, action: UngatePod) -> None:
        """No member of a gang starts before all have their slices."""
        pod = self.pods[action.pod.uid]
        assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [GATE]
        gang = pod["metadata"]["labels"].get("ullage.dev/gang")
        if gang is None:
            return
        members = [
            one
            for one in self.pods.values()
            if one["metadata"]["labels"].get("ullage.dev/gang") == gang
        ]
        holding = {part.key.pod_uid for parts in self.slices.values() for part in parts}
        served = sum(
            one["metadata"]["uid"] in holding or one["status"]["phase"] == "Succeeded"
            for one in members
        )
        assert served >= 3, [one["metadata"]["name"] for one in members]

    def check(self) -> None:
        """No device is given twice, and no pod more than it asked for."""
        for name, parts in self.slices.items():
            for gpu in {part.gpu for part in parts}:
                percents = [part.percent for part in parts if part.gpu == gpu]
                assert sum(percents) <= 100, (name, gpu, parts)
        pods = [part.key.pod_uid for parts in self.slices.values() for part in parts]
        assert len(pods) == len(set(pods))

    def settle(self) -> None:
        """Nothing happens any more: the operator comes to rest, and everyone knows why it waits."""
        for _ in range(30):
            self.bind()
            if not self.cycle():
                break
        else:
            raise AssertionError(f"it does not come to rest: {self.cycle()}")
        for pod in self.pods.values():
            if pod["status"]["phase"] in ("Pending", "Running"):
                told = pod["status"].get("conditions", [])
                assert any(one["type"] == "ullage.dev/Admitted" for one in told), pod


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_given_twice_and_everyone_is_told(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.stir()
        if world.dice.random() < 0.5:
            world.bind()
        world.cycle()
    world.settle()
    world.restart()
    assert not [one for one in world.cycle() if isinstance(one, (UngatePod, EvictPod))]
    world.pods.clear()  # as when the namespace is deleted
    world.cycle()
    assert not any(world.slices.values())


def a_world(*pods: Raw) -> World:
    world = World(0)
    for pod in pods:
        world.keep(pod)
    return world


def gang_pods(size: int) -> list[Raw]:
    keys, notes = {"share": "30", "gang": "a"}, {"gang-size": str(size)}
    job = owner_reference("Job", "j")
    return [
        raw_adopted_pod(f"g-{at}", keys=keys, notes=notes, controller=job) for at in range(size)
    ]


def given(world: World) -> set[str]:
    """Names of the pods that hold a slice."""
    names = {uid: pod["metadata"]["name"] for uid, pod in world.pods.items()}
    return {names.get(s.key.pod_uid, "gone") for parts in world.slices.values() for s in parts}


def test_a_namespace_that_goes_while_its_gang_is_half_bound_leaves_nothing() -> None:
    world = a_world(*gang_pods(3), raw_adopted_pod("other", namespace="elsewhere"))
    while not any(isinstance(action, UngatePod) for action in world.cycle()):
        pass
    first = next(pod for pod in world.pods.values() if pod["metadata"]["name"] == "g-0")
    waiting = [pod for pod in world.pods.values() if pod is not first]
    kept = {pod["metadata"]["uid"]: pod for pod in waiting}
    world.pods = {first["metadata"]["uid"]: first}
    world.bind()  # the others are let go and not bound yet
    world.pods |= kept
    assert first["status"]["phase"] == "Running"
    for pod in world.pods.values():
        if pod["metadata"]["namespace"] == "default":
            pod["metadata"]["deletionTimestamp"] = rfc3339(world.now)
    for _ in range(3):
        acts = world.cycle()
        assert not [one for one in acts if isinstance(one, EvictPod)]
        assert not [one for one in acts if isinstance(one, UngatePod) and "g-" in one.pod.name]
    assert "g-0" in given(world), "a container that still runs keeps its device"
    for uid in [uid for uid, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]]:
        del world.pods[uid]
    world.settle()
    assert given(world) == {"other"}


def test_pods_that_wait_are_served_after_the_policy_was_removed() -> None:
    world = a_world(raw_adopted_pod("prepared"))
    world.pods["uid-prepared"]["spec"]["schedulingGates"].insert(0, KUEUE)
    world.settle()
    assert given(world) == set()
    missed = raw_foreign_pod("missed")  # what a template makes without the policy
    missed["metadata"]["labels"] = {"ullage.dev/share": "30"}
    world.state.replace(streams.FOREIGN_PODS, [missed], world.now)
    world.lift()
    world.settle()
    assert given(world) == {"prepared"}
    assert set(world.state.unprepared_pods()) == {"uid-missed"}


@pytest.mark.parametrize("share", ["100", "x"])
def test_a_running_pod_that_is_labelled_again_keeps_what_it_has(share: str) -> None:
    world = a_world(raw_adopted_pod("web", keys={"share": "30"}))
    world.settle()
    before = dict(world.slices)
    world.pods["uid-web"]["metadata"]["labels"]["ullage.dev/share"] = share
    for _ in range(3):
        assert not [one for one in world.cycle() if isinstance(one, (EvictPod, UngatePod))]
    assert world.slices == before


def test_a_running_pod_that_lost_its_label_keeps_its_device_until_it_ends() -> None:
    world = a_world(raw_adopted_pod("web", keys={"devices": "1"}))
    world.settle()
    ((node, (part,)),) = [(name, parts) for name, parts in world.slices.items() if parts]
    del world.pods["uid-web"]["metadata"]["labels"]["ullage.dev/devices"]
    world.held[node] = (part,)  # its agent keeps what a container uses
    for at in range(4):
        world.keep(raw_adopted_pod(f"next-{at}", keys={"devices": "1"}))
    for _ in range(3):
        world.bind()
        assert not [one for one in world.cycle() if isinstance(one, EvictPod)]
    assert part.gpu not in {one.gpu for one in world.slices[node]}
    assert len(given(world)) == 3
    del world.pods["uid-web"], world.held[node]
    world.settle()
    assert len(given(world)) == 4


@pytest.mark.slow
def test_ten_thousand_pods_at_once_are_given_what_there_is_and_told_why_they_wait() -> None:
    count = 10_000
    web = owner_reference("ReplicaSet", "web")
    world = a_world(
        *(raw_adopted_pod(f"web-{at}", keys={"share": "30"}, controller=web) for at in range(count))
    )
    world.cycle()
    assert len(given(world)) == 12  # three on each of four devices
    told = [pod for pod in world.pods.values() if pod["status"].get("conditions")]
    assert len(told) == count
