# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A whole operator in one hand: picture, decision, writer on an API server, and a tiny cluster.

``Cluster`` plays everyone else: node agents, kube-scheduler, kubelet, Deployment controller. A
``Brain`` is one life of the operator; it looks at everything, decides as it is told and writes
through the product's writer. A ``Mortal`` port dies at a chosen write.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from builders import a_device
from fakes.apiserver import FakeApiServer
from fakes.mortal import Mortal
from ullage import ports
from ullage.api.labels import ANNOTATION_RESERVATION, GATE, LABEL_MANAGED, SLOT_RESOURCE
from ullage.api.slices import WIRE_VERSION
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.cluster.values.streams import STREAMS, Stream
from ullage.kube.client import K8sCluster
from ullage.kube.coordinators import Coordinators
from ullage.kube.errors import Refused
from ullage.kube.writer.limits import WriteLimits
from ullage.kube.writer.writer import Writer, WriterStats
from ullage.ports import ApiError
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings

Stored = dict[str, Any]
BEGUN = ("Running", "Succeeded", "Failed")
"""Phases of pods that kubelet has taken up."""
REPORTED = ("podUID", "container", "index", "gpu", "percent", "memoryMiB", "epoch")


@dataclass
class Wall:
    """A clock that the test moves."""

    seconds: float = 1_767_323_045.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def stamp(self) -> str:
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """Everyone but the operator; acts directly on what the server stores."""

    def __init__(self, server: FakeApiServer, wall: Wall) -> None:
        self.server = server
        self.wall = wall
        self.contract = WIRE_VERSION
        """Of every node's agent."""

    def add_node(self, name: str) -> None:
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", SLOT_RESOURCE: "16"}
        self.server.put(
            ports.NODE,
            {
                "metadata": {"name": name, "labels": {"ullage.dev/node": "true"}},
                "status": {
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def turn(self) -> None:
        """One round of everyone's work; changes nothing where there is nothing to do."""
        self._controller()
        self._scheduler_and_kubelet()
        self._agents()

    def _controller(self) -> None:
        """Deployments get their replicas through a ReplicaSet's pods."""
        for deployment in self.server.objects(ports.DEPLOYMENT):
            meta, spec = deployment["metadata"], deployment["spec"]
            for number in range(spec["replicas"]):
                name = f"{meta['name']}-abc12-{number}"
                if self.server.get(ports.POD, name, meta["namespace"]) is None:
                    self._replica(deployment, name)

    def _replica(self, deployment: Stored, name: str) -> None:
        template = deployment["spec"]["template"]
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"{deployment['metadata']['name']}-abc12",
            "uid": deployment["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            **template["metadata"],
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "ownerReferences": [owner],
        }
        pod = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
        self.server.put(ports.POD, pod)

    def _scheduler_and_kubelet(self) -> None:
        for pod in self.server.objects(ports.POD):
            gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]
            if gates or (pod.get("status") or {}).get("phase") in BEGUN:
                continue
            terms = pod["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"]
            pod["spec"]["nodeName"] = terms[0]["matchFields"][0]["values"][0]
            pod["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            self.server.put(ports.POD, pod)

    def _agents(self) -> None:
        running = {
            pod["metadata"]["uid"]: (pod.get("status") or {}).get("phase") == "Running"
            for pod in self.server.objects(ports.POD)
        }
        claims = {
            pod["metadata"].get("annotations", {}).get(ANNOTATION_RESERVATION): pod
            for pod in self.server.objects(ports.POD)
        }
        for node in self.server.objects(ports.GPU_NODE):
            name, before = node["metadata"]["name"], node.get("status") or {}
            slices = []
            for piece in node["spec"].get("slices") or []:
                pod = claims.get(piece["podUID"])
                bound = pod is not None and pod["spec"].get("nodeName") == name
                uid = pod["metadata"]["uid"] if pod is not None and bound else piece["podUID"]
                slices.append(
                    {key: piece[key] for key in ("container", "gpu", "percent", "memoryMiB")}
                    | {"podUID": uid, "epoch": piece["epoch"], "index": piece.get("index", 0)}
                    | {"phase": "Attached" if running.get(uid) else "Reserved"}
                )
            devices = [a_device(f"GPU-{name}-{number}").to_wire() for number in range(2)]
            after = before | {"slices": slices, "devices": devices}
            after.setdefault("heartbeat", self.wall.stamp())
            after["agent"] = {"version": "test", "contract": self.contract}
            if after != before:
                self.server.put(ports.GPU_NODE, node | {"status": after})

    def heartbeat(self) -> None:
        """Every agent says that it lives."""
        for node in self.server.objects(ports.GPU_NODE):
            status = (node.get("status") or {}) | {"heartbeat": self.wall.stamp()}
            self.server.put(ports.GPU_NODE, node | {"status": status})


Decision = Callable[[Snapshot, float, int], tuple[Action, ...]]
"""From a snapshot, a moment and an epoch to actions."""


def products_decision(snapshot: Snapshot, now: float, epoch: int) -> tuple[Action, ...]:
    plan = decide(snapshot, now, DecideSettings(epoch=epoch, reserve_first=True))
    return diff(plan, snapshot)


class Dead(Exception):
    """The operator's process is gone."""


def selected(stream: Stream, item: Stored) -> bool:
    """Whether a stream's selector takes an object; knows the three selectors that streams use."""
    labels = item["metadata"].get("labels") or {}
    managed = labels.get(LABEL_MANAGED) == "true"
    if stream.selector.labels == f"{LABEL_MANAGED}=true":
        return managed
    if stream.selector.labels:
        assert stream.selector.labels == f"!{LABEL_MANAGED}"
        return not managed and bool(item["spec"].get("nodeName"))
    return True


class Brain:
    """One life of the operator, with an epoch of its own."""

    def __init__(self, port: Mortal, cluster: Cluster, epoch: int, decision: Decision) -> None:
        self.port = port
        self.cluster = cluster
        self.wall = wall = cluster.wall
        self._decision = decision
        self.epoch = epoch
        self.state = ClusterState(effect_of)
        self.stats = WriterStats()
        self.failures: list[tuple[Action, ApiError]] = []
        self.actions: list[Action] = []
        self.lost = 0
        self.writer = Writer(
            port,
            self.state,
            fence=lambda: True,
            on_result=self._written,
            on_lost=self._lose,
            clock=wall,
            limits=WriteLimits(
                per_second=10_000.0,
                moved_on_s=0.0,
                passing_s=0.0,
                coordinators=Coordinators(image="ullage-operator:1", namespace="ullage-system"),
            ),
            stats=self.stats,
        )
        self._running = asyncio.create_task(self.writer.run())

    def _lose(self) -> None:
        self.lost += 1

    def _written(self, action: Action, error: ApiError | None) -> None:
        if error is None:
            return
        self.failures.append((action, error))
        self.state.forget(action)
        if isinstance(error, Refused):
            owner = getattr(action, "owner", None)
            uid = owner.uid if isinstance(owner, ObjectRef) else ""
            self.state.refuse(
                (error.kind, error.namespace, error.name),
                RefusedWrite(reason=error.verdict, message=error.message),
                now=self.wall.now(),
                owner_uid=uid,
            )

    def look(self) -> None:
        """See everything again, as a relist would."""
        for stream in STREAMS:
            found = self.cluster.server.objects(stream.kind)
            items = [item for item in found if selected(stream, item)]
            self.state.replace(stream, items, self.wall.now())

    def decide(self) -> tuple[Action, ...]:
        """What should be done now."""
        now = self.wall.now()
        self.state.expire(now)
        return self._decision(self.state.freeze(now), now, self.epoch)

    async def cycle(self) -> int:
        """Look, decide, write; returns how many actions there were.

        Raises:
            Dead: the port died on the way.
        """
        self.look()
        actions = self.decide()
        await self.carry_out(*actions)
        return len(actions)

    async def carry_out(self, *actions: Action) -> None:
        """Assume and write, and wait until all is written.

        Raises:
            Dead: the port died on the way.
        """
        self.actions += actions
        self.state.assume(actions, self.wall.now())
        self.writer.submit(actions)
        while self.stats.queue_depth or self.stats.in_flight:
            if self.port.died.is_set():
                await self.kill()
                raise Dead
            await asyncio.sleep(0)

    async def kill(self) -> None:
        """The process is gone, whatever it was doing."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def stop(self) -> None:
        """A graceful end."""
        await self.writer.stop()
        await self._running


async def converge(brain: Brain, cluster: Cluster, most: int = 40) -> int:
    """Cycle until no one has anything to do; returns the cycles it took.

    Raises:
        Dead: the port died on the way.
    """
    quiet = 0
    for number in range(most):
        version = cluster.server.version
        await brain.cycle()
        cluster.turn()
        cluster.wall.seconds += 1.0
        quiet = quiet + 1 if cluster.server.version == version else 0
        if quiet == 3:
            return number
    raise AssertionError(f"still changing after {most} cycles: {brain.actions[-5:]}")


async def live(
    cluster: Cluster,
    port: K8sCluster,
    *,
    epoch: int,
    decision: Decision,
    writes: int = 1_000_000,
    sent: bool = False,
) -> Mortal:
    """One life to its end: converged and stopped, or dead at its last write."""
    mortal = Mortal(port, writes_left=writes, sent=sent)
    brain = Brain(mortal, cluster, epoch, decision)
    try:
        await converge(brain, cluster)
    except Dead:
        return mortal
    await brain.stop()
    return mortal


def picture(server: FakeApiServer) -> dict[str, Any]:
    """What stands in the end, without uids, times and who decided."""
    pods = {pod["metadata"]["uid"]: pod for pod in server.objects(ports.POD)}
    named = {uid: pod["metadata"]["name"] for uid, pod in pods.items()} | {
        pod["metadata"]["annotations"][ANNOTATION_RESERVATION]: pod["metadata"]["name"]
        for pod in pods.values()
        if ANNOTATION_RESERVATION in pod["metadata"].get("annotations", {})
    }
    slices = [
        (named[piece["podUID"]], piece["percent"])
        for node in server.objects(ports.GPU_NODE)
        for piece in node["spec"].get("slices") or []
    ]
    workloads = [*server.objects(ports.TRAINING_JOB), *server.objects(ports.INFERENCE_DEPLOYMENT)]
    statuses = {one["metadata"]["name"]: one.get("status") or {} for one in workloads}
    return {
        "pods": sorted((p["metadata"]["name"], p["status"]["phase"]) for p in pods.values()),
        "gated": [p["metadata"]["name"] for p in pods.values() if gated(p)],
        "slices": sorted(slices),
        "services": [s["metadata"]["name"] for s in server.objects(ports.SERVICE)],
        "deployments": [d["metadata"]["name"] for d in server.objects(ports.DEPLOYMENT)],
        "phases": {name: status.get("phase") for name, status in statuses.items()},
        "placed": {name: len(status.get("placement", ())) for name, status in statuses.items()},
        "restarts": {name: status.get("restarts", 0) for name, status in statuses.items()},
    }


def given_twice(server: FakeApiServer) -> dict[str, int]:
    """Devices whose slices add up to more than the whole."""
    percent: Counter[str] = Counter()
    for node in server.objects(ports.GPU_NODE):
        for piece in node["spec"].get("slices") or []:
            percent[piece["gpu"]] += piece["percent"]
    return {device: total for device, total in percent.items() if total > 100}


def gated(pod: Stored) -> bool:
    """Whether our gate still holds the pod."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or [])
