# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator is killed again and again while objects end in order, on the local cluster.

``python -m bench.kopf_kills``. A service behind a router, a training in tiers and a search are
created, run for a while and are deleted, over and over; a random moment after each deletion the
leader is killed without a word and its pod with it. In the end everything that was deleted must be
gone, with its pods, and nothing may bear a finalizer. Figures are added to ``kopf.json``.
"""

from __future__ import annotations

import argparse
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
from ullage.cluster.values.lives import FINALIZER, finalizers_of

Json = dict[str, Any]
Say = Callable[[str], None]

NAMESPACE: Final = "lives"
DEVICES: Final = {
    f"node-{number + 1}": [EmulatedDevice(core=number, percent=45) for _ in range(2)]
    for number in range(2)
}
EXAMPLES: Final = {
    "inferencedeployments": "10-batched.yaml",
    "trainingjobs": "07-tiers.yaml",
    "tuningjobs": "13-tuning.yaml",
}
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
    def path(self) -> str:
        """Of its object."""
        return f"{collection(self.plural, NAMESPACE)}/{self.name}"

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
            if now < self.due:
                return False
            self.api.delete(self.path)
            self.deleted = now
            return True
        took_s = now - self.deleted
        if self.api.get(self.path) is None:
            self.counts.ended += 1
            self.counts.longest_s = max(self.counts.longest_s, took_s)
            self.name = ""
        elif took_s > ENDS_WITHIN_S:
            self.counts.stuck.append(self.name)
            self.name = ""
        return False

    def _create(self, now: float) -> None:
        name = f"{self.plural[:4]}-{self.number}"
        self.api.create(collection(self.plural, NAMESPACE), body(self.plural, name))
        self.number += 1
        self.name, self.deleted = name, 0.0
        self.due = now + self.dice.uniform(*RUNS_S)


def body(plural: str, name: str) -> Json:
    """The example of a kind under another name; what it names must be in its namespace."""
    documents = yaml.safe_load_all((ROOT / "examples" / EXAMPLES[plural]).read_text("utf-8"))
    found: Json = next(item for item in documents if f"{item['kind'].lower()}s" == plural)
    found["metadata"] |= {"name": name, "namespace": NAMESPACE}
    found["spec"].pop("profileRef", None)
    found["spec"].get("trialTemplate", {}).pop("profileRef", None)
    return found


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
        for plural in EXAMPLES
        for item in api.list(collection(plural, NAMESPACE))
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
    for what, names in (("stuck", stuck), ("pods left", left)):
        if names:
            print(f"{what}: {', '.join(names)}", file=sys.stderr)
    return {
        "kills": counts.kills,
        "kills_ended": counts.ended,
        "kills_longest_end_s": round(counts.longest_s, 1),
        "finalizers_stuck": len(stuck),
        "kills_pods_left": len(left),
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
