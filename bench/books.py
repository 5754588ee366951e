# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in the books: devices, slices, pods and their jobs, read from the API server.

Pure. A look at a cluster that works is never of one moment: what a problem means depends on how
long it lasts, and :class:`Standing` keeps that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ullage.api.labels import ANNOTATION_RESERVATION

Json = dict[str, Any]


class Kind(StrEnum):
    """Kinds of problems."""

    LEAKED = "leaked"
    """Something is held for what is gone."""
    DOUBLED = "doubled"
    """Given twice, or more than there is."""
    UNBOOKED = "unbooked"
    """Something runs on a device that it was not given."""
    HALF_STARTED = "half_started"
    """Some members of a gang run while others cannot."""


PATIENCE_S: Final[Mapping[Kind, float]] = {
    Kind.LEAKED: 120.0,
    Kind.DOUBLED: 3.0,
    Kind.UNBOOKED: 30.0,
    Kind.HALF_STARTED: 150.0,
}
"""How long a problem may stand. Pods of a lost container leave after kubelet's grace; a gang waits
two minutes for a member before all begin again. Doubles must never be: the wait outlasts a look
between two writes."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong; the text tells it apart from others."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What one look found."""

    nodes: Sequence[Json]
    """GPUNodes."""
    pods: Sequence[Json]
    """Of all namespaces."""
    jobs: Sequence[Json] = ()
    """TrainingJobs."""
    services: Sequence[Json] = ()
    """InferenceDeployments."""
    files: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Pod uids that the CDI files of each node speak of."""


def problems(books: Books) -> set[Problem]:
    """Everything that is wrong at this moment."""
    return {
        *_devices(books),
        *_slices(books),
        *_pods(books),
        *_files(books),
        *_gangs(books),
    }


def _devices(books: Books) -> Iterator[Problem]:
    """More given of a device than there is."""
    for node in books.nodes:
        slices = node["spec"].get("slices", [])
        for device in node.get("status", {}).get("devices", []):
            mine = [one for one in slices if one["gpu"] == device["uuid"]]
            given = _given(mine)
            for amount, most in (("percent", 100), ("memoryMiB", device["memoryMiB"])):
                if given[amount] > most:
                    yield Problem(
                        kind=Kind.DOUBLED, text=f"{device['uuid']} has more than {most} {amount}"
                    )


def _given(slices: Sequence[Json]) -> dict[str, int]:
    """Percent and memory of a device that slices take: those of one lane use them in turn."""
    lanes: dict[int, tuple[int, int]] = {}
    percent = memory = 0
    for one in slices:
        memory += one["memoryMiB"]
        if lane := one.get("lane", 0):
            step, share = lanes.get(lane, (0, 0))
            own = one["memoryMiB"] if one.get("suspendable") else one["ephemeralMiB"]
            memory -= own
            lanes[lane] = max(step, own), max(share, one["percent"])
        else:
            percent += one["percent"]
    return {
        "percent": percent + sum(share for _, share in lanes.values()),
        "memoryMiB": memory + sum(step for step, _ in lanes.values()),
    }


def wanted_slices(node: Json, pods: Sequence[Json]) -> list[Json]:
    """Slices in the spec of a GPUNode, each with the uid of its pod as ``podUID``.

    A slice that was reserved before its pod existed bears the id of the reservation until the next
    write of the GPUNode; the pod that took it bears the id as an annotation.

    Args:
        node: The GPUNode.
        pods: Pods of all namespaces that may have slices there.
    """
    taken = {
        (meta["namespace"], meta["name"], meta["annotations"][ANNOTATION_RESERVATION]): meta["uid"]
        for meta in (pod["metadata"] for pod in pods)
        if ANNOTATION_RESERVATION in meta.get("annotations", {})
    }

    def named(piece: Json) -> Json:
        held_for = piece.get("podNamespace"), piece.get("podName"), piece["podUID"]
        return piece | {"podUID": taken.get(held_for, piece["podUID"])}

    return list(map(named, node.get("spec", {}).get("slices", [])))


def _slices(books: Books) -> Iterator[Problem]:
    pods = {pod["metadata"]["uid"]: pod for pod in books.pods}
    held: Counter[tuple[str, str, int]] = Counter()
    for node in books.nodes:
        name = node["metadata"]["name"]
        wanted = wanted_slices(node, books.pods)
        for one in wanted:
            held[one["podUID"], one["container"], one.get("index", 0)] += 1
            pod, who = pods.get(one["podUID"]), f"{one['podNamespace']}/{one['podName']}"
            if pod is None:
                yield Problem(kind=Kind.LEAKED, text=f"{name}: slice of {who}, which is gone")
            elif pod["spec"].get("nodeName", name) != name:
                yield Problem(kind=Kind.UNBOOKED, text=f"{who} runs elsewhere than its slice")
        # a node reports a reservation by its id until it sees the pod
        known = {one["podUID"] for one in (*wanted, *node["spec"].get("slices", []))}
        for one in node.get("status", {}).get("slices", []):
            if one["podUID"] not in known and one["podUID"] not in pods:
                yield Problem(
                    kind=Kind.LEAKED, text=f"{name}: status tells a slice of {one['podUID']}"
                )
    for (uid, container, _), count in held.items():
        if count > 1:
            yield Problem(kind=Kind.DOUBLED, text=f"{count} slices of {uid}/{container}")


def _pods(books: Books) -> Iterator[Problem]:
    """Pods of nothing, ranks that run twice, containers that run without a slice."""
    owners = {one["metadata"]["uid"] for one in (*books.jobs, *books.services)}
    booked = {
        one["podUID"] for node in books.nodes for one in wanted_slices(node, books.pods)
    }  # fmt: skip
    ranks: Counter[tuple[str, str, str]] = Counter()
    for pod in filter(is_member, books.pods):
        metadata, labels = pod["metadata"], pod["metadata"]["labels"]
        who = f"{metadata['namespace']}/{metadata['name']}"
        refs = [ref for ref in metadata.get("ownerReferences", []) if ref.get("controller")]
        if any(ref["kind"] == "TrainingJob" and ref["uid"] not in owners for ref in refs):
            yield Problem(kind=Kind.LEAKED, text=f"pod {who} of a job that is gone")
        if is_running(pod):
            if metadata["uid"] not in booked:
                yield Problem(kind=Kind.UNBOOKED, text=f"{who} runs without a slice")
            if rank := labels.get("ullage.dev/rank"):
                ranks[metadata["namespace"], labels.get("ullage.dev/owner", ""), rank] += 1
    for (namespace, owner, rank), count in ranks.items():
        if count > 1:
            text = f"{count} pods are rank {rank} of {namespace}/{owner}"
            yield Problem(kind=Kind.DOUBLED, text=text)


def _files(books: Books) -> Iterator[Problem]:
    pods = {pod["metadata"]["uid"] for pod in books.pods}
    for node, uids in books.files.items():
        for uid in set(uids) - pods:
            yield Problem(kind=Kind.LEAKED, text=f"{node}: CDI file of pod {uid}, which is gone")


def _gangs(books: Books) -> Iterator[Problem]:
    """Gangs of a fixed size of which some run and others do not."""
    members: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for pod in filter(is_member, books.pods):
        labels = pod["metadata"]["labels"]
        members[pod["metadata"]["namespace"], labels.get("ullage.dev/owner", "")].append(pod)
    for job in books.jobs:
        wanted = job["spec"].get("replicas", 1)
        name = job["metadata"]["namespace"], job["metadata"]["name"]
        if wanted < 2 or "elasticity" in job["spec"]:
            continue
        here = members[name]
        running = sum(is_running(pod) for pod in here)
        ended = sum(pod["status"].get("phase") == "Succeeded" for pod in here)
        if running and running + ended < wanted:
            yield Problem(kind=Kind.HALF_STARTED, text=f"only some of {'/'.join(name)} run")


def is_member(pod: Json) -> bool:
    """Whether a pod is of ours and holds a device."""
    labels = pod["metadata"].get("labels", {})
    return (
        labels.get("ullage.dev/managed") == "true"
        and "ullage.dev/lead" not in labels
        and "ullage.dev/order" not in labels
    )


def is_running(pod: Json) -> bool:
    """Whether a pod runs and stays."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@dataclass(slots=True)
class ProblemLog:
    """Since when each problem stands, and those that stood too long."""

    since: dict[Problem, float] = field(default_factory=dict)
    faults: dict[Problem, float] = field(default_factory=dict)
    """Problems that outlasted the patience for their kind, with how long they stood, seconds."""

    def look(self, found: Collection[Problem], now: float) -> list[Problem]:
        """Take in one look.

        Args:
            found: Everything that is wrong now.
            now: Monotonic time, seconds.

        Returns:
            What became a fault with this look.
        """
        self.since = {one: self.since.get(one, now) for one in found}
        new = []
        for one, began in self.since.items():
            if now - began > PATIENCE_S[one.kind]:
                if one not in self.faults:
                    new.append(one)
                self.faults[one] = now - began
        return new

    def blind(self, seconds: float) -> None:
        """Nothing could be seen for so long, as while the API server was away: it does not count.

        Args:
            seconds: How long.
        """
        self.since = {one: began + seconds for one, began in self.since.items()}

    def count(self, kind: Kind) -> int:
        """Faults of a kind."""
        return sum(one.kind is kind for one in self.faults)
