# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The admission decision for a newcomer to a device: its share, and its cost to others.

Hard limits first (:func:`admit`), then the risk of breaking an objective, then worth
(:func:`predict`, for limits that were checked already). Pure and deterministic: same inputs, same
bytes. It must never fit, wait or read the clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.filters import (
    Device,
    Newcomer,
    Resident,
    check_device,
    check_newcomer,
    check_query,
    first_refusal,
    impossible_objective,
    own_memory_mib,
    query_for,
)
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.margin import Margin, margin, nearest
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import Refusal, Tenant
from ullage.engines.admission.verdict import (
    Arrival,
    Basis,
    Verdict,
    Weighed,
    admitted_text,
    outlooks,
    refused,
)

TOLERANCE: Final = 1e-9
"""Values closer than this are equal; then the smaller share wins."""
MOST_ARRIVALS: Final = 4
"""The most frequent classes, for which lost room is priced; the others count as unharmed."""
LOOK_UPS: Final = 1600
"""Pairs of tenants looked up to price room, since a decision has ten milliseconds: on a crowded
device enough for the two most promising shares, with few tenants for all."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A share with its forecast."""

    percent: int
    margin: Margin
    value: float
    combined: float


def admit(device: Device, newcomer: Newcomer, basis: Basis) -> Verdict:
    """Decide whether a newcomer may join a device, and at which share.

    Args:
        device: Facts of the device and all tenants on it.
        newcomer: The newcomer and its range of shares.
        basis: Forecaster, thresholds, settings and the classes that usually arrive.

    Raises:
        ValueError: a figure of the inputs or of the forecast is impossible; the text names it.
    """
    draft, query = _limited(device, newcomer, basis)
    if not draft.admitted:
        return draft
    return _predicted(draft, query, basis, _LostRoom(device, newcomer, basis))


def predict(query: AdmissionQuery, basis: Basis) -> Verdict:
    """Decide by prediction alone, where the hard limits have left these shares.

    Args:
        query: The newcomer, the residents and the shares.
        basis: As for :func:`admit`, without arrivals: placement elsewhere needs the hard limits.

    Raises:
        ValueError: a figure of the inputs or of the forecast is impossible; the text names it.
    """
    check_query(query)
    draft = Verdict(
        device=query.place,
        newcomer=query.newcomer.name,
        percent=0,
        reason=None,
        text="",
    )
    impossible = impossible_objective(query.newcomer)
    if impossible is not None:
        return _ruled_out(draft, impossible)
    return _predicted(draft, query, basis, None)


def confirm(device: Device, newcomer: Newcomer, percent: int, basis: Basis) -> Verdict:
    """Confirm a share that was already granted: hard limits and risk, without worth.

    It may only refuse; an admitted verdict has exactly this share.

    Args:
        device: Facts of the device and all tenants actually on it.
        newcomer: The tenant of the share.
        percent: The share.
        basis: As for :func:`admit`.

    Raises:
        ValueError: a figure of the inputs or of the forecast is impossible; the text names it.
    """
    exact = replace(newcomer, min_percent=percent, max_percent=percent)
    draft, query = _limited(replace(device, steps=()), exact, basis)
    if not draft.admitted:
        return draft
    option = _option(query, percent, basis)
    if not option.margin.passes:
        return refused(draft, (percent, option.margin))
    granted = Weighed(
        percent=percent, value=option.value, gain=0.0, fragmentation=0.0, eviction_risk=0.0
    )
    return _granted(draft, option, (granted,))


def _limited(device: Device, newcomer: Newcomer, basis: Basis) -> tuple[Verdict, AdmissionQuery]:
    """The verdict of the hard limits, and the query that they leave to predict."""
    check_device(device)
    check_newcomer(newcomer, device)
    draft = Verdict(
        device=device.uuid,
        newcomer=newcomer.tenant.name,
        percent=0,
        reason=None,
        text="",
    )
    refusal = first_refusal(newcomer, device)
    query = query_for(newcomer, device)
    if refusal is None and not query.shares:
        refusal = Refusal(
            reason=Reason.PERCENT_LIMIT,
            text=(
                f"no share that {device.accelerator} tells apart lies between "
                f"{newcomer.min_percent} % and {newcomer.max_percent} %"
            ),
        )
    return (draft if refusal is None else _ruled_out(draft, refusal)), query


def _ruled_out(draft: Verdict, refusal: Refusal) -> Verdict:
    return replace(draft, reason=refusal.reason, text=refusal.text, binding=refusal.binding)


def _predicted(
    draft: Verdict, query: AdmissionQuery, basis: Basis, room: _LostRoom | None
) -> Verdict:
    options = [_option(query, percent, basis) for percent in query.shares]
    safe = [option for option in options if option.margin.passes]
    if not safe:
        return refused(draft, nearest([(option.percent, option.margin) for option in options]))
    return _worthwhile(draft, query, basis, room, safe)


def _option(query: AdmissionQuery, percent: int, basis: Basis) -> _Option:
    tenants = query.mixture(percent)
    outcome = _margin(query.accelerator, tenants, basis)
    speeds = [math.exp(-max(mean, 0.0)) for mean in outcome.forecast.mean]
    value = math.fsum(tenant.weight * speed for tenant, speed in zip(tenants, speeds, strict=True))
    return _Option(percent, outcome, value, math.fsum(speeds))


def _margin(accelerator: str, tenants: Sequence[Tenant], basis: Basis) -> Margin:
    forecast = basis.forecaster.forecast(accelerator, tenants)
    return margin(tenants, forecast, basis.thresholds)


def _worthwhile(
    draft: Verdict,
    query: AdmissionQuery,
    basis: Basis,
    room: _LostRoom | None,
    safe: Sequence[_Option],
) -> Verdict:
    """Refuse shares that are not worth it, then weigh the others, the most promising first."""
    present = 0.0
    floor = basis.settings.min_combined_percent / 100 if query.residents else 0.0
    if query.residents:
        forecast = basis.forecaster.forecast(query.accelerator, query.residents)
        present = math.fsum(
            tenant.weight * math.exp(-max(mean, 0.0))
            for tenant, mean in zip(query.residents, forecast.mean, strict=True)
        )
    worth = [
        option
        for option in safe
        if option.value > present + TOLERANCE and option.combined >= floor - TOLERANCE
    ]
    if not worth:
        best = max(safe, key=lambda option: (option.value, -option.percent))
        text = (
            f"at {best.percent} % the tenants together would reach {best.combined:.0%} of a "
            f"device, at least {floor:.0%} is asked"
            if best.combined < floor - TOLERANCE
            else f"at {best.percent} % the tenants together would reach {best.value:.2f}, not "
            f"more than {present:.2f} without {query.newcomer.name}"
        )
        described = outlooks(draft, best.margin)
        return replace(described, reason=Reason.NOT_WORTH_SHARING, text=text)
    weighed = _weigh(worth, room, query.newcomer, basis, present)
    return _granted(draft, weighed[0][1], tuple(option for option, _ in weighed))


def _weigh(
    worth: Sequence[_Option], room: _LostRoom | None, newcomer: Tenant, basis: Basis, present: float
) -> list[tuple[Weighed, _Option]]:
    """The best options, best first; room is priced only where it can change the first two."""
    ceilings = {option.percent: _ceiling(option, newcomer, basis, present) for option in worth}
    weighed: list[tuple[Weighed, _Option]] = []
    promising = sorted(worth, key=lambda option: (-ceilings[option.percent], option.percent))
    for option in promising[: room.affordable if room is not None else None]:
        ceiling = ceilings[option.percent]
        if len(weighed) > 1 and ceiling < weighed[1][0].net - TOLERANCE:
            break  # the price of room is never negative: no later option is better
        gain = option.value - present
        lost = room.lost(option.percent) if room is not None else 0.0
        candidate = Weighed(
            percent=option.percent,
            value=option.value,
            gain=gain,
            fragmentation=basis.settings.fragmentation_weight * lost,
            eviction_risk=gain - ceiling,
        )
        weighed.append((candidate, option))
        weighed.sort(key=lambda pair: (-round(pair[0].net / TOLERANCE), pair[0].percent))
    return weighed


def _ceiling(option: _Option, newcomer: Tenant, basis: Basis, present: float) -> float:
    """Worth before the price of room: an upper bound of the net value."""
    risk = 0.5 * math.erfc(option.margin.z / math.sqrt(2))
    risk *= basis.settings.eviction_weight * newcomer.weight
    return option.value - present - risk


def _granted(draft: Verdict, option: _Option, weighed: tuple[Weighed, ...]) -> Verdict:
    described = outlooks(draft, option.margin)
    return replace(
        described,
        percent=option.percent,
        text=admitted_text(described, option.percent),
        chosen=weighed[0],
        runner_up=weighed[1] if len(weighed) > 1 else None,
    )


class _LostRoom:
    """The room that usual classes lose when a newcomer takes its share of a device."""

    def __init__(self, device: Device, newcomer: Newcomer, basis: Basis) -> None:
        self._device = device
        self._newcomer = newcomer
        self._basis = basis
        self._total = math.fsum(arrival.weight for arrival in basis.arrivals)
        self._before: list[tuple[Arrival, int]] | None = None

    @property
    def affordable(self) -> int:
        """Shares whose room may be priced, at least two."""
        if self._total <= 0:
            return WHOLE_PERCENT
        pairs = (len(self._device.residents) + 2) ** 2
        asked = 2 * min(MOST_ARRIVALS, len(self._basis.arrivals))
        return max(2, LOOK_UPS // (asked * pairs))

    def lost(self, percent: int) -> float:
        """Arrival-weighted share of the classes that fit before and no longer after, 0..1."""
        if self._total <= 0:
            return 0.0
        if self._before is None:
            self._before = list(self._fitting())
        taken = Resident(
            tenant=self._newcomer.tenant.at(percent),
            memory_mib=own_memory_mib(self._newcomer),
            contexts=self._newcomer.contexts,
            trust_domain=self._newcomer.trust_domain,
        )
        after = replace(self._device, residents=(*self._device.residents, taken))
        return math.fsum(
            arrival.weight
            for arrival, share in self._before
            if self._fits(after, arrival.newcomer, first=share) is None
        ) / self._total  # fmt: skip

    def _fitting(self) -> Iterator[tuple[Arrival, int]]:
        usual = sorted(
            self._basis.arrivals,
            key=lambda arrival: (-arrival.weight, arrival.newcomer.tenant.name),
        )
        for arrival in usual[:MOST_ARRIVALS]:
            share = self._fits(self._device, arrival.newcomer, first=0)
            if share is not None:
                yield arrival, share

    def _fits(self, device: Device, newcomer: Newcomer, *, first: int) -> int | None:
        """The share, smallest or largest, at which a class passes limits and risk."""
        if first_refusal(newcomer, device) is not None:
            return None
        query = query_for(newcomer, device)
        shares = query.shares
        tried = {*shares[:1], *shares[-1:]}
        for percent in sorted(tried, key=lambda share: (share != first, share)):
            tenants = query.mixture(percent)
            if _margin(device.accelerator, tenants, self._basis).passes:
                return percent
        return None
