# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The records of admission: classes, tenants, observations, forecasts and refusals.

Frozen values only, without formulas and without Kubernetes. ``None`` always means "not measured",
never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ullage.api.reasons import Reason

TOLERANCE: Final = 1e-6
"""Slowdowns closer than this to an objective meet it."""


class Rung(StrEnum):
    """The predicting model, from the plainest to the richest (the model ladder)."""

    UTILISATION_SUM = "utilisation-sum"
    PRIOR = "prior"
    BIAS = "prior+bias"
    GP = "prior+gp"


class Group(StrEnum):
    """Novelty of a co-location; each group is calibrated separately."""

    SEEN_PAIR = "G0"
    """This pair of classes was observed on this accelerator."""
    KNOWN = "G1"
    """Every class has enough rows of its own."""
    NEW_CONFIG = "G2"
    """A class without rows, of a family that has some."""
    NEW_FAMILY = "G3"
    """A family without rows."""
    MANY = "G4"
    """Three or more tenants, where sums of pairs are a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Demand of a class on a whole device without neighbours.

    Fractions of the device's peak (0..1) unless the name says otherwise.
    """

    sm: float | None = None
    """Part of the device's compute that the work keeps busy; absent counts as all of its share."""
    dram: float | None = None
    """Memory bandwidth used."""
    tensor: float | None = None
    """Tensor cores busy."""
    fp32: float | None = None
    """Single precision units busy."""
    fp16: float | None = None
    """Half precision units busy."""
    fp64: float | None = None
    """Double precision units busy."""
    occupancy: float | None = None
    """Warps resident, as a fraction of the maximum."""
    kernel_idle: float | None = None
    """Fraction of a step without a kernel on the device."""
    graph: float | None = None
    """Fraction of the launches that are graphs."""
    duty_cycle: float | None = None
    """Fraction of the time in which the container was active."""
    cpu_cores: float | None = None
    """CPU cores used."""
    power_watts: float | None = None
    """Power of the device."""
    launches_per_s: float | None = None
    """Kernels launched per second."""
    pcie_tx_bytes_per_s: float | None = None
    """Bytes from the device over PCIe per second."""
    pcie_rx_bytes_per_s: float | None = None
    """Bytes to the device over PCIe per second."""
    peak_memory_mib: float | None = None
    """Peak device memory in use."""
    stressor_dram: float | None = None
    """Slowdown beside the DRAM stressor; its siblings for tensor cores and L2."""
    stressor_tensor: float | None = None
    stressor_l2: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurve:
    """Step or service time alone at share p: ``fixed_s + scaled_s / p`` seconds."""

    fixed_s: float
    scaled_s: float

    def seconds(self, share: float) -> float:
        """Time at a share (fraction of the device, 0 < share <= 1)."""
        return self.fixed_s + self.scaled_s / share


def origin_of(workload_class: str) -> str:
    """Owner of a class: the part of its key before the first slash, empty without one."""
    origin, separator, _ = workload_class.partition("/")
    return origin if separator else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProfile:
    """Measurements of one class of work on one accelerator.

    ``rows`` counts its co-location rows there, ``curve`` is ``None`` until a time was measured.
    ``declared`` = fingerprint or curve were declared by users: they are used for the class itself,
    and never to learn about others.
    """

    workload_class: str
    family: str = ""
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    curve: ShareCurve | None = None
    batch: float | None = None
    rows: int = 0
    declared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One workload on a shared device.

    ``utilisation`` is the fraction of the device that it uses alone on the whole of it (0..1],
    ``percent`` its share, ``max_slowdown`` its objective (``None`` = no objective); ``latency`` = a
    latency objective that the queue map converted to a slowdown.
    """

    name: str
    percent: int
    utilisation: float = 1.0
    max_slowdown: float | None = None
    weight: float = 1.0
    latency: bool = False
    probation: bool = False
    profile: ClassProfile | None = None

    def at(self, percent: int) -> Tenant:
        """The tenant with another share."""
        return Tenant(
            name=self.name,
            percent=percent,
            utilisation=self.utilisation,
            max_slowdown=self.max_slowdown,
            weight=self.weight,
            latency=self.latency,
            probation=self.probation,
            profile=self.profile,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason of a refusal, and the figures of the closest miss."""

    reason: Reason
    text: str = ""
    binding: str = ""
    """Tenant whose objective breaks, "" = the device's or the newcomer's own limit."""
    percent: int = 0
    """The share with the closest miss; 0 = none was tried."""
    predicted: float = 0.0
    """Slowdown of the binding tenant at that share."""
    allowed: float = 0.0

    @property
    def excess(self) -> float:
        """Predicted over allowed slowdown; smallest where a margin is only not certified."""
        return max(self.predicted / self.allowed, TOLERANCE) if self.allowed else TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted log slowdown of every tenant of a mixture, in the order of the query.

    ``mean`` and ``sd`` are of log(T with the others / T alone on the whole device); ``rung`` is the
    predicting model, the lowest among the tenants if they differ.
    """

    mean: tuple[float, ...]
    sd: tuple[float, ...]
    group: Group
    rung: Rung
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """Another tenant of the device."""

    workload_class: str
    """Its class of work."""
    percent: int
    """Its percent of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One observation: a class at a share, alone or beside others, on one accelerator.

    ``slowdown`` is against running alone on the whole device. ``counterfactual`` rows come from a
    freeze (with and without the neighbour within seconds) and are the most accurate; ``at_s`` is
    seconds since the epoch. ``max_slowdown`` is the objective at that time (``None`` = none).
    """

    id: str
    workload_class: str
    family: str = ""
    accelerator: str
    percent: int
    partners: tuple[Partner, ...]
    step_s: float
    slowdown: float
    at_s: float
    max_slowdown: float | None = None
    requests_per_s: float | None = None
    counterfactual: bool = False
    probation: bool = False
