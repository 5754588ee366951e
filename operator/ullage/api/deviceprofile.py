# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""DeviceProfile: the capabilities of an accelerator type, before any node reports one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import AGE, Column, KindInfo, Resource, condition_column
from ullage.api.rules import (
    ACCELERATOR_NAME,
    DEVICE_MEMORY_POSITIVE,
    PRICE_NOT_NEGATIVE,
    validations,
)
from ullage.api.scalars import decimal_number, memory
from ullage.api.spec import SAYS_NOTHING, Number, Spec, SpecReader, Whole

Rate = Annotated[float, Number(1, 1e18)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakFlops(Spec):
    """Peak operations per second, by number format."""

    fp64: Rate | None = None
    """Double precision."""
    fp32: Rate | None = None
    """Single precision."""
    tf32: Rate | None = None
    """Tensor cores with single precision inputs."""
    fp16: Rate | None = None
    """Half precision."""
    bf16: Rate | None = None
    """Half precision with the range of single precision."""
    fp8: Rate | None = None
    """8-bit floating point."""
    int8: Rate | None = None
    """8-bit integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfileSpec(Spec):
    """Capabilities of the type."""

    memory_mib: Annotated[int, memory(DEVICE_MEMORY_POSITIVE, up=False), Field(alias="memory")]
    """Memory of one device, for example `80Gi`."""
    context_overhead_mib: Annotated[int, Whole(0, 65_536, wide=True)] = 0
    """Device memory in MiB that every container uses beyond its own allocations."""
    peak_flops: PeakFlops | None = None
    """Peak arithmetic rates; with memoryBytesPerSecond, Ullage estimates speeds on this type from
    speeds measured on other types."""
    memory_bytes_per_second: Annotated[Rate, SAYS_NOTHING] = 0.0
    """Memory bandwidth of the device."""
    price_per_hour: Annotated[float, decimal_number(PRICE_NOT_NEGATIVE, digits=6)] | None = None
    """Price of one device per hour in the same currency for every type, a fraction in quotes: 3 or
    "2.48". Recommendations by cost need it."""

    def rates_by_format(self) -> tuple[tuple[str, float], ...]:
        """``peak_flops`` as pairs of number format and rate, sorted."""
        if self.peak_flops is None:
            return ()
        held = (
            (part.name.upper(), getattr(self.peak_flops, part.name)) for part in fields(PeakFlops)
        )
        return tuple(sorted((name, rate) for name, rate in held if rate is not None))


read_device_profile_spec: Final = SpecReader(DeviceProfileSpec)


class DeviceProfile(Resource):
    """An accelerator type; the object's name is its key, as in `spec.accelerators`.

    The key is the product name in lower case, with a dash for every other character.
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
                description="Device memory in MiB that every container uses.",
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
                description="Observations that the model was fitted on.",
            ),
            Column(
                name="Price",
                path=".spec.pricePerHour",
                description="Price of one device per hour.",
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
