# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The first install, by the commands that the documentation prints, until a share is in use."""

from __future__ import annotations

import json
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from demo.cluster import LocalCluster
from demo.images import ROOT
from demo.install import local_values
from demo.progress import CommandFailed

PAGE: Final = ROOT / "docs" / "index.md"
HEADING: Final = "## Share the devices of a cluster you have"
EXAMPLE: Final = ROOT / "examples" / "09-existing-workloads.yaml"
SHARE: Final = "ullage.dev/share"
ENFORCED: Final = "ullage.dev/Enforced"
LOOK_S: Final = 0.25
LIMIT_S: Final = 900.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstShare:
    """What a first install took."""

    commands: tuple[str, ...]
    """As printed, in their order."""
    seconds: float
    """From the first command to a Deployment's and a Job's pods Running under their shares."""
    pods: dict[str, str]
    """Name of the pod that shares, by kind of what owns it."""


def printed_commands(page: str, heading: str = HEADING) -> tuple[str, ...]:
    """Lines of the first block of shell commands below a heading of a page.

    Raises:
        ValueError: the heading is not there, or has no such block.
    """
    section = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    block = section and re.search(r"^```sh\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)
    lines = tuple(line for line in block[1].splitlines() if line.strip()) if block else ()
    if not lines:
        raise ValueError(f"no block of shell commands below {heading!r}")
    return lines


def first_share(cluster: LocalCluster) -> FirstShare:
    """Share devices for the first time, as the page says, on a cluster that runs the example.

    Raises:
        CommandFailed: a command failed, or nothing shared within the limit.
    """
    commands = printed_commands(PAGE.read_text("utf-8"))
    _run_unlabelled(cluster)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("charts", "examples"):
            (folder / part).symlink_to(ROOT / part)
        (folder / "values.yaml").write_text(json.dumps(local_values()))
        started = time.monotonic()
        for command in commands:
            cluster.shell(command, folder)
        pods = _until_shared(cluster, started + LIMIT_S)
        return FirstShare(commands=commands, seconds=time.monotonic() - started, pods=pods)


def remove_example(cluster: LocalCluster) -> None:
    """Take the example's workloads away."""
    cluster.kubectl("delete", "--filename", str(EXAMPLE), "--ignore-not-found", "--wait")


def unlabelled() -> list[Json]:
    """The example as it was before: without any key of ours."""
    bodies: list[Json] = list(yaml.safe_load_all(EXAMPLE.read_text("utf-8")))
    for body in bodies:
        labels = body["spec"]["template"]["metadata"]["labels"]
        body["spec"]["template"]["metadata"]["labels"] = {
            key: value for key, value in labels.items() if not key.startswith("ullage.dev/")
        }
    return bodies


def _run_unlabelled(cluster: LocalCluster) -> None:
    """The Deployment runs before; a Job of that name ran and was deleted, as its page says."""
    deployment = next(body for body in unlabelled() if body["kind"] == "Deployment")
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(deployment))
    name = f"deployment/{deployment['metadata']['name']}"
    cluster.kubectl("rollout", "status", name, "--timeout=600s")


def _until_shared(cluster: LocalCluster, deadline: float) -> dict[str, str]:
    wanted = {"Deployment": "ReplicaSet", "Job": "Job"}
    while True:
        done = cluster.kubectl("get", "pods", "--selector", SHARE, "--output", "json")
        found = {
            kind: pod["metadata"]["name"]
            for pod in json.loads(done.stdout)["items"]
            for kind, owner in wanted.items()
            if shares(pod) and owner == pod["metadata"]["ownerReferences"][0]["kind"]
        }
        if found.keys() == wanted.keys():
            return found
        if time.monotonic() > deadline:
            raise CommandFailed(f"only {found} share a device within {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)


def shares(pod: Json) -> bool:
    """Whether a pod runs and its node agent has confirmed that its share is enforced."""
    conditions = pod["status"].get("conditions", [])
    confirmed = any(one["type"] == ENFORCED and one["status"] == "True" for one in conditions)
    return confirmed and pod["status"].get("phase") == "Running"
