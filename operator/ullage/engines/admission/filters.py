# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hard limits for a newcomer to one device, with human-readable refusals.

The limits are defined in :mod:`limits`; this module has the records of one device, their figures
and the refusals. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.reasons import Reason
from ullage.engines.admission import limits
from ullage.engines.admission.limits import (
    WHOLE_PERCENT,
    Facts,
    Request,
    memory_of_share_mib,
    with_contexts_mib,
)
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import ClassProfile, Fingerprint, Refusal, Tenant

CONTEXT_RESERVE: Final = 4
"""Contexts of an MPS server that are held in reserve."""
_NAMES: Final = (*(field.name for field in fields(Fingerprint)), "batch", "fixed_s", "scaled_s")
"""Figures of a profile in the order in which they are checked."""
_FIGURES: Final[Callable[[Fingerprint], tuple[float | None, ...]]] = attrgetter(
    *(field.name for field in fields(Fingerprint))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A tenant that is, or will certainly be, on a device.

    ``memory_mib`` ``None`` = in proportion to its share, contexts included; otherwise without
    contexts. ``enforced`` = its limits were verified.
    """

    tenant: Tenant
    memory_mib: int | None = None
    contexts: int = 1
    trust_domain: str = ""
    enforced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A tenant that wants to join and its range of shares; its own percent does not count.

    ``memory_mib`` 0 = no explicit limit: in proportion to the share.
    """

    tenant: Tenant
    min_percent: int
    max_percent: int
    memory_mib: int = 0
    contexts: int = 1
    trust_domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDevice:
    """Facts of one device and its residents.

    Attributes:
        contexts: Contexts that may be open at once (`usable_contexts` of the server's own limit).
        percent_limit: Largest sum of shares.
    """

    uuid: str
    memory_mib: int
    contexts: int
    context_overhead_mib: int
    percent_limit: int = WHOLE_PERCENT
    residents: tuple[Resident, ...] = ()


def usable_contexts(server_limit: int) -> int:
    """Contexts that tenants may open, by the limit of the MPS server."""
    return max(0, server_limit - CONTEXT_RESERVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A newcomer's request as input of the limits."""

    min_percent: int
    max_percent: int
    percent_limit: int
    memory_mib: int
    contexts: int
    count: int = 1
    mode: GPUMode = GPUMode.FRACTIONAL
    exclusive: bool = False
    lonely: bool = False
    suspendable: bool = False
    domain: int = 0
    unmeasured: tuple[int, ...] = ()


def request_for(newcomer: Newcomer, device: CheckedDevice) -> Request:
    """The request of a newcomer to a device, whose limit on the sum of shares counts."""
    return _Request(
        min_percent=newcomer.min_percent,
        max_percent=newcomer.max_percent,
        percent_limit=device.percent_limit,
        memory_mib=newcomer.memory_mib,
        contexts=newcomer.contexts,
    )


def figures_of(device: CheckedDevice, newcomer: Newcomer) -> Facts[int]:
    """The figures of a device with its residents; the newcomer's trust domain is number 0."""
    domain, percent, contexts, memory, loose = 0, 0, 0, 0, 0
    for resident in device.residents:
        percent += resident.tenant.percent
        contexts += resident.contexts
        memory += (
            memory_of_share_mib(device.memory_mib, resident.tenant.percent)
            if resident.memory_mib is None
            else with_contexts_mib(
                resident.memory_mib, resident.contexts, device.context_overhead_mib
            )
        )
        loose += not resident.enforced
        if resident.trust_domain != newcomer.trust_domain:
            domain = limits.MIXED
    return replace(
        limits.EMPTY,
        memory=device.memory_mib,
        overhead=device.context_overhead_mib,
        contexts=device.contexts,
        sharers=len(device.residents),
        contexts_used=contexts,
        domain=domain,
        percent_used=percent,
        memory_used=memory,
        loose=loose,
    )


def first_refusal(newcomer: Newcomer, device: CheckedDevice) -> Refusal | None:
    """The first limit that a newcomer breaks at its minimum share, or ``None``."""
    facts, request = figures_of(device, newcomer), request_for(newcomer, device)
    broken = limits.first_broken(facts, request)
    if broken is None:
        return None
    text = limits.refusal_text(broken, facts, request, _ResidentNames(newcomer, device))
    return Refusal(reason=broken.reason, text=text)


def impossible_objective(tenant: Tenant) -> Refusal | None:
    """The refusal of an objective that cannot be met even alone on a whole device."""
    allowed = tenant.max_slowdown
    if allowed is None or allowed >= 1:
        return None
    return Refusal(
        reason=Reason.SLO_INFEASIBLE,
        text=f"cannot be met even alone: slowdown 1.00x > {allowed:.2f}x",
        binding=tenant.name,
    )


@dataclass(frozen=True, slots=True)
class _ResidentNames:
    """Names for the text of a refusal; see :class:`~ullage.engines.admission.limits.Names`."""

    newcomer: Newcomer
    device: CheckedDevice
    unmeasured: str = ""
    server: str = ""
    node: str = ""

    @property
    def tenants(self) -> str:
        return ", ".join(
            f"{resident.tenant.name} ({resident.tenant.percent} %)"
            for resident in self.device.residents
        )

    @property
    def loose(self) -> str:
        residents = self.device.residents
        return ", ".join(resident.tenant.name for resident in residents if not resident.enforced)

    @property
    def apart(self) -> str:
        domain = self.newcomer.trust_domain
        other = next(
            resident for resident in self.device.residents if resident.trust_domain != domain
        )
        theirs = other.trust_domain or "none"
        return f"{other.tenant.name} is of trust domain {theirs!r}, not {domain or 'none'!r}"


def check_device(device: CheckedDevice) -> None:
    """Reject impossible facts of a device.

    Raises:
        ValueError: naming the figure.
    """
    _whole(device.memory_mib, f"memory of {device.uuid}", 1)
    _whole(device.contexts, f"contexts of {device.uuid}", 0)
    _whole(device.context_overhead_mib, f"context overhead of {device.uuid}", 0)
    _whole(device.percent_limit, f"percent limit of {device.uuid}", 1)
    for resident in device.residents:
        _check_tenant(resident.tenant)
        _share(resident.tenant.percent, resident.tenant.name)
        _whole(resident.contexts, f"contexts of {resident.tenant.name}", 0)
        if resident.memory_mib is not None:
            _whole(resident.memory_mib, f"memory of {resident.tenant.name}", 0)


def check_newcomer(newcomer: Newcomer) -> None:
    """Reject an impossible request.

    Raises:
        ValueError: naming the figure.
    """
    _check_tenant(newcomer.tenant)
    _share(newcomer.min_percent, newcomer.tenant.name)
    _share(newcomer.max_percent, newcomer.tenant.name)
    if newcomer.min_percent > newcomer.max_percent:
        raise ValueError(
            f"{newcomer.tenant.name}: least share {newcomer.min_percent} % is above the most "
            f"{newcomer.max_percent} %"
        )
    _whole(newcomer.memory_mib, f"memory of {newcomer.tenant.name}", 0)
    _whole(newcomer.contexts, f"contexts of {newcomer.tenant.name}", 1)


def check_query(query: AdmissionQuery) -> None:
    """Reject tenants and shares that cannot be predicted.

    Raises:
        ValueError: naming the figure.
    """
    for resident in query.residents:
        _check_tenant(resident)
        _share(resident.percent, resident.name)
    _check_tenant(query.newcomer)
    shares = query.shares
    if not shares:
        raise ValueError(f"{query.newcomer.name}: no share to judge")
    for percent in (shares[0], shares[-1]):
        _share(percent, query.newcomer.name)


def _check_tenant(tenant: Tenant) -> None:
    name = tenant.name
    for figure, value in (("utilisation", tenant.utilisation), ("weight", tenant.weight)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}: {figure} must be a number of at least 0, not {value:g}")
    slo = tenant.max_slowdown
    if slo is not None and not 0 < slo < math.inf:
        raise ValueError(f"{name}: max_slowdown must be a positive number, not {slo:g}")
    if tenant.profile is not None:
        check_profile(tenant.profile)


def check_profile(profile: ClassProfile) -> None:
    """Reject a profile with impossible figures.

    Raises:
        ValueError: naming the class and the figure.
    """
    fingerprint = _FIGURES(profile.fingerprint)
    curve = profile.curve
    figures = (*fingerprint, profile.batch, *((curve.fixed_s, curve.scaled_s) if curve else ()))
    for at, value in enumerate(figures):
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(
                f"class {profile.workload_class}: {_NAMES[at]} must be a number of at least 0, not "
                f"{value:g}; measure the class again"
            )


def _share(percent: int, name: str) -> None:
    if not 1 <= percent <= WHOLE_PERCENT:
        raise ValueError(f"{name}: share {percent} % is outside 1..{WHOLE_PERCENT}")


def _whole(value: int, figure: str, least: int) -> None:
    if value < least:
        raise ValueError(f"{figure} must be at least {least}, not {value}")
