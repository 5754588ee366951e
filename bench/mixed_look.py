# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at one namespace every few seconds: step records of its containers, status of its work.

It only reads. The records are the containers' own, taken where the node keeps them, so that a
window is as long as it says and not as smooth as a status.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.mixed_record import Reading, Recording
from demo.cluster import LocalCluster
from ullage.api.environment import STEPS_FILE
from ullage.api.labels import LABEL_OWNER
from ullage.api.readers import WireError, section, text, whole
from ullage.api.slices import SliceKey
from ullage.api.steps import StepRecord
from ullage.ports import (
    INFERENCE_DEPLOYMENT,
    POD,
    TRAINING_JOB,
    ClusterPort,
    JsonObject,
    Kind,
    Selector,
)

RUN_FOLDER = "/run/ullage"
CONTAINER = "main"
REASON_LENGTH = 300


def step_folders(cluster: LocalCluster, nodes: tuple[str, ...]) -> Mapping[str, Path]:
    """Where each node of the local cluster keeps the records of its containers.

    As a process of the node sees it: the records lie in file systems that are mounted there alone.
    """
    return {node: cluster.root_of(node) / RUN_FOLDER.lstrip("/") / "steps" for node in nodes}


@dataclass(slots=True, kw_only=True)
class Watch:
    """Adds to a recording what is to be seen now."""

    cluster: ClusterPort
    namespace: str
    folders: Mapping[str, Path]
    into: Recording

    async def look(self, at_s: float) -> None:
        """Read every running container and the status of every workload once."""
        told: dict[str, JsonObject] = {}
        for kind in (TRAINING_JOB, INFERENCE_DEPLOYMENT):
            for one in await self._all(kind):
                name, status = _name(one), section(one, "status")
                told[name] = section(status, "sharing")
                self._note(name, status, at_s)
        for pod in await self._all(POD):
            reading = self._read(pod, told, at_s)
            if reading is not None:
                self.into.readings.append(reading)
        self.into.looks_s.append(round(at_s, 3))
        self.into.load.append(round(os.getloadavg()[0], 2))

    def _note(self, name: str, status: JsonObject, at_s: float) -> None:
        """Ends of jobs, and why others wait."""
        phase = text(status, "phase", "")
        if phase == "Succeeded":
            self.into.finished_s.setdefault(name, round(at_s, 3))
        elif phase == "Failed" and name not in self.into.failed:
            self.into.failed.append(name)
        decision = section(status, "decision")
        reason, message = (text(decision, field, "") for field in ("reason", "message"))
        self.into.reasons[name] = f"{reason}: {message}"[:REASON_LENGTH]

    def _read(self, pod: JsonObject, told: Mapping[str, JsonObject], at_s: float) -> Reading | None:
        owner = text(section(section(pod, "metadata"), "labels"), LABEL_OWNER, "")
        running = text(section(pod, "status"), "phase", "") == "Running"
        node = text(section(pod, "spec"), "nodeName", "")
        folder = self.folders.get(node)
        if not owner or not running or folder is None:
            return None
        uid = text(section(pod, "metadata"), "uid")
        record = read_record(folder / SliceKey(pod_uid=uid, container=CONTAINER).directory)
        if record is None:
            return None
        sharing = told.get(owner, {})
        return Reading(
            at_s=round(at_s, 3),
            name=owner,
            pod=uid,
            steps=record.steps,
            busy_ns=record.busy_ns,
            percent=whole(sharing, "percent", 0),
            predicted=float(text(sharing, "predicted", "0")),
            upper=float(text(sharing, "predictedUpper", "0")),
            node=node,
        )

    async def _all(self, kind: Kind) -> list[JsonObject]:
        found: list[JsonObject] = []
        async for page in self.cluster.list_paged(kind, Selector(namespace=self.namespace)):
            found += page.items
        return found


def read_record(directory: Path) -> StepRecord | None:
    """A container's own count; ``None`` before it began, or when it is gone."""
    try:
        return StepRecord.unpack((directory / STEPS_FILE).read_bytes())
    except (FileNotFoundError, WireError):
        return None


def _name(body: JsonObject) -> str:
    return text(section(body, "metadata"), "name")
