# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices on the wire: what a node has, in which modes, and what enforces shares there.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ullage.api.codec import Wire
from ullage.api.wire_fields import (
    INT32_MAX,
    KEPT,
    NEEDED,
    KeptCount,
    Name,
    Text,
    Whole,
    between,
    known_word,
    words,
)


class GPUMode(StrEnum):
    """How a container asks for a device."""

    EXCLUSIVE = "Exclusive"
    FRACTIONAL = "Fractional"


class Health(StrEnum):
    """Whether a device may be given to someone."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class Backend(StrEnum):
    """What enforces shares on a device."""

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
    """How the MPS server of a device is."""

    STARTING = "Starting"
    ACTIVE = "Active"
    FAULT = "Fault"
    DOWN = "Down"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsStatus(Wire):
    """What a node says of a device's MPS server; ``server_pid`` 0 = none runs."""

    protocol: Annotated[Whole, NEEDED]
    state: Annotated[MpsState, known_word(MpsState), NEEDED]
    server_pid: KeptCount = 0
    contexts: KeptCount = 0
    context_limit: KeptCount = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDevice(Wire):
    """One entry of ``GPUNode.status.devices``.

    ``model`` is the accelerator key, ``contexts`` the number of containers that may share the
    device at once, ``mps`` the MPS server there (``None`` where there is none).
    """

    uuid: Name
    model: Name
    product_name: Annotated[Text, KEPT]
    memory_mib: Annotated[int, between(0, INT32_MAX), NEEDED]
    contexts: Annotated[int, between(0, INT32_MAX), NEEDED]
    modes: Annotated[tuple[GPUMode, ...], words(GPUMode), KEPT]
    health: Annotated[Health, known_word(Health), NEEDED]
    backend: Annotated[Backend, known_word(Backend), NEEDED]
    mps: MpsStatus | None = None
