# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random faults under churn on the local cluster: nothing leaks, doubles or starts by halves.

Jobs, gangs and services come and go while operator, solver, agents, guards, kubelets, containerd,
the API server and pods are killed. ``python -m bench.faults --minutes 20 --seed 1`` (root).
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.api_client import ApiClient, NotAnswered
from bench.books import Books, Kind, ProblemLog, problems
from bench.faults_churn import JOBS, NAMESPACE, SERVICES, Churn
from bench.faults_inject import NODES, Faults, length_and_seed
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from bench.report import Bars, Figure, counted, judge, write
from demo.cluster import EmulatedDevice, LocalCluster
from demo.progress import CommandFailed

Json = dict[str, Any]
Said = Callable[[str], None]
DEVICES: Final = {
    "node-1": [EmulatedDevice(core=0, percent=40), EmulatedDevice(core=0, percent=20)],
    "node-2": [EmulatedDevice(core=1, percent=40), EmulatedDevice(core=1, percent=20)],
}
STEP_S: Final = 1.0
CHURN_S: Final = (1.0, 4.0)
"""Shortest and longest pause between two things that users do."""
FAULT_S: Final = (8.0, 25.0)
"""Shortest and longest time from one fault to the next."""
SETTLE_S: Final = 240.0
"""What is left at the end may take so long: the longest job, and all back-offs."""
EMPTY_S: Final = 150.0
TELL_S: Final = 30.0
SLICE: Final = "ullage.dev/slice"

BARS: Final[Bars] = {
    "leaked": lambda count: count == 0,
    "doubled": lambda count: count == 0,
    "half_started": lambda count: count == 0,
    "unbooked": lambda count: count == 0,
    "unfinished": lambda count: count == 0,
    "left_at_the_end": lambda count: count == 0,
}


@dataclass(slots=True)
class Run:
    """One run: churn, faults and looks in turn."""

    api: ApiClient
    churn: Churn
    faults: Faults
    pauses: random.Random
    """Of what users do."""
    dice: random.Random
    """Of faults."""
    said: Said
    cdi: Mapping[str, Path]
    """Folders of the nodes' CDI files."""
    problem_log: ProblemLog = field(default_factory=ProblemLog)
    looks: int = 0
    unanswered: int = 0
    left: list[str] = field(default_factory=list)
    """What was still there when everything was deleted."""
    unfinished: list[str] = field(default_factory=list)
    _seen: float = field(default_factory=time.monotonic)
    _began: float = field(default_factory=time.monotonic)

    def play(self, minutes: float) -> None:
        """Churn and faults until the time is over; then all ends and goes."""
        end = self._began + 60 * minutes
        act = told = self._began
        over = threading.Event()
        harm = threading.Thread(target=self._harm, args=(over,), name="faults", daemon=True)
        harm.start()
        try:
            while (now := time.monotonic()) < end:
                if now >= act:
                    self._tried(self.churn.step)
                    act = now + self.pauses.uniform(*CHURN_S)
                self.look()
                if now - told >= TELL_S:
                    self._tell()
                    told = now
                time.sleep(STEP_S)
        finally:
            over.set()
            harm.join()
        self._settle()

    def _harm(self, over: threading.Event) -> None:
        """One fault after the other, beside all that users do."""
        began = time.monotonic()
        while not over.wait(max(1.0, began + self.dice.uniform(*FAULT_S) - time.monotonic())):
            began = time.monotonic()
            try:
                self._tried(self.faults.inject)
            except CommandFailed as error:  # the fault, not the product
                self.said(f"not done: {error}")

    def look(self) -> set[str]:
        """Look into the books; returns what is wrong now, in words."""
        try:
            books = self._books()
        except NotAnswered:
            self.unanswered += 1
            return {"the API server does not answer"}
        now = time.monotonic()
        if now - self._seen > 5 * STEP_S:
            self.problem_log.blind(now - self._seen)
        self._seen, self.looks = now, self.looks + 1
        found = problems(books)
        for one in self.problem_log.look(found, now):
            self.said(f"FAULT {one.kind}: {one.text}")
        return {f"{one.kind}: {one.text}" for one in found}

    def _books(self) -> Books:
        # what is wanted of nodes is read between two looks at the pods: a pod that is gone in
        # both is gone, and one that came meanwhile is known
        before = self.api.list("/api/v1/pods")
        nodes = self.api.list(collection("gpunodes", ""))
        pods = {pod["metadata"]["uid"]: pod for pod in before}
        pods |= {pod["metadata"]["uid"]: pod for pod in self.api.list("/api/v1/pods")}
        return Books(
            nodes=nodes,
            pods=list(pods.values()),
            jobs=self.api.list(JOBS),
            services=self.api.list(SERVICES),
            files={node: set(self._files(node)) for node in NODES},
        )

    def _files(self, node: str) -> Iterator[str]:
        """Pod uids that the CDI files of a node speak of."""
        for file in self.cdi[node].glob("ullage.dev*.json"):
            try:
                devices = json.loads(file.read_text())["devices"]
            except (OSError, ValueError):
                continue  # it is being replaced
            for device in devices:
                yield json.loads(device["annotations"][SLICE])["podUID"]

    def _tried(self, act: Callable[[], str]) -> None:
        try:
            self.said(act())
        except NotAnswered as error:
            self.unanswered += 1
            self.said(f"not done: {error}")

    def _settle(self) -> None:
        """No more faults: every job ends, then everything is deleted and nothing is left."""
        self.said("no more faults: what is left shall end")
        self._until_done(self.churn.settle, SETTLE_S)
        self.unfinished = self._wait(self.churn.unfinished, SETTLE_S)
        self._until_done(self.churn.remove_all, SETTLE_S)
        self.left = self._wait(self._leftovers, EMPTY_S)
        for what, found in (("unfinished", self.unfinished), ("left", self.left)):
            for one in found:
                self.said(f"FAULT {what}: {one}")

    def _until_done(self, act: Callable[[], object], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while True:
            try:
                act()
                return
            except NotAnswered:
                if time.monotonic() > deadline:
                    raise
                time.sleep(STEP_S)

    def _wait(self, look: Callable[[], list[str]], within_s: float) -> list[str]:
        """Look until nothing is found, at most so long; returns what is found then."""
        deadline = time.monotonic() + within_s
        while True:
            wrong = self.look()
            try:
                found = look()
            except NotAnswered as error:
                found = [str(error)]
            if not found or time.monotonic() > deadline:
                return found
            self.said(f"waiting: {', '.join(found)[:200]}; {len(wrong)} open in the books")
            time.sleep(5 * STEP_S)

    def _leftovers(self) -> list[str]:
        nodes = self.api.list(collection("gpunodes", ""))
        slices = [
            f"{node['metadata']['name']} {part}: slice of {one['podUID']}"
            for node in nodes
            for part in ("spec", "status")
            for one in node.get(part, {}).get("slices", [])
        ]
        pods = [pod["metadata"]["name"] for pod in self.api.list(collection("pods", NAMESPACE))]
        files = [f"{node}: CDI file of {uid}" for node in NODES for uid in self._files(node)]
        return [*slices, *pods, *files]

    def _tell(self) -> None:
        minutes = (time.monotonic() - self._began) / 60
        faults = sum(self.faults.counts.values())
        wrong = len(self.problem_log.faults)
        self.said(
            f"{minutes:.1f} min: {dict(self.churn.counts)}, {faults} faults, {self.looks} looks, "
            f"{wrong} found wrong"
        )

    def figures(self) -> dict[str, Figure]:
        """Flat figures for the report."""
        made = ("job", "gang", "elastic", "service")
        return {
            "minutes": round((time.monotonic() - self._began) / 60, 1),
            "workloads": sum(self.churn.counts[one] for one in made),
            "faults": sum(self.faults.counts.values()),
            "looks": self.looks,
            "unanswered": self.unanswered,
            **{str(kind): self.problem_log.count(kind) for kind in Kind},
            "unfinished": len(self.unfinished),
            "left_at_the_end": len(self.left),
            **{f"churn_{name}": count for name, count in sorted(self.churn.counts.items())},
            **{f"fault_{name}": count for name, count in self.faults.counts.items()},
        }


def run(local: LocalCluster, minutes: float, seed: int, said: Said) -> Run:
    """Play on a cluster with Ullage; the namespace goes at the end."""
    api, dice = ApiClient(local.kubeconfig), random.Random(f"faults-{seed}")
    users = random.Random(f"users-{seed}")
    churn = Churn(api, users)
    churn.open()
    faults = Faults(api, local, NAMESPACE, dice)
    cdi = {node: local.private(node, "/run/cdi") for node in NODES}
    played = Run(api, churn, faults, users, dice, said, cdi)
    try:
        played.play(minutes)
    finally:
        api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    return played


def main() -> int:
    """Play, print one table, write ``faults.json``."""
    options = length_and_seed(__doc__, minutes=20.0)
    logs = ("operator", "node")
    with (
        installed("faults", DEVICES, NotAnswered, logs=logs) as (local, _),
        Progress() as progress,
    ):
        played = run(local, options.minutes, options.seed, progress.say)
    figures: dict[str, Figure] = {"seed": options.seed, **played.figures()}
    write("faults", figures, counted(figures, BARS))
    return judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
