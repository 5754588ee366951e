# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a running cluster: processes that are killed, daemons that restart, pods that vanish.

Everything is a process of this machine (the nodes of the local cluster are), so a fault is a signal
or a command of ``localcluster``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from bench.api_client import ApiClient
from bench.books import is_member, is_running
from bench.hostile_objects import collection
from demo.install import NAMESPACE

Json = dict[str, Any]
NODES: Final = ("node-1", "node-2")
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/ullage-system/leases/ullage-operator"
PROC: Final = Path("/proc")


class Control(Protocol):
    """What of the local cluster is restarted."""

    def restart(self, component: str, node: str = "") -> None:
        """Restart one process of the cluster and wait until it works."""
        ...


Fault = Callable[[], str]
"""Does its harm and says to what; empty = there was nothing to harm."""


def length_and_seed(description: str | None, minutes: float) -> argparse.Namespace:
    """The command line of a run of random faults: ``minutes`` above 0, and ``seed``.

    Args:
        description: Shown by ``--help``.
        minutes: Where it does not say how long.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("--minutes: give more than 0")
    return options


def processes(*marks: str) -> list[int]:
    """Processes of this machine whose environment holds all marks, as ``NAME=value``; by age."""
    found = []
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            environment = f"\0{(folder / 'environ').read_text(errors='replace')}"
            if all(f"\0{mark}\0" in environment for mark in marks):
                found.append((_started(int(folder.name)), int(folder.name)))
    return [pid for _, pid in sorted(found)]


def command(pid: int) -> list[str]:
    """The words that a process was started with; none when it is gone."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    return []


def parent(pid: int) -> int:
    """The process that started another; 0 when it is gone."""
    with suppress(OSError):
        return int(_stat(pid)[1])
    return 0


def _stat(pid: int) -> list[str]:
    """Fields of a process's stat after its name: state, parent, ..."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _started(pid: int) -> int:
    return int(_stat(pid)[19])


def kill(pid: int) -> None:
    """End a process without a word."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Faults:
    """Chooses and injects faults; counts them by name."""

    def __init__(
        self, api: ApiClient, local: Control, namespace: str, random_: random.Random
    ) -> None:
        self._api, self._local, self._namespace = api, local, namespace
        self._random = random_
        self.counts: dict[str, int] = dict.fromkeys(self._all(), 0)

    def _all(self) -> Mapping[str, Fault]:
        return {
            "operator": self.end_operator,
            "solver": self._solver,
            "agent": lambda: self._agent(guard=False),
            "guard": lambda: self._agent(guard=True),
            "kubelet": lambda: self._restart("kubelet", self._node()),
            "containerd": lambda: self._restart("containerd", self._node()),
            "apiserver": lambda: self._restart("apiserver", ""),
            "pod": self._pod,
            "container": self._container,
        }

    def inject(self, name: str = "") -> str:
        """One fault.

        Args:
            name: Which; empty = any of those that came least often.

        Returns:
            What was done, for the reader.

        Raises:
            NotAnswered: the API server did not say what there is to harm.
        """
        fewest = min(self.counts.values())
        rare = [one for one, count in self.counts.items() if count <= fewest + 1]
        name = name or self._random.choice(rare)
        done = self._all()[name]()
        self.counts[name] += 1
        return f"{name}: {done or 'nothing to harm'}"

    def _node(self) -> str:
        return self._random.choice(NODES)

    def _restart(self, component: str, node: str) -> str:
        self._local.restart(component, node)
        return f"{node} restarted".strip()

    def leader(self) -> str:
        """Pod that holds the Lease; empty when no pod does."""
        holder = (self._api.get(LEASE) or {}).get("spec", {}).get("holderIdentity") or ""
        names = [pod["metadata"]["name"] for pod in self._api.list(collection("pods", NAMESPACE))]
        return next((name for name in names if holder.startswith(name)), "")

    def _of_operator(self, pod: str) -> tuple[int, list[int]]:
        """The operator's own process in a pod (0 = none), and those that it started."""
        mine = processes(f"ULLAGE_IDENTITY={pod}")
        top = [pid for pid in mine if parent(pid) not in mine]
        return (top[0] if top else 0), [pid for pid in mine if pid not in top]

    def end_operator(self) -> str:
        """End the leader without a word; says which, empty = there is none."""
        leader = self.leader()
        pid, _ = self._of_operator(leader) if leader else (0, [])
        if not pid:
            return ""
        kill(pid)
        return leader

    def _solver(self) -> str:
        leader = self.leader()
        _, children = self._of_operator(leader) if leader else (0, [])
        if not children:
            return ""
        pid = self._random.choice(children)
        words = " ".join(command(pid)[-3:])[:60]
        kill(pid)
        return f"child of {leader} ({words})"

    def _agent(self, *, guard: bool) -> str:
        node = self._node()
        found = [
            pid
            for pid in processes(f"ULLAGE_NODE_NAME={node}")
            if ("guard" in command(pid)) is guard
        ]
        if not found:
            return ""
        kill(found[0])
        return node

    def _members(self) -> Iterator[Json]:
        for pod in self._api.list(collection("pods", self._namespace)):
            if is_member(pod) and is_running(pod):
                yield pod

    def _pod(self) -> str:
        pods = list(self._members())
        if not pods:
            return ""
        name: str = self._random.choice(pods)["metadata"]["name"]
        at_once = self._random.random() < 0.5
        self._api.delete(f"{collection('pods', self._namespace)}/{name}", at_once=at_once)
        return f"{name} deleted{' at once' if at_once else ''}"

    def _container(self) -> str:
        pods = list(self._members())
        if not pods:
            return ""
        pod = self._random.choice(pods)["metadata"]
        for pid in processes(f"HOSTNAME={pod['name']}", f"ULLAGE_SLICE={pod['uid']}_main"):
            kill(pid)
        return f"{pod['name']} killed"
