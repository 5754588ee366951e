# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator is killed again and again while objects end in order, on the local cluster.

``python -m bench.kopf_kills``. A service behind a router, a training in tiers, a search and a pool
with machines on their way are created, run for a while and are deleted, over and over; a random
moment after each deletion the leader is killed without a word and its pod with it. In the end
everything that was deleted must be gone, with its pods, nothing may bear a finalizer, and no pool
may have ended before its machines were there. Figures are added to ``kopf.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from bench import report
from bench.api_client import ApiClient, NotAnswered
from bench.faults_inject import Faults
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from demo.cluster import EmulatedDevice
from demo.images import ROOT
from demo.install import NAMESPACE as OURS
from ullage.api.times import rfc3339
from ullage.cluster.values.lives import FINALIZER, finalizers_of

Json = dict[str, Any]
Say = Callable[[str], None]

NAMESPACE: Final = "lives"
NODES: Final = "/api/v1/nodes"
DEVICES: Final = {
    f"node-{number + 1}": [EmulatedDevice(core=number, percent=45) for _ in range(2)]
    for number in range(2)
}
EXAMPLES: Final = {
    "inferencedeployments": "10-batched.yaml",
    "trainingjobs": "07-tiers.yaml",
    "tuningjobs": "13-tuning.yaml",
}
POOLS: Final = "capacitypools"
POOL_LABEL: Final = "bench.ullage.dev/pool"
"""On the nodes of a pool: its name."""
MOST_MACHINES: Final = 3
"""That a pool has on their way."""
BOOTS_S: Final = (1.0, 20.0)
"""From the deletion of a pool until a machine of it is ready."""
KILLS: Final = 100
RUNS_S: Final = (2.0, 20.0)
"""Shortest and longest time from the creation of an object to its deletion."""
KILLED_AFTER_S: Final = (0.0, 4.0)
"""From a deletion to a kill; an orderly end takes a few seconds."""
ENDS_WITHIN_S: Final = 420.0
"""From a deletion to its end: the longest bound of an end, and a few changes of the leader."""
LOOK_S: Final = 0.5
BARS: Final[report.Bars] = {
    "finalizers_stuck": lambda objects: objects == 0,
    "kills_pods_left": lambda pods: pods == 0,
    "machines_forgotten": lambda machines: machines == 0,
    "kills": lambda kills: kills >= KILLS,
}


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was seen."""

    kills: int = 0
    ended: int = 0
    stuck: list[str] = field(default_factory=list)
    """Objects that did not end in time."""
    longest_s: float = 0.0
    """The longest end."""
    machines: int = 0
    """That were on their way to a pool when it was deleted."""
    forgotten: list[str] = field(default_factory=list)
    """Machines that were still on their way when their pool was gone: no one counts them."""


@dataclass(slots=True)
class Place:
    """One object of a kind after the other."""

    api: ApiClient
    plural: str
    dice: random.Random
    counts: Counts
    name: str = ""
    due: float = 0.0
    """When it is deleted, on the monotonic clock."""
    deleted: float = 0.0
    """When it was; 0 = it was not."""
    number: int = 0

    @property
    def objects(self) -> str:
        """Path of the objects of its kind."""
        return collection(self.plural, NAMESPACE)

    @property
    def path(self) -> str:
        """Of its object."""
        return f"{self.objects}/{self.name}"

    def step(self) -> bool:
        """Create, delete or count; whether an object was deleted just now.

        Raises:
            NotAnswered: the API server did not answer.
        """
        now = time.monotonic()
        if not self.name:
            self._create(now)
            return False
        if not self.deleted:
            if now < self.due or not self.may_go():
                return False
            self.api.delete(self.path)
            self.deleted = now
            return True
        took_s = now - self.deleted
        if self.api.get(self.path) is None:
            self.ended()
            self.counts.ended += 1
            self.counts.longest_s = max(self.counts.longest_s, took_s)
            self.name = ""
        elif took_s > ENDS_WITHIN_S:
            self.counts.stuck.append(self.name)
            self.name = ""
        else:
            self.go_on(took_s)
        return False

    def may_go(self) -> bool:
        """Whether it is as far as it must be for its deletion to tell anything."""
        return True

    def go_on(self, took_s: float) -> None:
        """What the rest of the world does so long after the deletion."""

    def ended(self) -> None:
        """Count what is to be seen once it is gone."""

    def _create(self, now: float) -> None:
        name = f"{self.plural[:4]}-{self.number}"
        self.api.create(self.objects, body(self.plural, name))
        self.number += 1
        self.name, self.deleted = name, 0.0
        self.due = now + self.dice.uniform(*RUNS_S)


@dataclass(slots=True)
class PoolPlace(Place):
    """One pool after the other, in a cloud whose machines take their time.

    A pool is deleted once the operator holds it for its machines, whose nodes are not ready yet.
    """

    boots_s: dict[str, float] = field(default_factory=dict)
    """When each machine on its way will be ready, seconds after the deletion."""

    @property
    def objects(self) -> str:
        """Path of all pools."""
        return collection(self.plural, "")

    def may_go(self) -> bool:
        """Whether it is held; its machines are begun first."""
        if not self.boots_s:
            for number in range(self.dice.randint(1, MOST_MACHINES)):
                machine = f"{self.name}-{number}"
                self.api.create(NODES, node(machine, self.name))
                self.boots_s[machine] = self.dice.uniform(*BOOTS_S)
            self.counts.machines += len(self.boots_s)
        return FINALIZER in finalizers_of(self.api.get(self.path) or {})

    def go_on(self, took_s: float) -> None:
        """Machines become ready."""
        for machine in [name for name, boots_s in self.boots_s.items() if boots_s <= took_s]:
            status = {"status": {"conditions": [ready(True)]}}
            self.api.patch(f"{NODES}/{machine}/status", json.dumps(status))
            del self.boots_s[machine]

    def ended(self) -> None:
        """Count those that no one waited for, and take all nodes away."""
        self.counts.forgotten += self.boots_s
        self.boots_s.clear()
        for item in self.api.list(f"{NODES}?labelSelector={POOL_LABEL}%3D{self.name}"):
            self.api.delete(f"{NODES}/{item['metadata']['name']}")


def node(name: str, pool: str) -> Json:
    """A machine of a pool that has just begun; nothing is ever placed there."""
    taint = {"key": POOL_LABEL, "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {POOL_LABEL: pool}},
        "spec": {"taints": [taint]},
        "status": {"conditions": [ready(False)]},
    }


def ready(state: bool) -> Json:
    """The condition of a node."""
    now = rfc3339(time.time())
    return {
        "type": "Ready",
        "status": str(state),
        "reason": "Machine",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def body(plural: str, name: str) -> Json:
    """The example of a kind under another name; what it names must be in its namespace."""
    if plural == POOLS:
        return pool(name)
    documents = yaml.safe_load_all((ROOT / "examples" / EXAMPLES[plural]).read_text("utf-8"))
    found: Json = next(item for item in documents if f"{item['kind'].lower()}s" == plural)
    found["metadata"] |= {"name": name, "namespace": NAMESPACE}
    found["spec"].pop("profileRef", None)
    found["spec"].get("trialTemplate", {}).pop("profileRef", None)
    return found


def pool(name: str) -> Json:
    """A pool of nodes with its name."""
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "CapacityPool",
        "metadata": {"name": name},
        "spec": {
            "type": "emulated",
            "zone": "local",
            "capacityType": "Spot",
            "accelerator": "emulated",
            "gpusPerInstance": 1,
            "max": MOST_MACHINES,
            "nodeSelector": {POOL_LABEL: name},
            "priceSource": {"type": "Static", "static": {"pricePerHour": "1.00"}},
        },
    }


def kill_leader(api: ApiClient, faults: Faults) -> str:
    """Kill the process that leads and take its pod away: kubelet would wait ever longer with it.

    Returns:
        The pod's name; empty = no one leads now.

    Raises:
        NotAnswered: the API server did not answer.
    """
    leader = faults.end_operator()
    if leader:
        api.delete(f"{collection('pods', OURS)}/{leader}", at_once=True)
    return leader


def play(api: ApiClient, faults: Faults, kills: int, dice: random.Random, say: Say) -> Counts:
    """Create, delete and kill until there were enough kills; then let everything end."""
    counts = Counts()
    places = [Place(api, plural, dice, counts) for plural in EXAMPLES]
    places.append(PoolPlace(api, POOLS, dice, counts))
    strike = 0.0
    while counts.kills < kills:
        time.sleep(LOOK_S)
        with suppress(NotAnswered):
            deleted = [place for place in places if place.step()]
            if deleted and not strike:
                strike = time.monotonic() + dice.uniform(*KILLED_AFTER_S)
            if strike and time.monotonic() >= strike and (leader := kill_leader(api, faults)):
                counts.kills += 1
                strike = 0.0
                going = ", ".join(place.name for place in places if place.name and place.deleted)
                say(f"{counts.kills} of {kills}: {leader}, while these end: {going}")
    until = time.monotonic() + ENDS_WITHIN_S + RUNS_S[1]
    while any(place.name for place in places) and time.monotonic() < until:
        time.sleep(LOOK_S)
        with suppress(NotAnswered):
            for place in places:
                if place.name:
                    place.step()
    return counts


def held(api: ApiClient) -> list[str]:
    """Objects that still bear our finalizer and are to go."""
    return [
        item["metadata"]["name"]
        for objects in (
            collection(POOLS, ""),
            *(collection(plural, NAMESPACE) for plural in EXAMPLES),
        )
        for item in api.list(objects)
        if FINALIZER in finalizers_of(item)
    ]


def pods_left(api: ApiClient, within_s: float = 120.0) -> list[str]:
    """Pods that are there when every object has ended; garbage collection has a while."""
    until = time.monotonic() + within_s
    while True:
        names = [pod["metadata"]["name"] for pod in api.list(collection("pods", NAMESPACE))]
        if not names or time.monotonic() > until:
            return names
        time.sleep(LOOK_S)


def figures(api: ApiClient, counts: Counts) -> dict[str, report.Figure]:
    """Flat figures for the report."""
    stuck = sorted({*counts.stuck, *held(api)})
    left = pods_left(api)
    for what, names in (("stuck", stuck), ("pods left", left), ("forgotten", counts.forgotten)):
        if names:
            print(f"{what}: {', '.join(names)}", file=sys.stderr)
    return {
        "kills": counts.kills,
        "kills_ended": counts.ended,
        "kills_longest_end_s": round(counts.longest_s, 1),
        "finalizers_stuck": len(stuck),
        "kills_pods_left": len(left),
        "machines": counts.machines,
        "machines_forgotten": len(counts.forgotten),
    }


def rows(found: Mapping[str, report.Figure]) -> Sequence[report.Row]:
    """Lines of the table."""
    return [
        report.Row(
            what=name, ours=str(value), limit="0" if name in BARS and name != "kills" else ""
        )
        for name, value in found.items()
    ]


def main() -> int:
    """Kill, print one table, add the figures to build/bench/kopf.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with installed("kopf-kills", DEVICES, NotAnswered) as (local, _), Progress() as progress:
        api, dice = ApiClient(local.kubeconfig), random.Random(f"kopf-{options.seed}")
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        faults = Faults(api, local, NAMESPACE, dice)
        counts = play(api, faults, options.kills, dice, progress.say)
        found = figures(api, counts)
    report.write("kopf", report.figures_before("kopf") | found, rows(found))
    return report.judge(found, BARS)


if __name__ == "__main__":
    sys.exit(main())
