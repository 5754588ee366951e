# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parses objects of the API server: the GPUNode's spec and the pods of this node.

The schema was checked by the API server already; this still validates everything used as a path, in
arithmetic, or as a list. A faulty slice is left out and reported, it never hides the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from ullage.api.dataio import IoFairness
from ullage.api.environment import PYTHON_PATH
from ullage.api.faults import MAX_FAULTS, DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.labels import ANNOTATION_RESERVATION, HOOK_LABEL, WITHOUT_HOOK
from ullage.api.lanes import IterationPolicy
from ullage.api.nodespec import MAX_SLICES, WITHOUT_LISTS
from ullage.api.observations import Observation
from ullage.api.readers import JsonObject, WireError, objects, quoted, section, text, whole
from ullage.api.slices import MAX_EPOCH, DesiredSlice, ObservedSlice, SliceKey
from ullage.api.times import moment_of
from ullage.api.traces import MAX_TRACES, DesiredTrace
from ullage_node.model.endpoints import read_endpoint, read_images
from ullage_node.model.slices import Pod
from ullage_node.model.standstill import read_standstill

SAFE_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$")
"""Form of a pod's uid, name and namespace and a container's name, because directories and addresses
are made of them."""
PROBLEMS_MOST: Final = 8
"""Most faulty slices that are named one by one."""
LONGEST_UID: Final = 64
LONGEST_LABEL: Final = 63
LONGEST_WORD: Final = 253
MIB_MOST: Final = 1 << 30
"""Upper bound of memory: a petabyte."""
MICROS_MOST: Final = 86_400_000_000
"""No step takes longer than a day."""
INDEX_MOST: Final = 63
BOUNDS: Final[tuple[tuple[str, Callable[[DesiredSlice], int], int, int], ...]] = (
    ("memoryMiB", lambda part: part.memory_mib, 0, MIB_MOST),
    ("soloStepMicros", lambda part: part.solo_step_micros, 0, MICROS_MOST),
    ("slo.latencyMs", lambda part: part.slo.latency_ms if part.slo else 1, 1, 86_400_000),
    ("slo.windowSeconds", lambda part: part.slo.window_seconds if part.slo else 1, 1, 86_400),
)
"""Field, its value, minimum and maximum, where the node's range is narrower than the contract's."""

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The operator's spec for this node."""

    uid: str
    generation: int
    epoch: int
    retire: bool
    slices: tuple[DesiredSlice, ...]
    faulty: tuple[tuple[DesiredSlice, str], ...] = ()
    """Identifiable slices with a fault, and its text."""
    observations_read: str = ""
    """Newest observation that the operator has acknowledged."""
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Policy of the next step in a lane."""
    traces: tuple[DesiredTrace, ...] = ()
    """Orders of step traces."""
    io_fairness: IoFairness = IoFairness.OBSERVE
    """Answer to a container that takes too much of a volume."""
    problems: tuple[str, ...] = ()
    """Texts on slices and orders that cannot be read."""


def read_gpu_node(raw: JsonObject) -> NodeSpec:
    """Read a GPUNode.

    Raises:
        WireError: the object as a whole is malformed.
    """
    metadata, spec = section(raw, "metadata"), section(raw, "spec")
    try:
        stated = WITHOUT_LISTS.read(spec)
    except WireError as error:
        raise WireError(f"spec.{error}") from error
    epoch = stated.epoch
    generation = whole(metadata, "generation", 0)
    if generation < 0:
        raise WireError(f"metadata.generation: {generation} is below 0")
    slices: dict[SliceKey, DesiredSlice] = {}
    faulty: dict[SliceKey, tuple[DesiredSlice, str]] = {}

    def read(entry: JsonObject) -> None:
        known = _told_apart(entry, epoch)
        if known.key in slices or known.key in faulty:
            raise WireError(f"podUID: {known.key.directory} stands there already")
        if len(slices) + len(faulty) == MAX_SLICES:
            raise WireError(f"index: more than {MAX_SLICES} slices")
        try:
            slices[known.key] = _read_slice(entry, epoch)
        except WireError as error:
            faulty[known.key] = known, str(error)

    _, faults = _by_parts(spec, "slices", read)
    problems = [f"spec.slices[{position}].{fault}" for position, fault in faults[:PROBLEMS_MOST]]
    if len(faults) > PROBLEMS_MOST:
        problems.append(f"{len(faults) - PROBLEMS_MOST} more slices cannot be read")
    traces, faults = _by_parts(spec, "traces", _read_trace)
    problems += [f"spec.traces[{position}].{fault}" for position, fault in faults[:PROBLEMS_MOST]]
    words = {word.value: word for word in IterationPolicy}
    policy = spec.get("lanePolicy") or stated.lane_policy.value
    if policy not in words:
        problems.append(f"spec.lanePolicy: {quoted(str(policy))} is none of {', '.join(words)}")
    return NodeSpec(
        uid=text(metadata, "uid"),
        generation=generation,
        epoch=epoch,
        retire=stated.retire,
        slices=tuple(slices.values()),
        faulty=tuple(faulty.values()),
        observations_read=stated.observations_read,
        lane_policy=stated.lane_policy,
        io_fairness=stated.io_fairness,
        traces=traces[:MAX_TRACES],
        problems=tuple(problems),
    )


def _read_trace(raw: JsonObject) -> DesiredTrace:
    order = DesiredTrace.from_wire(raw)
    _check_name("id", order.id, LONGEST_UID)
    _check_name("podUID", order.pod_uid, LONGEST_UID)
    return order


def read_decision(raw: object) -> DesiredSlice:
    """A decision from one of our CDI files.

    Raises:
        WireError: it is malformed.
    """
    if not isinstance(raw, dict):
        raise WireError("expected an object")
    return _read_slice(raw, _told_apart(raw, MAX_EPOCH).epoch)


def _by_parts(
    raw: JsonObject, field: str, read: Callable[[JsonObject], Part]
) -> tuple[tuple[Part, ...], tuple[tuple[int, str], ...]]:
    """The readable entries of a list, and position and fault of the others.

    Raises:
        WireError: the field is not a list.
    """
    entries = raw.get(field)
    if entries is None:
        return (), ()
    if not isinstance(entries, list):
        raise WireError(f"{field}: expected a list, got {type(entries).__name__}")
    parts: list[Part] = []
    faults: list[tuple[int, str]] = []
    for position, entry in enumerate(entries):
        try:
            if not isinstance(entry, dict):
                raise WireError(f"expected an object, got {type(entry).__name__}")
            parts.append(read(entry))
        except WireError as error:
            faults.append((position, str(error)))
    return tuple(parts), tuple(faults)


def _check_key(key: SliceKey) -> None:
    _check_name("podUID", key.pod_uid, LONGEST_UID)
    _check_name("container", key.container, LONGEST_LABEL)
    if not 0 <= key.index <= INDEX_MOST:
        raise WireError(f"index: {key.index} is not within 0 to {INDEX_MOST}")


def _check_name(field: str, value: str, longest: int) -> None:
    if len(value) > longest or not SAFE_NAME.fullmatch(value):
        raise WireError(f"{field}: {quoted(value)} cannot name a directory")


def _told_apart(raw: JsonObject, epoch: int) -> DesiredSlice:
    """Only the key of an entry.

    Raises:
        WireError: a field is missing; the text names it.
    """
    key = SliceKey.from_wire(raw)
    _check_key(key)
    namespace, name = text(raw, "podNamespace"), text(raw, "podName")
    _check_name("podNamespace", namespace, LONGEST_LABEL)
    _check_name("podName", name, LONGEST_WORD)
    return DesiredSlice(
        key=key,
        pod_namespace=namespace,
        pod_name=name,
        gpu="",
        percent=0,
        memory_mib=0,
        epoch=epoch,
    )


def _read_slice(raw: JsonObject, epoch: int) -> DesiredSlice:
    desired = DesiredSlice.from_wire(raw)
    if desired.epoch > epoch:
        raise WireError(f"epoch: {desired.epoch} is above that of the spec, {epoch}")
    for field, value in (
        ("gpu", desired.gpu),
        ("class", desired.workload_class),
        ("family", desired.family),
        ("trustDomain", desired.trust_domain),
        ("slo.metric", desired.slo.metric if desired.slo else ""),
    ):
        if len(value) > LONGEST_WORD or not value.isprintable():
            raise WireError(f"{field}: {quoted(value)} is no name")
    if desired.persistent_mib + desired.ephemeral_mib > desired.memory_mib:
        raise WireError(f"ephemeralMiB: with persistentMiB above memoryMiB, {desired.memory_mib}")
    if desired.lane and not (desired.persistent_mib and desired.ephemeral_mib):
        raise WireError("lane: belongs to a slice with persistentMiB and ephemeralMiB")
    if desired.suspendable and not desired.lane:
        raise WireError("suspendable: belongs to a slice with a lane")
    for field, read, least, most in BOUNDS:
        if not least <= read(desired) <= most:
            raise WireError(f"{field}: {read(desired)} is not within {least} to {most}")
    return desired


def read_reported(raw: JsonObject) -> tuple[ObservedSlice, ...]:
    """Started slices in the GPUNode's status; unreadable ones are left out."""
    # Skip entries of another version: kubelet's list still keeps the slot taken.
    reported, _ = _by_parts(section(raw, "status"), "slices", _read_report)
    return tuple(seen for seen in reported[:MAX_SLICES] if seen.phase.started)


def _read_report(raw: JsonObject) -> ObservedSlice:
    seen = ObservedSlice.from_wire(raw)
    _check_key(seen.key)
    for field, value, most in (
        ("percent", seen.percent, 100),
        ("memoryMiB", seen.memory_mib, MIB_MOST),
        ("gpu", len(seen.gpu), LONGEST_WORD),
    ):
        if not 0 <= value <= most:
            raise WireError(f"{field}: {value} is not within 0 to {most}")
    return seen


def read_observations(raw: JsonObject) -> tuple[Observation, ...]:
    """Observations in the GPUNode's status, oldest first; unreadable ones are left out."""
    # Skip entries of another version: the operator has read them or will not.
    observations, _ = _by_parts(section(raw, "status"), "observations", Observation.from_wire)
    return observations


def read_faults(raw: JsonObject) -> tuple[DeviceFault, ...]:
    """Faults in the GPUNode's status, oldest first; unreadable ones are left out."""
    # Skip entries of another version: the operator has read them or will not.
    reported, _ = _by_parts(section(raw, "status"), "faults", DeviceFault.from_wire)
    return reported[-MAX_FAULTS:]


def read_conditions(raw: JsonObject) -> tuple[JsonObject, ...]:
    """Conditions in the GPUNode's status; invalid entries are left out.

    Raises:
        WireError: the status is not an object, or they are not a list.
    """
    conditions, _ = _by_parts(section(raw, "status"), "conditions", _read_condition)
    return conditions


def _read_condition(raw: JsonObject) -> JsonObject:
    return {name: text(raw, name) for name in ("type", "status", "lastTransitionTime")}


def read_interruption(raw: JsonObject) -> Interruption | None:
    """The notice in the GPUNode's status; an unreadable one counts as none."""
    try:
        reported = section(section(raw, "status"), "interruption")
        return Interruption.from_wire(reported) if reported else None
    except WireError:
        return None  # written by another version; the provider is polled anyway


def _moment(written: str) -> float:
    """A time of the API in seconds since the epoch; 0 if missing or malformed."""
    try:
        return moment_of(written, "time") if written else 0.0
    except WireError:
        return 0.0


def _reservation(metadata: JsonObject) -> str:
    """The reservation that a pod bears; one that no slice can have counts as none."""
    stated = section(metadata, "annotations").get(ANNOTATION_RESERVATION)
    return stated if isinstance(stated, str) and len(stated) <= LONGEST_UID else ""


def read_python_paths(raw: JsonObject) -> Iterator[tuple[str, str | None]]:
    """Containers whose PYTHONPATH the pod states: its text, ``None`` where a reference may set it.

    Raises:
        WireError: containers or their environment have no such shape.
    """
    for container in objects(section(raw, "spec"), "containers"):
        name = text(container, "name", "")
        stated = [entry for entry in objects(container, "env") if entry.get("name") == PYTHON_PATH]
        if stated:
            value = text(stated[-1], "value", "") if "valueFrom" not in stated[-1] else "$("
            yield name, None if "$(" in value else value
        elif objects(container, "envFrom"):
            yield name, None


def _priority(spec: JsonObject) -> int:
    """Priority of a pod; the API server sets it, 0 where it is none."""
    priority = spec.get("priority")
    return priority if type(priority) is int else 0


def read_pod(raw: JsonObject) -> Pod:
    """Read a pod of any node.

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
        reservation=_reservation(metadata),
        endpoint=read_endpoint(raw),
        images=read_images(raw),
        standstill=read_standstill(raw),
        python_paths=tuple(read_python_paths(raw)),
        without_hook=text(section(metadata, "labels"), HOOK_LABEL, "") == WITHOUT_HOOK,
        priority=_priority(section(raw, "spec")),
    )
