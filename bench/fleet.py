# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Node agents of many KWOK nodes in one process, over devices that exist only in their status.

They acknowledge what the operator reserves and say ``Attached`` when the pod runs: what a real
agent tells the API server, without kubelets. They never decide anything. Nodes with an agent of
their own are left out.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.labels import ANNOTATION_RESERVATION, API_VERSION, MANAGER_NODE
from ullage.api.readers import JsonObject, objects, section, text, whole
from ullage.api.slices import WIRE_VERSION, DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.values.streams import PODS
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.ports import (
    GPU_NODE,
    POD,
    ClusterPort,
    Conflict,
    Gone,
    Kind,
    NotFound,
    Selector,
    Throttled,
    Unavailable,
)

SeeObject = Callable[[JsonObject], None]
SETTLE_S = 0.1
"""Changes of a node within this time are answered by one status."""
STARTS_S = 1.0
"""The same of pods that begin to run, as a real agent waits for more of them."""
HEARTBEAT_S = 60.0
"""An agent without news speaks after this time, as a real one does."""
IN_FLIGHT = 20
DEVICE_MIB = 81_920


def devices_of(node: str, count: int) -> tuple[ObservedDevice, ...]:
    """Devices of one fake node."""
    return tuple(
        ObservedDevice(
            uuid=f"{node}-{number}",
            model="emulated",
            product_name="fleet",
            memory_mib=DEVICE_MIB,
            contexts=8,
            modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
            health=Health.HEALTHY,
            backend=Backend.EMULATED,
        )
        for number in range(count)
    )


@dataclass(slots=True)
class Agent:
    """One node's books."""

    name: str
    devices: tuple[ObservedDevice, ...]
    desired: dict[SliceKey, DesiredSlice] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    claims: dict[str, str] = field(default_factory=dict)
    """Uids of pods by the reservation that they bear."""
    epoch: int = 0
    told_at: float = 0.0
    """When it last spoke, monotonic seconds."""

    def observe(self, spec: JsonObject) -> bool:
        """Take the spec in; returns whether anything changed."""
        wanted = {s.key: s for s in map(DesiredSlice.from_wire, objects(spec, "slices"))}
        changed = wanted != self.desired
        self.desired, self.epoch = wanted, whole(spec, "epoch", 0)
        return changed

    def status(self, now: float) -> dict[str, object]:
        """What the agent tells."""
        slices = [
            self._slice(key, wanted).to_wire() for key, wanted in sorted(self.desired.items())
        ]
        slots = len(self.devices) * 8
        return {
            "agent": {"version": "fleet", "contract": WIRE_VERSION},
            "devices": [device.to_wire() for device in self.devices],
            "slices": slices,
            "totals": {"devices": len(self.devices), "slots": slots, "usedSlots": len(slices)},
            "heartbeat": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "observedEpoch": self.epoch,
        }

    def _slice(self, key: SliceKey, wanted: DesiredSlice) -> ObservedSlice:
        key = replace(key, pod_uid=self.claims.get(key.pod_uid, key.pod_uid))
        phase = SlicePhase.ATTACHED if key.pod_uid in self.running else SlicePhase.RESERVED
        return ObservedSlice(
            key=key,
            phase=phase,
            gpu=wanted.gpu,
            percent=wanted.percent,
            memory_mib=wanted.memory_mib,
            epoch=wanted.epoch,
        )


class Fleet:
    """All agents, two watches, one writer task per node that has news."""

    def __init__(
        self,
        cluster: ClusterPort,
        *,
        devices_per_node: int = 8,
        leave_out: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._leave_out = leave_out
        self._devices_per_node = devices_per_node
        self._agents: dict[str, Agent] = {}
        self._pending: dict[str, asyncio.TimerHandle] = {}
        self._writing: set[str] = set()
        self._gate = asyncio.Semaphore(IN_FLIGHT)
        self._tasks = asyncio.TaskGroup()
        self.writes = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        async with self._tasks as tasks:
            tasks.create_task(self._follow(GPU_NODE, Selector(), self._node_changed))
            tasks.create_task(self._follow(POD, PODS.selector, self._pod_changed))
            tasks.create_task(self._beat())

    async def _follow(self, kind: Kind, selector: Selector, see: SeeObject) -> None:
        while True:
            version = ""
            async for page in self._cluster.list_paged(kind, selector):
                version = page.resource_version
                for item in page.items:
                    see(item)
            try:
                while True:
                    async for event in self._cluster.watch(
                        kind, selector, resource_version=version
                    ):
                        version = text(section(event.object, "metadata"), "resourceVersion")
                        if event.type != "BOOKMARK":
                            see(event.object)
            except (Gone, Unavailable):
                continue  # list again

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            silent_since = time.monotonic() - HEARTBEAT_S
            for agent in self._agents.values():
                if agent.told_at <= silent_since:
                    self._tell(agent)

    def _node_changed(self, item: JsonObject) -> None:
        name = text(section(item, "metadata"), "name")
        if name in self._leave_out:
            return
        agent = self._agents.get(name)
        if agent is None:
            agent = Agent(name, devices_of(name, self._devices_per_node))
            self._agents[name] = agent
            agent.observe(section(item, "spec"))
            self._tell(agent)
        elif agent.observe(section(item, "spec")):
            self._tell(agent)

    def _pod_changed(self, item: JsonObject) -> None:
        agent = self._agents.get(text(section(item, "spec"), "nodeName", ""))
        uid = text(section(item, "metadata"), "uid")
        bears = section(section(item, "metadata"), "annotations").get(ANNOTATION_RESERVATION)
        if agent is not None and isinstance(bears, str):
            agent.claims[bears] = uid
        running = text(section(item, "status"), "phase", "") == "Running"
        if agent is not None and running and uid not in agent.running:
            agent.running.add(uid)
            self._tell(agent, STARTS_S)

    def _tell(self, agent: Agent, within_s: float = SETTLE_S) -> None:
        """Write the agent's status soon, with all that changes until then."""
        loop, pending = asyncio.get_running_loop(), self._pending.get(agent.name)
        at = loop.time() + within_s
        if pending is None or at < pending.when():
            if pending is not None:
                pending.cancel()
            self._pending[agent.name] = loop.call_at(at, self._begin, agent)

    def _begin(self, agent: Agent) -> None:
        del self._pending[agent.name]
        if agent.name in self._writing:
            self._tell(agent)  # one write at a time, or the older one may land last
        else:
            self._writing.add(agent.name)
            self._tasks.create_task(self._write(agent))

    async def _write(self, agent: Agent) -> None:
        async with self._gate:
            body: Mapping[str, object] = {
                "apiVersion": API_VERSION,
                "kind": GPU_NODE.kind,
                "metadata": {"name": agent.name},
                "status": agent.status(time.time()),
            }
            try:
                await self._cluster.apply(
                    GPU_NODE, agent.name, body, subresource="status", manager=MANAGER_NODE
                )
                self.writes += 1
                agent.told_at = time.monotonic()
            except (Unavailable, Throttled, Conflict):
                self._tell(agent)
            except NotFound:
                del self._agents[agent.name]
            finally:
                self._writing.discard(agent.name)


async def _main(kubeconfig: str, devices_per_node: int, leave_out: frozenset[str]) -> None:
    credentials = await find_credentials(kubeconfig)
    async with K8sCluster(credentials, user_agent="bench-fleet") as cluster:
        await Fleet(cluster, devices_per_node=devices_per_node, leave_out=leave_out).run()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), frozenset(sys.argv[3:])))
