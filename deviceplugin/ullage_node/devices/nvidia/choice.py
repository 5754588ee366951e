# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses how each device is shared, from what was detected; it is not configurable.

Pure. Anything that rules MPS out leaves whole devices and a text with the reason. Source of
versions and limits: NVIDIA's MPS documentation, release 615.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.devices import Backend, GPUMode
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.mps.records import Installed
from ullage_node.mps.versions import NAMESPACES_SINCE, branch_of

OLDEST_DRIVER: Final = 535
"""Oldest supported release branch whose MPS is known here."""
VOLTA: Final = (7, 0)
"""First compute capability whose MPS limits a client's SMs."""
CUDA_WITH_60_CONTEXTS: Final = 13010
CONTEXTS_OLD: Final = 48
CONTEXTS_NEW: Final = 60
CONTEXTS_BEFORE_VOLTA: Final = 16
CONTEXTS_SPARE: Final = 4
"""Contexts kept free: the device refuses a client beyond its limit in the middle of its start."""

WHOLE_PERCENT: Final = 100
MPS_BACKENDS: Final = frozenset({Backend.MPS2, Backend.MPS3})


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The kernel driver: its version, and its CUDA version (13010 = 13.1)."""

    version: str = ""
    cuda: int = 0

    @property
    def branch(self) -> int:
        """Number of the release branch, 0 = unknown."""
        return branch_of(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingChoice:
    """The way of sharing a device; ``problem`` says why it is not MPS, if so."""

    backend: Backend
    problem: str = ""
    context_limit: int = 0

    @property
    def protocol(self) -> int:
        """Protocol of its MPS server, 0 = none."""
        return {Backend.MPS2: 2, Backend.MPS3: 3}.get(self.backend, 0)

    @property
    def contexts(self) -> int:
        """Containers that may share the device."""
        return max(1, self.context_limit - CONTEXTS_SPARE)


def choose(
    device: NvidiaDevice, driver: Driver, installed: Installed | None, why: str
) -> SharingChoice:
    """The best way that device, driver and installation allow.

    Args:
        device: as NVML reports it.
        driver: as NVML reports it.
        installed: the supervisor's finding, ``None`` = it was not reached.
        why: the reason why it was not reached.
    """
    if device.mig:
        return _whole(
            "it is in MIG mode and no MIG device of it is seen: create some (nvidia-smi mig -cgi "
            "PROFILES -C), let them be read (chart value node.mig.enabled), or turn MIG off"
        )
    if device.parent:
        return _whole("")  # expected: MPS inside a MIG device is not used
    if device.prohibited:
        return _whole("its compute mode is PROHIBITED; nvidia-smi -c DEFAULT lets programs in")
    if (0, 0) < device.capability < VOLTA and not device.one_process:
        return SharingChoice(
            backend=Backend.TIME_SLICE,
            problem="it is older than Volta: its tenants take equal turns, no share is enforced",
            context_limit=CONTEXTS_BEFORE_VOLTA,
        )
    against = _against_mps(device, driver, installed, why)
    if against or installed is None:
        return _whole(against)
    three = driver.branch >= NAMESPACES_SINCE and 3 in installed.protocols
    return SharingChoice(
        backend=Backend.MPS3 if three else Backend.MPS2,
        context_limit=CONTEXTS_NEW if driver.cuda >= CUDA_WITH_60_CONTEXTS else CONTEXTS_OLD,
    )


def _against_mps(
    device: NvidiaDevice, driver: Driver, installed: Installed | None, why: str
) -> str:
    if installed is None:
        return why
    if installed.problem:
        return installed.problem
    if device.capability < VOLTA:
        return "its compute capability is older than Volta's, or not known"
    if not device.sm_count:
        return "the driver does not say how many SMs it has, so no share could be proven"
    if driver.branch < OLDEST_DRIVER:
        return f"driver {driver.version} is older than {OLDEST_DRIVER}; update it"
    return installed.rival(device.uuid)


def modes_of(device: NvidiaDevice, choice: SharingChoice) -> tuple[GPUMode, ...]:
    """Modes in which containers may request the device."""
    if device.mig or device.prohibited:
        return ()  # listed, but offers nothing
    if choice.backend is Backend.EXCLUSIVE:
        return (GPUMode.EXCLUSIVE,)
    return (GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL)


def _whole(problem: str) -> SharingChoice:
    return SharingChoice(backend=Backend.EXCLUSIVE, problem=problem)
