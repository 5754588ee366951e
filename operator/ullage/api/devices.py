# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices on the wire: what a node has, in which modes, and what enforces shares there.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.api.readers import JsonObject, WireError, bounded, count_of, section, text, whole


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
class MpsStatus:
    """What a node says of a device's MPS server; ``server_pid`` 0 = none runs."""

    protocol: int
    state: MpsState
    server_pid: int = 0
    contexts: int = 0
    context_limit: int = 0

    def to_wire(self) -> dict[str, object]:
        """The state as the API stores it."""
        return {
            "protocol": self.protocol,
            "state": self.state.value,
            "serverPID": self.server_pid,
            "contexts": self.contexts,
            "contextLimit": self.context_limit,
        }

    @classmethod
    def from_wire(cls, raw: JsonObject) -> MpsStatus:
        """Read the state.

        Raises:
            WireError: a field is missing, of the wrong type, or the state is unknown.
        """
        try:
            state = MpsState(text(raw, "state"))
        except ValueError as error:
            raise WireError(f"mps.state: {error}") from error
        return cls(
            protocol=whole(raw, "protocol"),
            state=state,
            server_pid=count_of(raw, "serverPID"),
            contexts=count_of(raw, "contexts"),
            context_limit=count_of(raw, "contextLimit"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDevice:
    """One entry of ``GPUNode.status.devices``.

    ``model`` is the accelerator key, ``contexts`` the number of containers that may share the
    device at once, ``mps`` the MPS server there (``None`` where there is none).
    """

    uuid: str
    model: str
    product_name: str
    memory_mib: int
    contexts: int
    modes: tuple[GPUMode, ...]
    health: Health
    backend: Backend
    mps: MpsStatus | None = None

    def to_wire(self) -> dict[str, object]:
        """The device as the API stores it."""
        body: dict[str, object] = {
            "uuid": self.uuid,
            "model": self.model,
            "productName": self.product_name,
            "memoryMiB": self.memory_mib,
            "contexts": self.contexts,
            "modes": [mode.value for mode in self.modes],
            "health": self.health.value,
            "backend": self.backend.value,
        }
        return body | ({"mps": self.mps.to_wire()} if self.mps else {})

    @classmethod
    def from_wire(cls, raw: JsonObject) -> ObservedDevice:
        """Read one entry.

        Raises:
            WireError: a field is missing, of the wrong type, or a word is unknown.
        """
        modes = raw.get("modes") or []
        if not isinstance(modes, list):
            raise WireError("modes: expected a list of strings")
        try:
            return cls(
                uuid=text(raw, "uuid"),
                model=text(raw, "model"),
                product_name=text(raw, "productName", ""),
                memory_mib=bounded(raw, "memoryMiB", 0, 2**31 - 1),
                contexts=bounded(raw, "contexts", 0, 2**31 - 1),
                modes=tuple(GPUMode(mode) for mode in modes),
                health=Health(text(raw, "health")),
                backend=Backend(text(raw, "backend")),
                mps=MpsStatus.from_wire(section(raw, "mps")) if raw.get("mps") else None,
            )
        except ValueError as error:
            raise WireError(str(error)) from error
