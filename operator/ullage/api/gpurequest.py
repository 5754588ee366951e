# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How a workload requests devices: whole ones, or a share of one."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from ullage.api.base import ACCELERATOR_PATTERN, SET, Model, Percent, Quantity
from ullage.api.contract import GPUMode
from ullage.api.rules import (
    ACCELERATOR_KEY,
    LANE_MEMORY_POSITIVE,
    MEMORY_POSITIVE,
    ONE_FRACTION,
    OWN_TRUST_DOMAIN,
    SHARE_ORDER,
    SHARE_WITH_FRACTIONAL,
    validations,
)
from ullage.api.words import Switching

Accelerator = Annotated[
    str,
    Field(
        max_length=63,
        pattern=ACCELERATOR_PATTERN,
        json_schema_extra=validations(ACCELERATOR_KEY),
    ),
]
Accelerators = Annotated[tuple[Accelerator, ...], Field(max_length=16, json_schema_extra=SET)]
_DOMAIN: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DomainName = Annotated[str, Field(max_length=63, pattern=_DOMAIN)]
"""A trust domain, where the administrator grants it."""
TrustDomain = Annotated[
    str,
    Field(
        max_length=63,
        pattern=_DOMAIN,
        json_schema_extra=validations(OWN_TRUST_DOMAIN),
    ),
]
"""Absent means ``namespace/<namespace>``; the pattern forbids the slash, so that no one can type
another namespace's."""


class GPUShare(Model):
    """Part of a device, as a range: the least that the container needs, the most it can use."""

    model_config = ConfigDict(json_schema_extra=validations(SHARE_ORDER))

    min_percent: Percent
    """Minimum percent of the device's compute; the workload waits until it is available."""
    max_percent: Percent = 100
    """Maximum percent that the container can use. The decision grants the largest whole percent in
    between that fits the device and its neighbours."""


class GPUMemory(Model):
    """Device memory that the container may allocate."""

    limit: Annotated[Quantity, Field(json_schema_extra=validations(MEMORY_POSITIVE))]
    """Memory that the container may allocate, without the overhead of its context; for example
    `8Gi`."""


LaneQuantity = Annotated[Quantity, Field(json_schema_extra=validations(LANE_MEMORY_POSITIVE))]


class GPULane(Model):
    """Memory of a container that takes turns with others at the boundaries of its steps."""

    persistent: LaneQuantity
    """Memory that stays between two steps: model, optimizer state, framework; for example
    `4Gi`."""
    ephemeral: LaneQuantity
    """Peak of one step above `persistent`, with the largest batch: activations and scratch. The
    container may allocate the sum of both."""
    switching: Switching = Switching.COOPERATIVE
    """Whether the memory that stays may leave the device. `Cooperative`: never. `Checkpoint`: the
    node suspends the container while it does nothing and others need its memory, and resumes it at
    its next step, so that more programs share a device than it has memory for. Only devices whose
    node says so take it (`suspends` in the status of the GPUNode). Either way the program says
    itself where a step begins and ends (`ullage_run.lanes`)."""


class GPURequest(Model):
    """Devices of one replica."""

    model_config = ConfigDict(json_schema_extra=validations(SHARE_WITH_FRACTIONAL, ONE_FRACTION))

    mode: GPUMode = GPUMode.EXCLUSIVE
    """`Exclusive` gives whole devices, `Fractional` a share of one device."""
    count: Annotated[int, Field(ge=1, le=16, json_schema_extra={"format": "int32"})] = 1
    """Number of devices of each replica; 1 with mode Fractional."""
    share: GPUShare | None = None
    """The share to give; needed with mode Fractional, refused with Exclusive."""
    memory: GPUMemory | None = None
    """Device memory; without it a share gets memory in proportion to its percent."""
    lane: GPULane | None = None
    """The container shares a lane: it takes turns with others of its device, step by step. Only
    with mode Fractional, and instead of `memory`."""
