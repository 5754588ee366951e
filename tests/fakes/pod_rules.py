# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters of pods with rules about one another, drawn at random, and kube-scheduler's filters.

The filters are written as plainly as they can be: one pod, one node, and a look at everything. A
real kube-scheduler is asked the same questions in the end-to-end tests.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from builders_raw import raw_meta, raw_pod
from fakes.node_affinity import REQUIRED, accepts, satisfied, tolerates
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values import streams
from ullage.scheduling.feasibility.pod_rules import RuleBoard
from ullage.scheduling.prediction.effort import Effort

Json = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
RACK: Final = "rack"
GROUP: Final = "group"
ANY_IP: Final = "0.0.0.0"
POD: Final = "train-0"


@dataclass
class World:
    """Raw objects of a cluster, and a pod that waits."""

    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    namespaces: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    classes: list[Json] = field(default_factory=list)
    waits: Json = field(default_factory=dict)

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Labels of a namespace."""
        found = next(one for one in self.namespaces if one["metadata"]["name"] == namespace)
        return found["metadata"].get("labels") or {}

    def node(self, name: str) -> Json:
        """The node of this name."""
        return next(one for one in self.nodes if one["metadata"]["name"] == name)

    def snapshot(self) -> Snapshot:
        """What the operator knows of it."""
        state = ClusterState(effect_of)
        for stream, items in (
            (streams.NODES, self.nodes),
            (streams.NAMESPACES, self.namespaces),
            (streams.CLAIMS, self.claims),
            (streams.VOLUMES, self.volumes),
            (streams.STORAGE_CLASSES, self.classes),
            (streams.FOREIGN_PODS, self.pods),
            (streams.PODS, [ours(self.waits)]),
        ):
            state.replace(stream, items, 1.0)
        assert not state.projection_messages, state.projection_messages
        return state.freeze(1.0)


def ours(pod: Json) -> Json:
    """A pod as one of ours: with our labels beside its own."""
    base = raw_pod(pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
    labels = {**base["metadata"]["labels"], **pod["metadata"]["labels"]}
    spec = {**base["spec"], **{key: one for key, one in pod["spec"].items() if key != "containers"}}
    spec["containers"] = [
        {**base["spec"]["containers"][0], "ports": pod["spec"]["containers"][0].get("ports", [])}
    ]
    return {**base, "metadata": {**base["metadata"], "labels": labels}, "spec": spec}


@dataclass
class Draw:
    """Draws worlds; the same seed gives the same world under other names."""

    seed: int
    prefix: str = "w"
    first_port: int = 8000
    leaving: bool = True
    """Some pods are being deleted."""
    nodes: Sequence[str] = ("node-0", "node-1", "node-2", "node-3", "node-4")
    node_seed: int | None = None
    """Nodes are the same for all seeds; ``None`` = they are drawn, too."""
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def world(self) -> World:
        """A cluster and a pod that waits."""
        world = World(nodes=self._all_nodes())
        for name, team in (("own", "red"), ("other", "blue")):
            labels = {GROUP: self.prefix, "team": team}
            world.namespaces.append(
                {"metadata": {**raw_meta(self._space(name), ""), "labels": labels}}
            )
        world.classes = [
            self._class("quick", "example.com/made"),
            self._class("static", "kubernetes.io/no-provisioner"),
        ]
        world.waits = self._pod(POD, "own")
        self._rules(world)
        for at in range(self.rng.randint(3, 9)):
            world.pods.append(self._placed(world, at))
        return world

    def _space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _all_nodes(self) -> list[Json]:
        own, self.rng = self.rng, random.Random(self.node_seed)
        if self.node_seed is None:
            self.rng = own
        found = [self._node(name) for name in self.nodes]
        self.rng = own
        return found

    def _node(self, name: str) -> Json:
        labels = {HOST: name, "ullage.dev/node": "true", "disk": self.rng.choice(("hdd", "ssd"))}
        zone, rack = self.rng.choice(("a", "a", "b", "b", "")), self.rng.choice(("1", "2", ""))
        labels |= {ZONE: zone} if zone else {}
        labels |= {RACK: rack} if rack else {}
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
        return {
            "metadata": {**raw_meta(name, ""), "labels": labels},
            "spec": {"taints": taints} if self.rng.random() < 0.2 else {},
            "status": {},
        }

    def _pod(self, name: str, space: str) -> Json:
        labels = {"app": self.rng.choice("abc"), "tier": self.rng.choice("xy")}
        container: Json = {"name": "main", "image": "example.com/none"}
        spec: Json = {"containers": [container]}
        return {
            "metadata": {**raw_meta(name, self._space(space)), "labels": labels},
            "spec": spec,
            "status": {},
        }

    def _placed(self, world: World, at: int) -> Json:
        rng = self.rng
        pod = self._pod(f"there-{at}", rng.choice(("own", "own", "other")))
        pod["spec"]["nodeName"] = rng.choice(world.nodes)["metadata"]["name"]
        if rng.random() < 0.2:
            self._affinity(pod, "podAntiAffinity", 1)
        if rng.random() < 0.2:
            self._port(pod)
        if rng.random() < 0.1 and self.leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        mine = [one["metadata"]["name"] for one in world.claims]
        if mine and pod["metadata"]["namespace"] == self._space("own") and rng.random() < 0.15:
            self._use(pod, rng.choice(mine))
        return pod

    def _rules(self, world: World) -> None:
        rng, pod = self.rng, world.waits
        if rng.random() < 0.5:
            pod["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if rng.random() < 0.3:
            pod["spec"]["nodeSelector"] = {"disk": "ssd"}
        for kind in rng.sample(("spread", "near", "apart", "port", "claim"), rng.choice((1, 1, 2))):
            match kind:
                case "spread":
                    pod["spec"]["topologySpreadConstraints"] = [
                        self._constraint(key) for key in rng.sample((ZONE, HOST, RACK), 1)
                    ]
                case "near":
                    self._affinity(pod, "podAffinity", rng.choice((1, 1, 2)))
                case "apart":
                    self._affinity(pod, "podAntiAffinity", rng.choice((1, 2)))
                case "port":
                    self._port(pod)
                case _:
                    self._claim(world, pod)

    def _constraint(self, key: str) -> Json:
        rng = self.rng
        found: Json = {
            "topologyKey": key,
            "maxSkew": rng.choice((1, 1, 2)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": self._selector(),
        }
        if rng.random() < 0.3:
            found["minDomains"] = rng.choice((1, 2, 3))
        if rng.random() < 0.3:
            found["matchLabelKeys"] = ["tier"]
            found["labelSelector"] = {"matchLabels": {"app": rng.choice("abc")}}
        if rng.random() < 0.4:
            found["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.4:
            found["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        return found

    def _selector(self) -> Json:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                return {"matchLabels": {"app": rng.choice("abc")}}
            case 1:
                return {"matchLabels": {"app": rng.choice("abc"), "tier": rng.choice("xy")}}
            case 2:
                operator = rng.choice(("In", "NotIn"))
                return self._expression("app", operator, rng.sample("abc", 2))
            case 3:
                return self._expression("tier", rng.choice(("Exists", "DoesNotExist")), [])
            case _:
                return {}

    def _expression(self, key: str, operator: str, values: list[str]) -> Json:
        said: Json = {"key": key, "operator": operator}
        return {"matchExpressions": [{**said, "values": values} if values else said]}

    def _affinity(self, pod: Json, kind: str, count: int) -> None:
        terms = [self._term() for _ in range(count)]
        pod["spec"].setdefault("affinity", {})[kind] = {REQUIRED: terms}

    def _term(self) -> Json:
        rng = self.rng
        term: Json = {
            "topologyKey": rng.choice((ZONE, HOST, RACK)),
            "labelSelector": self._selector(),
        }
        match rng.randrange(4):
            case 0:
                term["namespaces"] = [self._space("other")]
            case 1:
                # a selector of everything would reach into worlds beside this one
                chosen = {GROUP: self.prefix} | rng.choice(({}, {"team": "red"}))
                term["namespaceSelector"] = {"matchLabels": chosen}
        return term

    def _port(self, pod: Json) -> None:
        port = self.first_port + self.rng.randrange(2)
        ports: Json = {"containerPort": port, "hostPort": port}
        ip = self.rng.choice(("", "", "127.0.0.1", "127.0.0.2"))
        ports |= {"hostIP": ip} if ip else {}
        if self.rng.random() < 0.3:
            ports["protocol"] = "UDP"
        pod["spec"]["containers"][0]["ports"] = [ports]

    def _use(self, pod: Json, claim: str) -> None:
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]

    def _class(self, name: str, provisioner: str) -> Json:
        found: Json = {
            "metadata": raw_meta(f"{self.prefix}-{name}", ""),
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        if provisioner == "example.com/made" and self.rng.random() < 0.7:
            expression = {"key": ZONE, "values": [self.rng.choice("ab")]}
            found["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
        return found

    def _claim(self, world: World, pod: Json) -> None:
        rng = self.rng
        kind = rng.choice(("bound", "bound", "static", "quick", "missing", "unbound"))
        self._use(pod, "data")
        if kind == "missing":
            return
        mode = rng.choice(("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"))
        storage = "" if kind in ("bound", "unbound") else f"{self.prefix}-{kind}"
        claim: Json = {
            "metadata": raw_meta("data", self._space("own")),
            "spec": {
                "accessModes": [mode],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": storage,
            },
            "status": {"phase": "Pending"},
        }
        world.claims.append(claim)
        if kind == "bound":
            volume = self._volume("bound", storage, mode, "2Gi")
            named = {"namespace": self._space("own"), "name": "data"}
            volume["spec"]["claimRef"] = {**named, "uid": claim["metadata"]["uid"]}
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            claim["spec"]["volumeName"] = volume["metadata"]["name"]
            claim["status"]["phase"] = volume["status"]["phase"] = "Bound"
            world.volumes.append(volume)
        if kind == "static":
            for at in range(rng.randrange(3)):
                size = rng.choice(("512Mi", "1Gi", "2Gi"))
                world.volumes.append(self._volume(f"static-{at}", storage, mode, size))

    def _volume(self, name: str, storage: str, mode: str, size: str) -> Json:
        key, value = self.rng.choice(((ZONE, "a"), (ZONE, "b"), (HOST, self.nodes[0])))
        expression = {"key": key, "operator": "In", "values": [value]}
        return {
            "metadata": raw_meta(f"{self.prefix}-{name}", ""),
            "spec": {
                "capacity": {"storage": size},
                "accessModes": [mode],
                "storageClassName": storage,
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": "/none"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
                },
            },
            "status": {"phase": "Available"},
        }


class _Nodes:
    """The part of an inventory that rules look at."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = tuple(snapshot.nodes[name] for name in sorted(snapshot.nodes))


def board_on(snapshot: Snapshot) -> RuleBoard:
    """The rules in force, before any pod of ours has a node."""
    ruled = [pod for pod in snapshot.pods.values() if pod.rules is not None]
    return RuleBoard(snapshot, _Nodes(snapshot), ruled, tuple, Effort())  # type: ignore[arg-type]


def judged(world: World) -> Mapping[str, str]:
    """By node: why rules keep the pod that waits away; empty = they do not."""
    snapshot = world.snapshot()
    (pod,) = snapshot.pods.values()
    board, names = board_on(snapshot), sorted(snapshot.nodes)
    ruled = board.ruled(pod)
    if ruled is None:
        return dict.fromkeys(names, "")
    allowed = board.allowed(ruled, pod.shape)
    found = {name: board.why(ruled, pod.shape, at) for at, name in enumerate(names)}
    assert allowed.tolist() == [not found[name] for name in names]
    barred = np.zeros(len(names), dtype=np.bool_)
    for _, nodes in board.barred(ruled, pod.shape):
        barred |= nodes
    assert (~barred).tolist() == allowed.tolist()
    return found


def pinned(pod: Json, node: str) -> Json:
    """A pod as it is let go: its required affinity names the node."""
    affinity = {**pod["spec"].get("affinity", {})}
    field_ = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field_]}]}}
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def refusing(world: World, pod: Json, node: Json) -> set[str]:
    """Filters of kube-scheduler that refuse a pod on a node."""
    found = set()
    if not accepts(node, pod):
        found.add("node")
    if not _ports_are_free(world, pod, node):
        found.add("ports")
    if not _volumes_are_reached(world, pod, node):
        found.add("volumes")
    if not _is_spread(world, pod, node):
        found.add("spread")
    if not _likes(world, pod, node):
        found.add("affinity")
    if not _is_apart(world, pod, node):
        found.add("anti-affinity")
    return found


def _labels(raw: Json) -> Mapping[str, str]:
    return raw["metadata"].get("labels") or {}


def _selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    plain = selector.get("matchLabels") or {}
    said = selector.get("matchExpressions") or ()
    return plain.items() <= labels.items() and all(satisfied(one, labels) for one in said)


def _terms(pod: Json, kind: str) -> Sequence[Json]:
    return pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, ())


def _wants(world: World, owner: Json, term: Json, pod: Json) -> bool:
    """Whether a term of ``owner`` looks for a pod."""
    space, chosen = pod["metadata"]["namespace"], term.get("namespaceSelector")
    names = term.get("namespaces") or ([] if chosen else [owner["metadata"]["namespace"]])
    if space not in names and not _selects(chosen, world.labels_of(space)):
        return False
    return _selects(term.get("labelSelector"), _labels(pod))


def _shares(world: World, pod: Json, node: Json, key: str) -> bool:
    """Whether a placed pod is in the domain of a node."""
    there = _labels(world.node(pod["spec"]["nodeName"])).get(key)
    return there is not None and there == _labels(node).get(key)


def _likes(world: World, pod: Json, node: Json) -> bool:
    terms = _terms(pod, "podAffinity")
    if any(term["topologyKey"] not in _labels(node) for term in terms):
        return False
    keys = [term["topologyKey"] for term in terms]
    friends = [one for one in world.pods if all(_wants(world, pod, term, one) for term in terms)]
    if all(any(_shares(world, one, node, key) for one in friends) for key in keys):
        return True
    placed = any(
        key in _labels(world.node(one["spec"]["nodeName"])) for one in friends for key in keys
    )
    return not placed and all(_wants(world, pod, term, pod) for term in terms)


def _is_apart(world: World, pod: Json, node: Json) -> bool:
    for one in world.pods:
        for owner, term, other in (
            *((pod, term, one) for term in _terms(pod, "podAntiAffinity")),
            *((one, term, pod) for term in _terms(one, "podAntiAffinity")),
        ):
            near = _shares(world, one, node, term["topologyKey"])
            if near and _wants(world, owner, term, other):
                return False
    return True


def _is_spread(world: World, pod: Json, node: Json) -> bool:
    rules = pod["spec"].get("topologySpreadConstraints", ())
    keys = {rule["topologyKey"] for rule in rules}
    return keys <= _labels(node).keys() and all(
        _skew(world, pod, node, rule, keys) <= rule["maxSkew"] for rule in rules
    )


def _skew(world: World, pod: Json, node: Json, rule: Json, keys: Iterable[str]) -> int:
    selector = {**rule["labelSelector"]}
    own = _labels(pod)
    more = {key: own[key] for key in rule.get("matchLabelKeys", ()) if key in own}
    selector["matchLabels"] = {**selector.get("matchLabels", {}), **more}
    empty = not selector["matchLabels"] and not selector.get("matchExpressions")
    counts: dict[str, int] = {}
    bare = {**pod, "spec": {**pod["spec"], "tolerations": [{"operator": "Exists"}]}}
    for one in world.nodes:
        if not set(keys) <= _labels(one).keys():
            continue
        if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and not accepts(one, bare):
            continue
        taints = one["spec"].get("taints", ())
        if rule.get("nodeTaintsPolicy") == "Honor" and not tolerates(pod, taints):
            continue
        counts.setdefault(_labels(one)[rule["topologyKey"]], 0)
        for there in world.pods:
            counted = (
                there["spec"]["nodeName"] == one["metadata"]["name"]
                and there["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and "deletionTimestamp" not in there["metadata"]
                and not empty
                and _selects(selector, _labels(there))
            )
            counts[_labels(one)[rule["topologyKey"]]] += counted
    fewest = min(counts.values(), default=0)
    if len(counts) < rule.get("minDomains", 1):
        fewest = 0
    here = counts.get(_labels(node)[rule["topologyKey"]], 0)
    return here + _selects(selector, own) - fewest


def _host_ports(pod: Json) -> list[tuple[str, str, int]]:
    return [
        (port.get("hostIP") or ANY_IP, port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
    ]


def _ports_are_free(world: World, pod: Json, node: Json) -> bool:
    taken = [
        port
        for one in world.pods
        if one["spec"]["nodeName"] == node["metadata"]["name"]
        for port in _host_ports(one)
    ]
    return not any(
        wanted[1:] == held[1:] and (wanted[0] == held[0] or ANY_IP in (wanted[0], held[0]))
        for wanted in _host_ports(pod)
        for held in taken
    )


def _volumes_are_reached(world: World, pod: Json, node: Json) -> bool:
    for volume in pod["spec"].get("volumes", ()):
        name = volume["persistentVolumeClaim"]["claimName"]
        found = [one for one in world.claims if one["metadata"]["name"] == name]
        if not found or not _claim_fits(world, found[0], node):
            return False
    return True


def _claim_fits(world: World, claim: Json, node: Json) -> bool:
    spec, name = claim["spec"], claim["metadata"]["name"]
    used = [one for one in world.pods if name in _claims(one)]
    if "ReadWriteOncePod" in spec["accessModes"] and used:
        return False
    if spec.get("volumeName"):
        held = [one for one in world.volumes if one["metadata"]["name"] == spec["volumeName"]]
        return bool(held) and _reaches(held[0], node)
    if not spec["storageClassName"]:
        return False
    size = {"512Mi": 0, "1Gi": 1, "2Gi": 2}
    for one in world.volumes:
        if size[one["spec"]["capacity"]["storage"]] >= 1 and _reaches(one, node):
            return True
    kind = next(one for one in world.classes if one["metadata"]["name"] == spec["storageClassName"])
    if kind["provisioner"] == "kubernetes.io/no-provisioner":
        return False
    terms = kind.get("allowedTopologies")
    return not terms or any(
        all(
            _labels(node).get(said["key"]) in said["values"]
            for said in term["matchLabelExpressions"]
        )
        for term in terms
    )


def _claims(pod: Json) -> list[str]:
    volumes = pod["spec"].get("volumes", ())
    return [one["persistentVolumeClaim"]["claimName"] for one in volumes]


def _reaches(volume: Json, node: Json) -> bool:
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return any(
        all(satisfied(said, _labels(node)) for said in term["matchExpressions"]) for term in terms
    )
