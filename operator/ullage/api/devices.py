# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices on the wire: what a node has, in which modes, and what enforces shares there.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.wire_fields import (
    INT32,
    INT32_COUNT,
    INT32_MAX,
    INT64,
    KEPT,
    NEEDED,
    OPTIONAL,
    Flag,
    KeptCount,
    Name,
    Schema,
    Text,
    Whole,
    at_most,
    between,
    distinct,
    known_word,
    words,
)

MOST_INDEX: Final = 1023


class GPUMode(StrEnum):
    """How a container asks for a device."""

    EXCLUSIVE = "Exclusive"
    FRACTIONAL = "Fractional"


class Health(StrEnum):
    """Health of a device: an unhealthy one is given to no container."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class Backend(StrEnum):
    """Mechanisms that enforce shares on a device."""

    EXCLUSIVE = "Exclusive"
    """Whole devices only."""
    TIME_SLICE = "TimeSlice"
    """Equal turns of the driver's scheduler; no share is enforced."""
    MPS2 = "MPS2"
    """CUDA MPS, variables of the client under one server."""
    MPS3 = "MPS3"
    """CUDA MPS, one namespace for each slice."""
    EMULATED = "Emulated"
    """CPU cores that stand in for devices."""


class MpsState(StrEnum):
    """State of the MPS server of a device."""

    STARTING = "Starting"
    ACTIVE = "Active"
    FAULT = "Fault"
    DOWN = "Down"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsStatus(Wire):
    """The MPS server of one device."""

    protocol: Annotated[Whole, NEEDED, INT32_COUNT]
    """Version of the control protocol: 2 or 3."""
    state: Annotated[MpsState, known_word(MpsState), NEEDED]
    """State of the server; only an Active server takes new clients."""
    server_pid: Annotated[KeptCount, Schema(minimum=1, maximum=None)] = 0
    """Process id of the server on the host."""
    contexts: Annotated[KeptCount, INT32, Schema(default=0)] = 0
    """Clients attached now."""
    context_limit: Annotated[KeptCount, INT32, Schema(default=0)] = 0
    """Maximum number of clients that the server takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDevice(Wire):
    """One device of the node."""

    uuid: Name
    """UUID of the device."""
    model: Annotated[Name, at_most(63)]
    """Accelerator key, as in spec.accelerators of a workload."""
    product_name: Annotated[Text, KEPT, OPTIONAL, at_most(253)]
    """Product name, as the driver reports it."""
    memory_mib: Annotated[int, between(0, INT32_MAX), NEEDED, INT64]
    """Memory in MiB."""
    contexts: Annotated[int, between(0, INT32_MAX), NEEDED]
    """Maximum number of containers that may share the device at once."""
    modes: Annotated[tuple[GPUMode, ...], words(GPUMode), KEPT, OPTIONAL, distinct(8)]
    """Modes in which workloads may request the device."""
    health: Annotated[Health, known_word(Health), NEEDED]
    """Whether the device may be assigned."""
    backend: Annotated[Backend, known_word(Backend), NEEDED]
    """Backend that enforces shares on the device."""
    mps: MpsStatus | None = None
    """MPS server of the device, if there is one."""
    index: Annotated[int | None, between(0, MOST_INDEX)] = None
    """Index of the device on its node, as nvidia-smi numbers it; of a MIG device its GPU's."""
    suspends: Flag = False
    """Whether the node can suspend programs on the device (`gpu.lane.switching: Checkpoint`)."""
    least_percent: Annotated[int, between(0, 100)] = 0
    """Smallest share of the device that the node can enforce, percent; 0 = any."""
    alone: Flag = False
    """Whether a container can have no other device beside it, as with a MIG device."""
