# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A real kube-scheduler is asked about random pods with rules, pinned by us and not pinned.

Each question is a copy of its small world, in namespaces of its own, on nodes that KWOK plays:
kube-scheduler never refuses a pod that is pinned to a node that we allow, refuses one that we do
not, and without a pin chooses a node that we allow, or none where we allow none. Of spread
constraints it can only be asked without the pin, which disables them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from bench.kwok import kubectl, kwok_cluster
from fakes.pod_rules import POD, Draw, Json, World, judged, pinned, refusing

NODES: Final = tuple(f"kwok-{at:04d}" for at in range(6))
NODE_SEED: Final = 7
WORLDS: Final = 14
FIRST: Final = int(os.environ.get("ULLAGE_RULES_SEED", "0"))
KINDS: Final = (
    ("namespaces", "v1", "Namespace"),
    ("classes", "storage.k8s.io/v1", "StorageClass"),
    ("volumes", "v1", "PersistentVolume"),
    ("claims", "v1", "PersistentVolumeClaim"),
    ("pods", "v1", "Pod"),
)
DEADLINE_S: Final = 600.0


class Api:
    """kubectl of the cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self._words = [kubectl(), "--kubeconfig", str(kubeconfig)]

    def run(self, *words: str, text: str | None = None) -> str:
        """Run a command; the output."""
        done = subprocess.run(
            [*self._words, *words], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def create(self, objects: Sequence[Json]) -> None:
        """Create objects in one go."""
        if objects:
            body = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
            self.run("create", "--filename", "-", text=body)

    def all(self, kind: str) -> list[Json]:
        """All objects of a kind."""
        found: list[Json] = json.loads(
            self.run("get", kind, "--all-namespaces", "--output", "json")
        )["items"]
        return found


@dataclass
class Question:
    """A world of its own, its pod pinned to a node or to none, and what is to come of it."""

    world: World
    node: str
    allowed: Mapping[str, bool]

    @property
    def space(self) -> str:
        """Namespace of the pod."""
        found: str = self.world.waits["metadata"]["namespace"]
        return found

    def wrong(self, chosen: str) -> bool:
        """Whether kube-scheduler decided otherwise; empty = it took the pod nowhere."""
        if self.node:
            return (chosen == self.node) != self.allowed[self.node]
        return not self.allowed[chosen] if chosen else any(self.allowed.values())


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A control plane whose nodes have labels and taints."""
    with kwok_cluster(len(NODES), pods_per_node=1000) as kubeconfig:
        api = Api(kubeconfig)
        for node in _draw(0, "nodes").world().nodes:
            name = node["metadata"]["name"]
            labels = [f"{key}={value}" for key, value in node["metadata"]["labels"].items()]
            api.run("label", "node", name, "--overwrite", *labels)
            for taint in node["spec"].get("taints", ()):
                api.run("taint", "node", name, f"{taint['key']}={taint['value']}:{taint['effect']}")
        yield api


def _draw(seed: int, prefix: str, port: int = 8000) -> Draw:
    return Draw(
        seed, prefix=prefix, first_port=port, leaving=False, nodes=NODES, node_seed=NODE_SEED
    )


def _questions() -> Iterator[Question]:
    """Every world without a pin, and with one to every node that can tell something."""
    port = 8000
    for seed in range(FIRST, FIRST + WORLDS):
        base = _draw(seed, "base").world()
        texts = judged(base)
        refused = {name: refusing(base, base.waits, base.node(name)) - {"spread"} for name in NODES}
        allowed = {name: not texts[name] and "node" not in refused[name] for name in NODES}
        minimal = any(
            rule.get("minDomains", 1) > 1
            for rule in base.waits["spec"].get("topologySpreadConstraints", ())
        )
        for name in ("", *NODES):
            # beside minDomains a pin narrows what is allowed, and spread alone refuses no pin
            if minimal if not name else not (allowed[name] or refused[name]):
                continue
            port += 2
            world = _draw(seed, f"w{seed}-{name or 'free'}", port).world()
            if name:
                world.waits = pinned(world.waits, name)
            yield Question(world=world, node=name, allowed=allowed)


def _bare(raw: Json, api_version: str, kind: str) -> Json:
    """An object as a user creates it."""
    metadata = {
        key: one for key, one in raw["metadata"].items() if key in ("name", "namespace", "labels")
    }
    found: Json = {**raw, "apiVersion": api_version, "kind": kind, "metadata": metadata}
    found.pop("status", None)
    spec: Any = found.get("spec")
    if kind == "PersistentVolume" and "claimRef" in spec:
        claim = {key: one for key, one in spec["claimRef"].items() if key != "uid"}
        found["spec"] = {**spec, "claimRef": claim}
    return found


def _wait(what: str, api: Api, kind: str, ready: Any) -> list[Json]:
    """Look until all objects of a kind are ready."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        found = api.all(kind)
        if ready(found):
            return found
        assert time.monotonic() < ends, f"no {what} in time"
        time.sleep(0.5)


def _build(api: Api, questions: Sequence[Question]) -> None:
    """Create the worlds, in order, and then the pods that wait."""
    made: dict[str, list[Json]] = {}
    for table, version, kind in KINDS:
        made[table] = [
            _bare(raw, version, kind)
            for question in questions
            for raw in getattr(question.world, table)
        ]
        api.create(made[table])
        if table == "namespaces":
            accounts = partial(_more_than, len(made[table]))
            _wait("service accounts", api, "serviceaccounts", accounts)
    bound = sum("volumeName" in one["spec"] for one in made["claims"])
    _wait("bound claims", api, "persistentvolumeclaims", lambda got: _in(got, "Bound") >= bound)
    _wait("running pods", api, "pods", lambda got: _in(got, "Running") >= len(made["pods"]))
    api.create([_bare(question.world.waits, "v1", "Pod") for question in questions])


def _more_than(count: int, objects: Sequence[Json]) -> bool:
    return len(objects) > count


def _in(objects: Sequence[Json], phase: str) -> int:
    return sum(one.get("status", {}).get("phase") == phase for one in objects)


def _chosen(api: Api, questions: Sequence[Question]) -> dict[str, str]:
    """By namespace: the node that kube-scheduler chose, empty where it refused the pod."""
    found: dict[str, str] = {}

    def decided(pods: Sequence[Json]) -> bool:
        for claim in api.all("persistentvolumeclaims"):
            # nothing makes the volume: that the node was chosen stands in the claim
            notes = claim["metadata"].get("annotations", {})
            if "volume.kubernetes.io/selected-node" in notes:
                node = notes["volume.kubernetes.io/selected-node"]
                found[claim["metadata"]["namespace"]] = node
        for pod in pods:
            space = pod["metadata"]["namespace"]
            if pod["metadata"]["name"] != POD or space in found:
                continue
            for condition in pod.get("status", {}).get("conditions", ()):
                if condition["type"] == "PodScheduled":
                    found[space] = pod["spec"].get("nodeName", "")
        return all(question.space in found for question in questions)

    _wait("decision of kube-scheduler", api, "pods", decided)
    return found


def test_kube_scheduler_takes_what_is_allowed_and_nothing_else(api: Api) -> None:
    questions = list(_questions())
    assert sum(bool(question.node) for question in questions) > 2 * WORLDS
    assert any(question.node and not question.allowed[question.node] for question in questions)
    assert any(question.node and question.allowed[question.node] for question in questions)
    _build(api, questions)
    chosen = _chosen(api, questions)
    wrong = [
        f"{question.space}: pinned to {question.node or 'none'}, chosen"
        f" {chosen[question.space] or 'none'}, allowed {question.allowed}"
        for question in questions
        if question.wrong(chosen[question.space])
    ]
    assert not wrong, "\n".join(wrong)
