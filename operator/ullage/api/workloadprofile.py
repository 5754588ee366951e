# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: what a class of work does to a device when it is alone on it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    KindInfo,
    LongCount,
    Model,
    Percent,
    Resource,
    condition_column,
    list_map,
)
from ullage.api.conditions import Conditions
from ullage.api.gpurequest import Accelerator


class Solo(Model):
    """Behaviour alone on one type of device at one share, as declared."""

    device: Accelerator
    """Accelerator key of the device."""
    share: Percent
    """Percent of the device that the work had."""
    sm_util: Annotated[float, Field(ge=0, le=1)]
    """Part of the device's compute that the work keeps busy, 0 to 1."""
    steps_per_second: Annotated[float, Field(ge=0)] | None = None
    """Steps per second that the work did."""


class WorkloadProfileSpec(Model):
    """Declared values."""

    klass: Annotated[str, Field(min_length=1, max_length=253)]
    """Class of work that the values hold for."""
    solo: Annotated[
        tuple[Solo, ...], Field(max_length=256, json_schema_extra=list_map("device", "share"))
    ] = ()
    """Behaviour alone, per type of device and share; without a row a workload counts as using
    all that it is given."""


class WorkloadProfileStatus(Model):
    """Whether the profile is in use."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """Invalid, when the newest version cannot be used."""


class WorkloadProfile(Resource):
    """How a class of work uses a device when it is alone, so that sharing can be predicted.

    A TrainingJob or InferenceService names it in `spec.profileRef`.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="workloadprofiles",
        singular="workloadprofile",
        short_name="wp",
        namespaced=True,
        columns=(
            Column(name="Class", path=".spec.class", description="Class of work."),
            Column(name="Device", path=".spec.solo[0].device", description="Device, first row."),
            Column(
                name="Share",
                path=".spec.solo[0].share",
                type="integer",
                description="Percent of the device, first row.",
            ),
            Column(
                name="SMUtil",
                path=".spec.solo[0].smUtil",
                type="number",
                description="Part of the device kept busy, first row.",
            ),
            condition_column("Invalid", "Invalid", "Whether the newest version is unusable."),
            AGE,
        ),
    )

    kind: Literal["WorkloadProfile"] = "WorkloadProfile"
    """Kind of the object."""
    spec: WorkloadProfileSpec
    """Declared values."""
    status: WorkloadProfileStatus | None = None
    """Whether the profile is in use."""
