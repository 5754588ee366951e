# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""DeviceProfile: what is known of a type of accelerator before any node reports one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import (
    AGE,
    Column,
    Count,
    KindInfo,
    LongCount,
    Model,
    Quantity,
    Resource,
    Threshold,
    Time,
    Word,
    condition_column,
    list_map,
)
from ullage.api.conditions import Conditions
from ullage.api.rules import ACCELERATOR_NAME, DEVICE_MEMORY_POSITIVE, validations

Rate = Annotated[float, Field(ge=1, le=1e18)]


class PeakFlops(Model):
    """Floating-point operations per second at best, by number format."""

    fp64: Rate | None = None
    """Double precision."""
    fp32: Rate | None = None
    """Single precision."""
    tf32: Rate | None = None
    """Tensor cores on single precision inputs."""
    fp16: Rate | None = None
    """Half precision."""
    bf16: Rate | None = None
    """Half precision with the range of single precision."""
    fp8: Rate | None = None
    """Eight bits."""
    int8: Rate | None = None
    """Whole numbers of eight bits."""


class DeviceProfileSpec(Model):
    """Capabilities of the type."""

    memory: Annotated[Quantity, Field(json_schema_extra=validations(DEVICE_MEMORY_POSITIVE))]
    """Memory of one device, for example `80Gi`."""
    context_overhead_mib: Annotated[int, Field(ge=0, le=65536)] = 0
    """Memory in MiB that every container costs on the device beyond what it allocates."""
    peak_flops: PeakFlops | None = None
    """Peak rates of arithmetic; with memoryBytesPerSecond, speeds measured on other types carry
    over to this one as estimates."""
    memory_bytes_per_second: Rate | None = None
    """Bandwidth of the device's memory."""
    price_per_hour: (
        Annotated[str, Field(max_length=16, pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?$")] | None
    ) = None
    """Price of one device for an hour, as a quoted decimal number; the same currency on every
    type. Recommendations by cost need it."""


class ModelThreshold(Model):
    """Least safety margin of one group of mixtures and one band of objectives."""

    group: Word
    """How new the mixture is: G0 (seen before) to G4 (three or more tenants)."""
    band: Word
    """Band of the tightest objective on the device."""
    threshold: Annotated[Threshold, Field(alias="lambda")]
    """Least margin in standard deviations; Refuse = nothing is admitted."""
    rows: Count
    """Rows that the threshold was chosen from."""
    violations: Count
    """Broken objectives among the rows that it would have admitted."""


class ModelParameter(Model):
    """One fitted figure of the model."""

    name: Word
    """Name of the figure."""
    value: Annotated[float, Field(ge=-1e9, le=1e9)]
    """Its value."""


class LearnedModel(Model):
    """The predictor of slowdowns on this type of device."""

    version: LongCount
    """Grows with every refit."""
    rung: Word
    """Model in force, from utilisation-sum over prior and prior+bias to prior+gp."""
    rows: Count
    """Observations that it was fitted on."""
    knee: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sum of memory demands, as a part of the peak, above which tenants slow down."""
    hyperparameters: Annotated[
        tuple[ModelParameter, ...], Field(max_length=64, json_schema_extra=list_map("name"))
    ] = ()
    """Fitted figures of the model."""
    thresholds: Annotated[
        tuple[ModelThreshold, ...],
        Field(max_length=64, json_schema_extra=list_map("group", "band")),
    ] = ()
    """What the risk budget asks for, per group and band."""
    updated: Time
    """When it was fitted."""


class DeviceProfileStatus(Model):
    """What was learned of the type."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    model: LearnedModel | None = None
    """The predictor of slowdowns on this type of device."""
    conditions: Conditions = ()
    """Invalid, when the newest version cannot be used."""


class DeviceProfile(Resource):
    """A type of accelerator; the object's name is its key, as in `spec.accelerators`.

    The key is the product name in lower case with every other character a dash.
    """

    model_config = ConfigDict(json_schema_extra=validations(ACCELERATOR_NAME))
    info: ClassVar[KindInfo] = KindInfo(
        plural="deviceprofiles",
        singular="deviceprofile",
        short_name="dp",
        namespaced=False,
        columns=(
            Column(name="Memory", path=".spec.memory", description="Memory of one device."),
            Column(
                name="Overhead",
                path=".spec.contextOverheadMiB",
                type="integer",
                description="Memory in MiB that every container costs.",
            ),
            Column(
                name="Model",
                path=".status.model.rung",
                description="Model that predicts slowdowns.",
            ),
            Column(
                name="Samples",
                path=".status.model.rows",
                type="integer",
                description="Observations that it was fitted on.",
            ),
            Column(
                name="Price", path=".spec.pricePerHour", description="Price of one device an hour."
            ),
            condition_column("Invalid", "Invalid", "Whether the newest version is unusable."),
            Column(
                name="Generation",
                path=".metadata.generation",
                type="integer",
                description="Number of changes of the spec.",
            ),
            AGE,
        ),
    )

    kind: Literal["DeviceProfile"] = "DeviceProfile"
    """Kind of the object."""
    spec: DeviceProfileSpec
    """Capabilities of the type."""
    status: DeviceProfileStatus | None = None
    """What was learned of the type."""
