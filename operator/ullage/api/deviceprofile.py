# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""DeviceProfile: what is known of a type of accelerator before any node reports one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import (
    AGE,
    Column,
    KindInfo,
    LongCount,
    Model,
    Quantity,
    Resource,
    condition_column,
)
from ullage.api.conditions import Conditions
from ullage.api.rules import ACCELERATOR_NAME, DEVICE_MEMORY_POSITIVE, validations


class DeviceProfileSpec(Model):
    """Capabilities of the type."""

    memory: Annotated[Quantity, Field(json_schema_extra=validations(DEVICE_MEMORY_POSITIVE))]
    """Memory of one device, for example `80Gi`."""
    context_overhead_mib: Annotated[int, Field(ge=0, le=65536)] = 0
    """Memory in MiB that every container costs on the device beyond what it allocates."""


class DeviceProfileStatus(Model):
    """Whether the profile is in use."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
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
    """Whether the profile is in use."""
