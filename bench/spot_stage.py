# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The local cluster as a spot group: machines get notices, go, and come back; a gang trains on it.

The nodes of the local cluster are processes that stay, so a machine that goes is played by what the
rest of the cluster sees of it: its containers are killed without a signal, its pods vanish from the
API, as a cloud's controller has it when an instance is gone, and nothing new is placed there until
the next one comes. A notice is the taint of a termination handler.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from demo.cluster import LocalCluster
from demo.images import ROOT, image_name

Json = dict[str, Any]
T = TypeVar("T")

NAMESPACE: Final = "spot-replay"
NAME: Final = "digits-elastic"
JOBS: Final = "trainingjobs.ullage.dev"
EXAMPLE: Final = ROOT / "examples" / "05-elastic.yaml"
MEMBER: Final = Path(__file__).with_name("spot_member.py")
NOTICE: Final = "aws-node-termination-handler/spot-itn"
START_S: Final = 120.0
RELEASE_S: Final = 120.0


class NotPlayed(RuntimeError):
    """The cluster did not do what the replay needs; the text says what was waited for."""


def until(
    look: Callable[[], T | None], within_s: float, what: str, seen: Callable[[], object] = str
) -> T:
    """The first true answer.

    Args:
        look: Asked a few times a second.
        within_s: For so long.
        what: It means, in words.
        seen: What to show when it does not come.

    Raises:
        NotPlayed: there is none in time.
    """
    deadline = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise NotPlayed(f"not within {within_s:.0f} s: {what} {seen()}".rstrip())
        time.sleep(0.25)
    return found


def job_body(run: str, steps: int, most: int, folder: Path) -> Json:
    """The example as users apply it, with notes and another number of members.

    Its checkpoints lie in a folder that all nodes share.
    """
    body: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"] |= {"name": NAME, "namespace": NAMESPACE}
    spec = body["spec"]
    spec["elasticity"] |= {"minReplicas": 1, "maxReplicas": most}
    spec["work"]["steps"] = steps
    spec.pop("profileRef", None)  # it stands in another namespace
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = image_name("examples")
    container["command"] = ["python", "-c", MEMBER.read_text(encoding="utf-8")]
    set_here = {
        "STEPS": str(steps),
        "CHECKPOINT_DIR": f"/checkpoints/{run}",
        "SPOT_NOTES": f"/checkpoints/{run}",
        "SPOT_RUN": run,
    }
    kept = [one for one in container["env"] if one["name"] not in set_here]
    node = {"name": "SPOT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container["env"] = [*kept, *({"name": k, "value": v} for k, v in set_here.items()), node]
    for volume in pod["volumes"]:
        if volume["name"] == "checkpoints":
            volume["hostPath"] = {"path": str(folder), "type": "Directory"}
    return body


def example_setting(name: str) -> str:
    """A variable of the example's container."""
    body: Json = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    container = body["spec"]["template"]["spec"]["containers"][0]
    return next(str(one["value"]) for one in container["env"] if one["name"] == name)


@dataclass(slots=True)
class Stage:
    """Where the replay happens."""

    local: LocalCluster
    folder: Path
    """Shared by all nodes; every run has a folder of its own in it."""

    def open(self) -> None:
        """Make the namespace."""
        self.local.kubectl("create", "namespace", NAMESPACE)

    def close(self) -> None:
        """Give every machine back and remove what was made."""
        for node in self.nodes():
            self.come(node)
        self.local.kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=False)

    def nodes(self) -> list[str]:
        """Names of the nodes, sorted."""
        return sorted(one["metadata"]["name"] for one in self._list("nodes"))

    # -- the gang --------------------------------------------------------------------------------

    def start(self, run: str, steps: int, most: int) -> None:
        """Apply the job and wait until all its members train.

        Raises:
            NotPlayed: they do not.
        """
        notes = self.folder / run
        notes.mkdir()
        notes.chmod(0o777)
        body = json.dumps(job_body(run, steps, most, self.folder))
        self.local.kubectl("apply", "--filename", "-", stdin=body)
        until(
            lambda: len(self.members()) == most and self.reached(run) > 0,
            START_S,
            f"{most} members train",
            self.status,
        )

    def remove(self) -> None:
        """Delete the job and wait until no device is held.

        Raises:
            NotPlayed: some are after a while.
        """
        self.local.kubectl("delete", JOBS, NAME, "--namespace", NAMESPACE)
        until(lambda: not self._held(), RELEASE_S, "every device is free again")

    def status(self) -> Json:
        """Status of the job; empty before there is one."""
        done = self.local.kubectl(
            "get", JOBS, NAME, "--namespace", NAMESPACE, "--ignore-not-found", "--output", "json"
        )
        found: Json = json.loads(done.stdout) if done.stdout.strip() else {}
        status: Json = found.get("status", {})
        return status

    def members(self) -> Mapping[str, str]:
        """Members that run and stay, by uid of the pod, with their nodes."""
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in self._pods()
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def present(self) -> frozenset[str]:
        """Uids of all pods that run or have ended well."""
        return frozenset(
            pod["metadata"]["uid"]
            for pod in self._pods()
            if pod["status"].get("phase") in ("Running", "Succeeded")
            and "deletionTimestamp" not in pod["metadata"]
        )

    def reached(self, run: str) -> int:
        """The furthest step that any member noted."""
        steps = [0]
        for heart in (self.folder / run).glob("heart-*"):
            words = heart.read_text(encoding="ascii").split()
            if words and words[0].isdigit():
                steps.append(int(words[0]))
        return max(steps)

    def log(self) -> str:
        """What rank 0 printed."""
        return self.local.kubectl("logs", f"{NAME}-0", "--namespace", NAMESPACE).stdout

    # -- machines --------------------------------------------------------------------------------

    def notice(self, node: str) -> None:
        """A termination handler says that the node goes."""
        taint = f"{NOTICE}=replay:NoSchedule"
        self.local.kubectl("taint", "nodes", node, taint, "--overwrite")

    def go(self, node: str, run: str) -> int:
        """The machine is gone; returns how many pods of the gang were still on it."""
        names = [
            pod["metadata"]["name"]
            for pod in self._pods()
            if pod["spec"].get("nodeName") == node
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        self.local.kubectl("cordon", node)
        for process in _containers(node, run):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if names:
            self.local.kubectl(
                "delete", "pods", *names, "--namespace", NAMESPACE,
                "--grace-period=0", "--force", "--wait=false", check=False,
            )  # fmt: skip
        return len(names)

    def come(self, node: str) -> None:
        """A machine comes in its place."""
        self.local.kubectl("taint", "nodes", node, f"{NOTICE}:NoSchedule-", check=False)
        self.local.kubectl("uncordon", node)

    # -- small ones ------------------------------------------------------------------------------

    def _pods(self) -> list[Json]:
        return self._list(
            "pods", "--namespace", NAMESPACE, "--selector", f"ullage.dev/owner={NAME}"
        )

    def _list(self, kind: str, *words: str) -> list[Json]:
        done = self.local.kubectl("get", kind, *words, "--output", "json")
        items: list[Json] = json.loads(done.stdout)["items"]
        return items

    def _held(self) -> bool:
        return any(
            node.get("spec", {}).get("slices") or node.get("status", {}).get("slices")
            for node in self._list("gpunodes.ullage.dev")
        )


def _containers(node: str, run: str) -> list[int]:
    """Processes of a run's containers on a node: their names are in their environment."""
    marks = (f"SPOT_NODE={node}\0".encode(), f"SPOT_RUN={run}\0".encode())
    found = []
    for folder in Path("/proc").iterdir():
        if not re.fullmatch(r"\d+", folder.name):
            continue
        with suppress(OSError):
            environment = (folder / "environ").read_bytes()
            if all(mark in environment for mark in marks):
                found.append(int(folder.name))
    return found
