# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes and GPUNodes.

A node's heartbeats are not part of its record, and a GPUNode's heartbeat is the only field that may
change without a notification.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from ullage.api.dataio import MAX_STARVATIONS, ObservedStarvation
from ullage.api.devices import ObservedDevice
from ullage.api.faults import MAX_FAULTS, DeviceFault
from ullage.api.interruptions import Interruption
from ullage.api.labels import LABEL_NODE
from ullage.api.nodespec import WITHOUT_TRACES
from ullage.api.observations import Observation
from ullage.api.readers import JsonObject, WireError, flag, objects, section, text
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey
from ullage.api.times import seconds
from ullage.cluster.codecs.objects import (
    condition_true,
    optional_text,
    optional_whole,
    read_conditions,
    read_meta,
    within,
)
from ullage.cluster.projection.notice import notice_of_taints
from ullage.cluster.projection.pod_shape import read_amounts, resources_of
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod_shape import Taint


def project_node(raw: JsonObject) -> NodeRecord:
    """Read a Kubernetes node.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    spec, status = section(raw, "spec"), section(raw, "status")
    amounts = read_amounts(status, "allocatable")
    taints = tuple(
        Taint(key=text(raw, "key"), value=optional_text(raw, "value"), effect=text(raw, "effect"))
        for raw in objects(spec, "taints")
    )
    return NodeRecord(
        name=meta.name,
        uid=meta.uid,
        labels=dict(meta.labels),
        taints=taints,
        allocatable=resources_of(amounts, pods=amounts.get("pods", 0)),
        ready=condition_true(status, "Ready"),
        unschedulable=flag(spec, "unschedulable"),
        managed=meta.labels.get(LABEL_NODE) == "true",
        created=meta.created,
        ready_since=next(
            (condition.since for condition in read_conditions(status) if condition.type == "Ready"),
            0.0,
        ),
        deleting=meta.deleting,
        interruption=notice_of_taints(taints, deleting=meta.deleting) if taints else None,
    )


def by_key(slices: Iterable[DesiredSlice]) -> tuple[DesiredSlice, ...]:
    """Slices in the order of their keys, so that lists compare in any order."""
    return tuple(sorted(slices, key=lambda item: item.key))


def slices_since(
    desired: tuple[DesiredSlice, ...], first_wanted: Mapping[DesiredSlice, float], now: float
) -> dict[SliceKey, float]:
    """Time since which each slice has been desired unchanged; a change of any field resets it."""
    return {item.key: first_wanted.get(item, now) for item in desired}


def first_wanted(record: GPUNodeRecord) -> dict[DesiredSlice, float]:
    """Time since which each slice of a record has been desired."""
    return {
        item: record.desired_since[item.key]
        for item in record.desired
        if item.key in record.desired_since
    }


def _observations(status: JsonObject) -> tuple[tuple[Observation, ...], int]:
    """Observations, and the number of unreadable entries, which are skipped."""
    entries = objects(status, "observations")
    observations: dict[str, Observation] = {}
    unreadable = 0
    for entry in entries:
        try:
            observation = Observation.from_wire(entry)
        except WireError:
            unreadable += 1
        else:
            observations[observation.id] = observation
    return tuple(observations.values()), unreadable


def _faults(status: JsonObject) -> tuple[DeviceFault, ...]:
    """Newest faults of devices; unreadable entries are skipped."""
    faults: dict[str, DeviceFault] = {}
    for entry in objects(status, "faults")[-MAX_FAULTS:]:
        with contextlib.suppress(WireError):
            fault = DeviceFault.from_wire(entry)
            faults[fault.id] = fault
    return tuple(faults.values())


def _starvations(status: JsonObject) -> tuple[ObservedStarvation, ...]:
    """Starving containers; unreadable entries are skipped."""
    starvations: list[ObservedStarvation] = []
    for entry in objects(status, "starvations")[:MAX_STARVATIONS]:
        with contextlib.suppress(WireError):
            starvations.append(ObservedStarvation.from_wire(entry))
    return tuple(starvations)


def _interruption(status: JsonObject) -> Interruption | None:
    raw = section(status, "interruption")
    if not raw:
        return None
    with within("interruption"):
        return Interruption.from_wire(raw)


def project_gpu_node(
    raw: JsonObject, now: float, wanted_since: Mapping[DesiredSlice, float]
) -> GPUNodeRecord:
    """Read a GPUNode; ``wanted_since`` comes from earlier records and assumptions.

    Raises:
        WireError: a field that is needed is missing or malformed.
    """
    meta = read_meta(raw)
    status = section(raw, "status")
    with within("spec"):
        spec = WITHOUT_TRACES.read(section(raw, "spec"))
    desired = by_key(spec.slices)
    with within("status"):
        learned, unreadable = _observations(status)
        return GPUNodeRecord(
            name=meta.name,
            uid=meta.uid,
            epoch=spec.epoch,
            retire=spec.retire,
            desired=desired,
            devices=tuple(ObservedDevice.from_wire(item) for item in objects(status, "devices")),
            observed=tuple(ObservedSlice.from_wire(item) for item in objects(status, "slices")),
            heartbeat=seconds(status.get("heartbeat"), "heartbeat"),
            conditions=read_conditions(status),
            slots=optional_whole(section(status, "totals"), "slots"),
            contract=optional_whole(section(status, "agent"), "contract"),
            observations=learned,
            observations_read=spec.observations_read,
            lane_policy=spec.lane_policy,
            io_fairness=spec.io_fairness,
            unreadable_observations=unreadable,
            faults=_faults(status),
            interruption=_interruption(status),
            starvations=_starvations(status),
            desired_since=slices_since(desired, wanted_since, now),
        )
