# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what comes from the API server: the GPUNode's spec and the pods of this node.

The schema was checked by the API server already; this still trusts nothing it turns into a path.
A faulty slice is left out and named, it never hides the others.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ullage.api.contract import (
    DesiredSlice,
    Interruption,
    JsonObject,
    Observation,
    ObservedSlice,
    SliceKey,
    WireError,
    flag,
    objects,
    section,
    text,
    whole,
)
from ullage_node.guard.standstill import read_standstill
from ullage_node.slices.endpoints import read_endpoint, read_images
from ullage_node.slices.records import Pod

SAFE_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$")
"""What a pod uid or a container name may be, because directories are named after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What the operator wants of this node."""

    uid: str
    generation: int
    epoch: int
    retire: bool
    slices: tuple[DesiredSlice, ...]
    observations_read: str = ""
    """Newest observation that the operator has taken in."""
    problems: tuple[str, ...] = ()
    """Slices that could not be read, in words."""


def read_gpu_node(raw: JsonObject) -> NodeSpec:
    """Read a GPUNode.

    Raises:
        WireError: the object as a whole has not the agreed shape.
    """
    metadata, spec = section(raw, "metadata"), section(raw, "spec")
    slices: dict[SliceKey, DesiredSlice] = {}
    problems: list[str] = []
    for position, entry in enumerate(objects(spec, "slices")):
        try:
            part = _read_slice(entry)
            if part.key in slices:
                raise WireError(f"podUID: {part.key.directory} stands there already")
        except WireError as error:
            problems.append(f"spec.slices[{position}].{error}")
        else:
            slices[part.key] = part
    return NodeSpec(
        uid=text(metadata, "uid"),
        generation=whole(metadata, "generation", 0),
        epoch=whole(spec, "epoch", 0),
        retire=flag(spec, "retire"),
        slices=tuple(slices.values()),
        observations_read=text(spec, "observationsRead", ""),
        problems=tuple(problems),
    )


def _read_slice(raw: JsonObject) -> DesiredSlice:
    desired = DesiredSlice.from_wire(raw)
    for field, value in (("podUID", desired.key.pod_uid), ("container", desired.key.container)):
        if not SAFE_NAME.match(value):
            raise WireError(f"{field}: {value!r} cannot name a directory")
    return desired


def read_reported(raw: JsonObject) -> tuple[ObservedSlice, ...]:
    """Slices that the GPUNode's status says were started; unreadable ones are left out."""
    found: list[ObservedSlice] = []
    for entry in objects(section(raw, "status"), "slices"):
        try:
            seen = ObservedSlice.from_wire(entry)
        except WireError:
            continue  # written by another version: kubelet's list still keeps the slot taken
        if seen.phase.started and SAFE_NAME.match(seen.key.pod_uid):
            found.append(seen)
    return tuple(found)


def read_observations(raw: JsonObject) -> tuple[Observation, ...]:
    """Observations in the GPUNode's status, oldest first; unreadable ones are left out."""
    found: list[Observation] = []
    for entry in objects(section(raw, "status"), "observations"):
        try:
            found.append(Observation.from_wire(entry))
        except WireError:
            continue  # written by another version; the operator has read it or will not
    return tuple(found)


def read_interruption(raw: JsonObject) -> Interruption | None:
    """The notice in the GPUNode's status; an unreadable one counts as none."""
    said = section(section(raw, "status"), "interruption")
    try:
        return Interruption.from_wire(said) if said else None
    except WireError:
        return None  # written by another version; the provider is asked anyway


def _moment(written: str) -> float:
    """A time of the API in seconds since the epoch; 0 for none, and for what is no time."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(written).timestamp()
    return 0.0


def read_pod(raw: JsonObject) -> Pod:
    """Read a pod, whichever node it is on.

    Raises:
        WireError: it has no uid, name or namespace.
    """
    metadata, status = section(raw, "metadata"), section(raw, "status")
    return Pod(
        uid=text(metadata, "uid"),
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        phase=text(status, "phase", ""),
        created=text(metadata, "creationTimestamp", ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        deletes_at=_moment(text(metadata, "deletionTimestamp", "")),
        grace_seconds=whole(metadata, "deletionGracePeriodSeconds", 30),
        node=text(section(raw, "spec"), "nodeName", ""),
        endpoint=read_endpoint(raw),
        images=read_images(raw),
        standstill=read_standstill(raw),
    )
