# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes learned models into DeviceProfiles, so that a restart need not fit again.

A model is written only when it changed and at most once a minute per type; a missing one is written
again. It never changes a spec written by a user. The profile of a known type is created as soon as
a node has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import structlog

from ullage.api.deviceprofile import read_device_profile_spec
from ullage.api.readers import JsonObject, section
from ullage.api.reasons import ConditionType, Reason
from ullage.app.fit_schedule import FitState
from ullage.app.model_summary import Fitted, stored
from ullage.app.times import MODEL_WRITE_S
from ullage.cluster.codecs.objects import string_map
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.profile import DeviceProfileRecord, DeviceRates
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.process.faults import fault_text
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.plan import CreateDeviceProfile, SetDeviceModel

log = structlog.get_logger("ullage.models")

KIND: Final = "DeviceProfile"
MANIFESTS: Final = Path(__file__).with_name("deviceprofiles.json")
"""DeviceProfiles of known types. Rates of tensor cores are dense; FP64 and FP32 are those of the
other cores. Memory is nominal."""
SOURCE: Final = "sources.ullage.dev/"
"""Annotations that name the source of a field of the spec."""
RATES: Final = ("memoryBytesPerSecond", "peakFlops")

Write = CreateDeviceProfile | SetDeviceModel


class ModelTeller:
    """Tracks its last writes; all other state is in the snapshot.

    ``rates`` are those of types whose profile is created before anything is learned.
    """

    def __init__(self, rates: Mapping[str, DeviceRates] = MappingProxyType({})) -> None:
        self._rates = rates
        self._wrote: dict[tuple[str, bool], float] = {}
        self._faults: dict[str, str] = {}
        """By type: the last logged failure; bounded by the types that the cluster has had."""

    def writes(
        self, snapshot: Snapshot, courses: Mapping[str, FitState], *, now: float, epoch: int
    ) -> tuple[Write, ...]:
        """Writes that bring the profiles up to date; ``now`` in seconds."""
        writes: list[Write] = []
        on_nodes = {device.model for node in snapshot.gpu_nodes.values() for device in node.devices}
        described = self._rates.keys() & on_nodes - snapshot.device_profiles.keys()
        for name in sorted(courses.keys() | described):
            course = courses.get(name) or FitState(accelerator=name)
            try:
                write = self._due(snapshot, name, course, now, epoch)
            except Exception as error:  # the models of other types are written
                if self._faults.get(name) != (text := fault_text(error)):
                    self._faults[name] = text
                    log.exception("model not written", accelerator=name)
                continue
            self._faults.pop(name, None)
            if write is not None:
                writes.append(write)
        return tuple(writes)

    def _due(
        self, snapshot: Snapshot, name: str, course: FitState, now: float, epoch: int
    ) -> Write | None:
        rows = course.model.rows if course.model is not None else 0
        record = snapshot.device_profiles.get(name)
        last = self._wrote.get((name, record is None))
        if last is not None and 0 <= now - last < MODEL_WRITE_S:
            return None
        rates = self._rates.get(name)
        if not (rows or course.error or (record is None and rates is not None)):
            return None
        write: Write | None
        if record is None:
            write = _create(snapshot, name, epoch, rates)
        else:
            write = _set(record, course, now, epoch)
        if write is not None:
            self._wrote[name, record is None] = now
        return write


def _create(
    snapshot: Snapshot, name: str, epoch: int, rates: DeviceRates | None
) -> CreateDeviceProfile | None:
    """A profile with the least memory that a device of the type reports."""
    memory_mib = min(
        (
            device.memory_mib
            for node in snapshot.gpu_nodes.values()
            for device in node.devices
            if device.model == name and device.memory_mib > 0
        ),
        default=0,
    )
    if not memory_mib:
        return None  # no device of the type is there; the next one reports its memory
    return CreateDeviceProfile(
        target=ObjectRef(kind=KIND, namespace="", name=name, uid=""),
        memory_mib=memory_mib,
        rates=rates,
        epoch=epoch,
        reason=Reason.MEASURED,
        text=f"devices of type {name} were seen for the first time",
    )


def _set(
    record: DeviceProfileRecord, course: FitState, now: float, epoch: int
) -> SetDeviceModel | None:
    model, fitted = record.model, course.fitted
    if course.model is not None and fitted is not None and course.model.rows:
        model = stored(Fitted(model=course.model, risk=fitted.risk, at_s=fitted.at_s))
    conditions = _conditions(record, course, now)
    if model == record.model and conditions == record.conditions:
        return None
    return SetDeviceModel(
        target=ObjectRef(kind=KIND, namespace="", name=record.name, uid=record.uid),
        generation=record.generation,
        model=model,
        conditions=conditions,
        epoch=epoch,
        reason=Reason.LEARNING_FAILED if course.error else Reason.MEASURED,
        text=course.error or f"the model of {record.name} holds {model.rows if model else 0} rows",
    )


def _conditions(record: DeviceProfileRecord, course: FitState, now: float) -> tuple[Condition, ...]:
    if course.error:
        condition = DesiredCondition(
            ConditionType.DEGRADED, True, Reason.LEARNING_FAILED, course.error
        )
    elif any(condition.type == ConditionType.DEGRADED for condition in record.conditions):
        condition = DesiredCondition(
            ConditionType.DEGRADED, False, Reason.MEASURED, "what is observed is learned"
        )
    else:
        return record.conditions
    return merged(record.conditions, (condition,), float(int(now)), record.generation)


def known_devices(manifests: Path = MANIFESTS) -> Mapping[str, DeviceRates]:
    """Peak rates of known types of device, each with its source, by accelerator key.

    Raises:
        WireError: a manifest is no DeviceProfile.
    """
    listed = json.loads(manifests.read_text(encoding="utf-8"))
    return MappingProxyType({body["metadata"]["name"]: _rates(body) for body in listed["items"]})


def _rates(body: JsonObject) -> DeviceRates:
    spec = read_device_profile_spec(section(body, "spec"))
    annotations = string_map(section(body, "metadata"), "annotations")
    return DeviceRates(
        peak_flops=spec.rates_by_format(),
        memory_bytes_per_s=spec.memory_bytes_per_second,
        sources=tuple((field, annotations[f"{SOURCE}{field}"]) for field in RATES),
    )
