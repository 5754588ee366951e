# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds up the device time of every container: held, used, withheld, unmeasured.

Only counters of the node count as use; steps and the time within them are what the container
reports, and are kept apart. Where several containers share a device whose counters are of the whole
device, each is taken to have used all of that, up to its share: the most it can have used, so no
container is called idle because of its neighbours. Pure except for its state.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.slices import ObservedSlice
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage_node.model.devices import ContainerKey
from ullage_node.model.samples import DeviceSample, Metric
from ullage_node.model.slices import LaneReading
from ullage_node.telemetry.tenants import RunningTenant
from ullage_node.times import LOOK_GAP_S, SAMPLE_AGE_MOST_S, USAGE_WINDOW_S

STEPS_LEAST: Final = 5
"""Steps that a window needs for its steps to say anything."""
SLOWDOWN_MOST: Final = 0.02
"""Time that the work may take longer on the share that it needs. Chosen."""
_NO_TURNS: Final = LaneReading()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """The node at one time; ``now`` is CLOCK_MONOTONIC, seconds."""

    now: float
    tenants: tuple[RunningTenant, ...]
    samples: Mapping[str, DeviceSample] = field(default_factory=dict)
    """The newest counters of each device."""
    turns: Mapping[str, LaneReading] = field(default_factory=dict)
    """Readings of lanes, by directory of the container."""


@dataclass(slots=True)
class _Sums:
    """Milliseconds of a whole device; kept as fractions, so that short intervals add up."""

    allocated: float = 0.0
    used: float = 0.0
    withheld: float = 0.0
    unmeasured: float = 0.0

    def add(self, other: _Sums) -> None:
        self.allocated += other.allocated
        self.used += other.used
        self.withheld += other.withheld
        self.unmeasured += other.unmeasured


@dataclass(slots=True)
class _Window:
    """The window under way."""

    since: float
    steps: int = 0
    busy_ns: int = 0
    stopped_s: float = 0.0
    sums: _Sums = field(default_factory=_Sums)
    could_work_s: float = 0.0
    worked_s: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Time by the percentage of a device that the work used in it."""
    memory_mib: int = 0
    kernel_idle_s: float = 0.0
    kernel_seen_s: float = 0.0


@dataclass(slots=True)
class _Account:
    """One container."""

    earlier: ObservedUsage
    """Sums of an earlier agent."""
    at: float
    solo_ns: int
    steps: int
    busy_ns: int
    window: _Window
    used_once: bool = False
    """Its work used a device; until then it loads."""
    sums: _Sums = field(default_factory=_Sums)
    estimated: bool = False
    ended: RecentUsage | None = None
    """The last complete window."""
    recent: RecentUsage | None = None
    """The last two of them; of an earlier agent until there are two."""


class UsageMeter:
    """The device time of the node's containers.

    Args:
        window_s: Length of a window.
    """

    def __init__(self, window_s: float = USAGE_WINDOW_S) -> None:
        self._window_s = window_s
        self._accounts: dict[ContainerKey, _Account] = {}
        self._earlier: dict[ContainerKey, ObservedUsage] = {}

    def restore(self, slices: Iterable[ObservedSlice]) -> None:
        """Take over the sums that an earlier agent reported."""
        for part in slices:
            if part.usage is not None:
                key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
                account = self._accounts.get(key)
                if account is None:
                    self._earlier[key] = part.usage
                else:
                    account.earlier = part.usage
                    account.used_once |= part.usage.used_ms > 0
                    account.recent = account.recent or part.usage.recent

    def take(self, reading: UsageReading) -> None:
        """Add the time since the last reading, about a second."""
        keys = {tenant.key for tenant in reading.tenants}
        self._accounts = {key: held for key, held in self._accounts.items() if key in keys}
        sharers = Counter(gpu for tenant in reading.tenants for gpu in tenant.gpus)
        lanes = Counter(
            (tenant.gpu, tenant.desired.lane) for tenant in reading.tenants if tenant.desired.lane
        )
        for tenant in reading.tenants:
            account = self._accounts.get(tenant.key)
            if account is None:
                self._accounts[tenant.key] = self._opened(tenant, reading.now)
                continue
            residents = lanes[tenant.gpu, tenant.desired.lane] if tenant.desired.lane else 1
            alone = all(sharers[gpu] == 1 for gpu in tenant.gpus)
            self._enter(account, tenant, reading, residents=residents, alone=alone)

    def usage(self, key: ContainerKey) -> ObservedUsage | None:
        """The sums of a container; ``None`` = it is not known."""
        account = self._accounts.get(key)
        if account is None:
            return self._earlier.get(key)
        earlier, sums = account.earlier, account.sums
        allocated = earlier.allocated_ms + int(sums.allocated)
        return ObservedUsage(
            allocated_ms=allocated,
            used_ms=min(allocated, earlier.used_ms + int(sums.used)),
            withheld_ms=earlier.withheld_ms + int(sums.withheld),
            unmeasured_ms=earlier.unmeasured_ms + int(sums.unmeasured),
            estimated=earlier.estimated or account.estimated,
            recent=account.recent,
        )

    def _opened(self, tenant: RunningTenant, now: float) -> _Account:
        earlier = self._earlier.pop(tenant.key, None) or ObservedUsage()
        return _Account(
            earlier=earlier,
            at=now,
            solo_ns=tenant.attachment.solo_time_ns,
            steps=tenant.progress.steps,
            busy_ns=tenant.progress.busy_ns,
            window=_Window(since=now),
            used_once=earlier.used_ms > 0,
            recent=earlier.recent,
        )

    def _enter(
        self,
        account: _Account,
        tenant: RunningTenant,
        reading: UsageReading,
        *,
        residents: int,
        alone: bool,
    ) -> None:
        passed_s = reading.now - account.at
        solo_ns, before_ns = tenant.attachment.solo_time_ns, account.solo_ns
        account.at, account.solo_ns = reading.now, solo_ns
        _count_steps(account, tenant)
        if passed_s <= 0:
            return
        # the residents of a lane hold its share together
        held = tenant.desired.percent / 100 * len(tenant.gpus) * passed_s * 1000 / residents
        window = account.window
        if passed_s > LOOK_GAP_S:  # the agent was stopped: nothing is known of that time
            account.sums.unmeasured += held
            account.window = _Window(since=reading.now)
            return
        used = _used_ms(tenant, reading, solo_ns - before_ns if before_ns else 0, passed_s)
        sums = _Sums()
        if tenant.frozen:
            sums.withheld = held
            window.stopped_s += passed_s
        elif used is None:
            sums.unmeasured = held
        else:
            worked = min(held, used)
            waits = reading.turns.get(tenant.key.directory, _NO_TURNS).wait_percent / 100
            sums.withheld = min(held - worked, held * waits)
            sums.allocated, sums.used = held - sums.withheld, worked
            counted = tenant.attachment.solo_time_ns or not tenant.running
            account.estimated |= not (alone or counted)
        account.sums.add(sums)
        if sums.used and not account.used_once:
            window = _begin_at_first_use(account, since=reading.now - passed_s)
        window.sums.add(sums)
        window.memory_mib = max(window.memory_mib, tenant.attachment.memory_used_mib)
        could_work_s = passed_s * sums.allocated / held
        kernels_s = could_work_s
        if alone and (ratio := _kernel_ratio(tenant, reading)) is not None:
            kernels_s = min(could_work_s, ratio * passed_s)
            window.kernel_idle_s += could_work_s - kernels_s
            window.kernel_seen_s += could_work_s
        window.could_work_s += could_work_s
        if sums.used:
            _count_work(window, tenant, sums.used / len(tenant.gpus) / 1000, kernels_s)
        if reading.now - window.since >= self._window_s:
            ended = _ended(window, reading.now)
            if ended is None:
                account.recent = None
            elif account.ended is not None:
                account.recent = _together(account.ended, ended)
            account.ended = ended
            account.window = _Window(since=reading.now)


def _begin_at_first_use(account: _Account, since: float) -> _Window:
    """Windows from the first use on: what loads before is no evidence of how the work runs."""
    account.used_once, account.ended, account.recent = True, None, None
    account.window = _Window(since=since)
    return account.window


def _count_steps(account: _Account, tenant: RunningTenant) -> None:
    """Add reported steps; counts start from zero with each start of a container."""
    made = tenant.progress
    account.window.steps += max(0, made.steps - account.steps)
    account.window.busy_ns += max(0, made.busy_ns - account.busy_ns)
    account.steps, account.busy_ns = made.steps, made.busy_ns


def _used_ms(
    tenant: RunningTenant, reading: UsageReading, solo_ns: int, passed_s: float
) -> float | None:
    """Milliseconds of whole devices in which its work ran; ``None`` = not measured.

    Args:
        tenant: The container.
        reading: The node.
        solo_ns: Work since the last reading as time alone on the whole device; below 0 = the
            container restarted.
        passed_s: Seconds since then.
    """
    if not tenant.running:
        return 0.0
    if tenant.attachment.solo_time_ns:
        return max(0, solo_ns) / 1e6
    used = 0.0
    for gpu in tenant.gpus:
        sample = reading.samples.get(gpu)
        if sample is None or reading.now - sample.at_s > SAMPLE_AGE_MOST_S:
            return None
        ratio = sample.ratios.get(Metric.SM)
        if ratio is None:
            # without counters of the multiprocessors only "nothing ran at all" is certain
            if sample.busy is None or sample.busy > 0:
                return None
            ratio = 0.0
        used += min(max(ratio, 0.0), tenant.desired.percent / 100) * passed_s * 1000
    return used


def _kernel_ratio(tenant: RunningTenant, reading: UsageReading) -> float | None:
    """Part of the time in which a kernel ran on the device; ``None`` = not measured."""
    sample = reading.samples.get(tenant.gpu)
    if sample is None or reading.now - sample.at_s > SAMPLE_AGE_MOST_S:
        return None
    ratio = sample.ratios.get(Metric.GRAPHICS)
    return None if ratio is None else min(1.0, max(0.0, ratio))


def _count_work(window: _Window, tenant: RunningTenant, used_s: float, kernels_s: float) -> None:
    """Add the time in which kernels ran, by the part of a mean device that they used.

    Kernels that ran for a tenth of a second and used all of the device need all of it, although a
    tenth is the mean of that second.
    """
    share = tenant.desired.percent
    if 100 * used_s >= share * kernels_s:
        percent = share
    else:
        percent = max(1, math.ceil(round(100 * used_s / kernels_s, 6)))
    window.worked_s[percent] += used_s * 100 / percent


def _needed_percent(window: _Window) -> int:
    """Smallest share on which the work would have taken ``SLOWDOWN_MOST`` longer at most.

    Work that used a part u of a device for some time takes u / s of that time on a smaller share s.
    Source: derived.
    """
    most_s = SLOWDOWN_MOST * window.could_work_s
    for share in range(1, max(window.worked_s, default=0)):
        longer = (
            seconds * (percent / share - 1)
            for percent, seconds in window.worked_s.items()
            if percent > share
        )
        if sum(longer) <= most_s:
            return share
    return max(window.worked_s, default=0)


def _ended(window: _Window, now: float) -> RecentUsage | None:
    """The window for the wire; ``None`` = most of it was not measured, so it is no evidence."""
    if window.sums.unmeasured > window.sums.allocated + window.sums.withheld:
        return None
    sums, span_s = window.sums, now - window.since
    seen_s = window.kernel_seen_s
    allocated, could_work_s = int(sums.allocated), max(1.0, span_s - window.stopped_s)
    steps = window.steps >= STEPS_LEAST
    return RecentUsage(
        allocated_ms=allocated,
        used_ms=min(allocated, int(sums.used)),
        withheld_ms=int(sums.withheld),
        needed_percent=_needed_percent(window),
        duty_percent=_percent(window.busy_ns / (could_work_s * 1e9)) if steps else 0,
        kernel_idle_percent=_percent(window.kernel_idle_s / seen_s) if seen_s else 0,
        memory_mib=window.memory_mib,
    )


def _together(first: RecentUsage, second: RecentUsage) -> RecentUsage:
    """Two windows as one; what one of them does not say is not said of both."""
    return RecentUsage(
        allocated_ms=first.allocated_ms + second.allocated_ms,
        used_ms=first.used_ms + second.used_ms,
        withheld_ms=first.withheld_ms + second.withheld_ms,
        needed_percent=max(first.needed_percent, second.needed_percent),
        duty_percent=_larger(first.duty_percent, second.duty_percent),
        kernel_idle_percent=_mean(first.kernel_idle_percent, second.kernel_idle_percent),
        memory_mib=max(first.memory_mib, second.memory_mib),
    )


def _larger(first: int, second: int) -> int:
    return max(first, second) if first and second else 0


def _mean(first: int, second: int) -> int:
    return (first + second + 1) // 2 if first and second else 0


def _percent(fraction: float) -> int:
    """A fraction for the wire, rounded up, so that only nothing at all is 0."""
    return min(100, math.ceil(round(max(0.0, fraction) * 100, 6)))


def metered_slices(slices: Iterable[ObservedSlice], meter: UsageMeter) -> tuple[ObservedSlice, ...]:
    """The same slices with the device time of their containers, once per container."""

    def metered(part: ObservedSlice) -> ObservedSlice:
        if part.key.index:
            return part
        key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
        usage = meter.usage(key)
        return part if usage is None else replace(part, usage=usage)

    return tuple(map(metered, slices))
