# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns steady half minutes into rows: each tenant's step time beside its neighbours.

A row is made only from a stretch in which no tenant came, left, restarted, was stopped or changed
its load, after all warm-ups. Unknown values are left out of the row; a neighbour of unknown class
invalidates all rows, since a row without a neighbour would be wrong; so does a lane shared by
several tenants, since they never run concurrently. Pure except for its state: snapshots in, rows
out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.api.observations import MAX_PARTNERS
from ullage_node.model.devices import ContainerKey
from ullage_node.model.samples import Samples
from ullage_node.telemetry.observations import ObservationBook
from ullage_node.telemetry.rows import STEPS_MIN, CounterReading, RowMaker, Stretch
from ullage_node.telemetry.tenants import RunningTenant
from ullage_node.telemetry.windows import HistogramPage
from ullage_node.times import LOOK_GAP_S, STRETCH_CARRIED_S, STRETCH_S, UNREPORTED_WARM_UP_S

WARM_UP_STEPS: Final = 20
LOAD_CHANGE: Final = 0.1
SIGMAS: Final = 2.0
"""Arrivals are random: a change counts only if it also exceeds the Poisson noise."""
BUSY: Final = 0.9
"""A tenant busy for at least this fraction of the time has no external load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """The node at one time; ``now`` is CLOCK_MONOTONIC, ``wall`` seconds since the epoch."""

    now: float
    wall: float
    tenants: tuple[RunningTenant, ...]
    models: Mapping[str, str]
    """Accelerator key of every device."""
    pages: Mapping[ContainerKey, HistogramPage] = field(default_factory=dict)
    images: Mapping[ContainerKey, str] = field(default_factory=dict)


@dataclass(slots=True)
class _TenantTrack:
    """State of one tenant during a stretch."""

    entered_steps: int
    first: CounterReading | None = None
    middle: CounterReading | None = None
    newest: CounterReading | None = None
    first_page: HistogramPage | None = None
    middle_page: HistogramPage | None = None
    newest_page: HistogramPage | None = None
    peak_mib: int = 0

    @property
    def pages(self) -> tuple[HistogramPage, HistogramPage] | None:
        """The pages at start and end of the stretch."""
        if self.first_page is None or self.newest_page is None:
            return None
        return self.first_page, self.newest_page


@dataclass(slots=True)
class _Device:
    """The current stretch of one device."""

    crowd: frozenset[tuple[object, ...]]
    since: float
    seen_at: float
    tracks: dict[ContainerKey, _TenantTrack]


class ObservationLearner:
    """Observes every device and offers rows to the book."""

    def __init__(self, node: str, book: ObservationBook, samples: Samples) -> None:
        self._book = book
        self._maker = RowMaker(node, samples)
        self._devices: dict[str, _Device] = {}
        self._first_seen: dict[ContainerKey, float] = {}
        self.stretches: int = 0
        """Completed steady stretches."""

    def take(self, look: NodeSnapshot) -> None:
        """Process one snapshot of the node, about once a second."""
        running = [tenant for tenant in look.tenants if tenant.running]
        keys = {tenant.key for tenant in running}
        self._first_seen = {key: self._first_seen.get(key, look.now) for key in keys}
        gpus = {gpu for tenant in running for gpu in tenant.gpus}
        self._devices = {gpu: device for gpu, device in self._devices.items() if gpu in gpus}
        for gpu in sorted(gpus):
            self._advance(gpu, [tenant for tenant in running if gpu in tenant.gpus], look)

    def _advance(self, gpu: str, tenants: list[RunningTenant], look: NodeSnapshot) -> None:
        device = self._devices.get(gpu)
        crowd = frozenset(_mark(tenant) for tenant in tenants)
        if not all(self._fit(tenant, look) for tenant in tenants):
            self._devices.pop(gpu, None)
            return
        if (
            device is None
            or device.crowd != crowd
            or not 0 <= look.now - device.seen_at <= LOOK_GAP_S
            or _restarted(device, tenants, look.now)
        ):
            self._devices[gpu] = _begin(crowd, tenants, look.now)
            device = self._devices[gpu]
        device.seen_at = look.now
        middle = look.now - device.since >= STRETCH_S / 2
        for tenant in tenants:
            _follow(device, device.tracks[tenant.key], tenant, look, middle=middle)
        if look.now - device.since >= STRETCH_S:
            self._conclude(gpu, device, tenants, look)
            self._devices[gpu] = _go_on(device, tenants, look.now)

    def _fit(self, tenant: RunningTenant, look: NodeSnapshot) -> bool:
        """True if a tenant is past its warm-up and not frozen."""
        if tenant.frozen:
            return False
        if tenant.progress.steps:
            return tenant.progress.steps >= WARM_UP_STEPS
        return look.now - self._first_seen[tenant.key] >= UNREPORTED_WARM_UP_S

    def _conclude(
        self, gpu: str, device: _Device, tenants: list[RunningTenant], look: NodeSnapshot
    ) -> None:
        known = all(tenant.desired.workload_class for tenant in tenants)
        if not known or len(tenants) > MAX_PARTNERS + 1 or gpu not in look.models:
            return
        if _take_turns(tenants):
            return
        if any(_load_changed(device.tracks[tenant.key]) for tenant in tenants):
            return
        self.stretches += 1
        for tenant in tenants:
            if tenant.gpu != gpu:
                continue  # of several devices the first one counts
            track = device.tracks[tenant.key]
            stretch = Stretch(
                tenant=tenant,
                others=tuple(other for other in tenants if other is not tenant),
                accelerator=look.models[gpu],
                since=device.since,
                now=look.now,
                at_s=max(int(look.wall), 0),
                image=look.images.get(tenant.key, ""),
                peak_mib=track.peak_mib,
                first=track.first,
                last=track.newest,
                pages=track.pages,
            )
            row = self._maker.row(stretch)
            if row is not None:
                self._book.offer(row)


def _take_turns(tenants: list[RunningTenant]) -> bool:
    """True if two tenants are in one lane of the device."""
    lanes = [tenant.desired.lane for tenant in tenants if tenant.desired.lane]
    return len(lanes) > len(set(lanes))


def _mark(tenant: RunningTenant) -> tuple[object, ...]:
    """Properties whose change makes a tenant a different neighbour."""
    part = tenant.desired
    return (
        tenant.key,
        part.workload_class,
        part.percent,
        part.probation,
        part.max_slowdown_percent,
    )


def _begin(
    crowd: frozenset[tuple[object, ...]], tenants: list[RunningTenant], now: float
) -> _Device:
    """Start a stretch under new conditions: the step under way began under the old ones."""
    tracks = {tenant.key: _TenantTrack(entered_steps=tenant.progress.steps) for tenant in tenants}
    return _Device(crowd=crowd, since=now, seen_at=now, tracks=tracks)


def _go_on(device: _Device, tenants: list[RunningTenant], now: float) -> _Device:
    """Start the next stretch under the same conditions."""
    begun = _begin(device.crowd, tenants, now)
    for tenant in tenants:
        before, track = device.tracks[tenant.key], begun.tracks[tenant.key]
        track.first = track.newest = CounterReading.of(tenant, now)
        if before.first is not None and _too_few(before.first, track.newest):
            track.first = before.first  # long steps need more than one stretch
        track.first_page = before.newest_page or before.first_page
    return begun


def _too_few(first: CounterReading, newest: CounterReading) -> bool:
    """True if steps are too long for one stretch and counting continues."""
    few = newest.steps - first.steps < STEPS_MIN
    return few and newest.at_s - first.at_s < STRETCH_CARRIED_S


def _restarted(device: _Device, tenants: list[RunningTenant], now: float) -> bool:
    for tenant in tenants:
        newest = device.tracks[tenant.key].newest
        if newest is not None and newest.restarted_by(CounterReading.of(tenant, now)):
            return True
    return False


def _follow(
    device: _Device, track: _TenantTrack, tenant: RunningTenant, look: NodeSnapshot, *, middle: bool
) -> None:
    """Record a tenant's counters and pages."""
    reading = CounterReading.of(tenant, look.now)
    track.newest = reading
    track.peak_mib = max(track.peak_mib, tenant.attachment.memory_used_mib)
    if track.first is None and (reading.steps > track.entered_steps or not reading.steps):
        track.first = reading
    if middle and track.middle is None:
        track.middle = reading
    page = look.pages.get(tenant.key)
    if page is not None:
        _follow_page(track, page, device.since, middle=middle)


def _follow_page(track: _TenantTrack, page: HistogramPage, since: float, *, middle: bool) -> None:
    if track.first_page is None:
        # A page from before the stretch was counted under other conditions.
        track.first_page = page if page.at_s >= since else None
    elif page.at_s > (track.newest_page or track.first_page).at_s:
        track.newest_page = page
        if middle and track.middle_page is None:
            track.middle_page = page


def _load_changed(track: _TenantTrack) -> bool:
    """True if a tenant's offered load differs between the two halves."""
    first, half, last = track.first_page, track.middle_page, track.newest_page
    if first is not None and half is not None and last is not None:
        one_half = half.histogram.since(first.histogram)
        other_half = last.histogram.since(half.histogram)
        if one_half is None or other_half is None:
            return True  # the server restarted
        return _differs(
            (one_half.requests, half.at_s - first.at_s),
            (other_half.requests, last.at_s - half.at_s),
        )
    return _pace_changed(track)


def _pace_changed(track: _TenantTrack) -> bool:
    """True if the rate of a server without a histogram differs between the two halves."""
    first, middle, newest = track.first, track.middle, track.newest
    if (
        first is None
        or middle is None
        or newest is None
        or not first.at_s < middle.at_s < newest.at_s
    ):
        return False
    busy = (newest.busy_ns - first.busy_ns) / ((newest.at_s - first.at_s) * 1e9)
    if not newest.busy_ns or busy >= BUSY:
        return False
    return _differs(
        (middle.steps - first.steps, middle.at_s - first.at_s),
        (newest.steps - middle.steps, newest.at_s - middle.at_s),
    )


def _differs(former: tuple[float, float], latter: tuple[float, float]) -> bool:
    """True if two counts over two spans have different rates."""
    (first, first_s), (second, second_s) = former, latter
    if first_s <= 0 or second_s <= 0 or first + second <= 0:
        return False
    rates = first / first_s, second / second_s
    mean = (first + second) / (first_s + second_s)
    chance = SIGMAS * math.sqrt(mean / first_s + mean / second_s)
    return abs(rates[0] - rates[1]) > max(LOAD_CHANGE * mean, chance)
