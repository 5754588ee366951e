# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of the guard: windows, tenants, requests and reports.

Only frozen records and their readers; no I/O and no clock. All times are CLOCK_MONOTONIC seconds
unless a name says otherwise, so that jumps of the wall clock have no effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.model.devices import ContainerKey

AT_RISK_RATIO: Final = 0.9
"""Above this part of its objective a tenant is at risk."""


class WindowVerdict(StrEnum):
    """Verdict of one window on a tenant's objective."""

    MET = "Met"
    AT_RISK = "AtRisk"
    VIOLATED = "Violated"
    NO_DATA = "NoData"
    """No step or request ended in it, or the figures are implausible: it is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveWindow:
    """One window of one tenant.

    ``ratio`` is the observed step time or latency over the largest allowed one; 0 = no data.
    ``begin_s`` and ``at_s`` are its ends. Microseconds are 0 where not measured; ``step_micros``
    is the mean step or service time, ``solo_micros`` the same alone on the whole device,
    ``latency_micros`` the latency at ``percentile``, ``requests_milli`` the offered load in
    requests per 1,000 s.
    """

    key: ContainerKey
    begin_s: float
    at_s: float
    ratio: float = 0.0
    step_micros: int = 0
    solo_micros: int = 0
    latency_micros: int = 0
    percentile: str = ""
    requests_milli: int = 0

    @property
    def verdict(self) -> WindowVerdict:
        """Verdict on the objective."""
        if not math.isfinite(self.ratio) or self.ratio <= 0:
            return WindowVerdict.NO_DATA
        if self.ratio > 1:
            return WindowVerdict.VIOLATED
        return WindowVerdict.AT_RISK if self.ratio > AT_RISK_RATIO else WindowVerdict.MET

    @property
    def clean_seconds(self) -> float:
        """Seconds that the next window takes after conditions changed.

        That is a window, plus the discarded step under way at the change.
        """
        step = max(self.step_micros, self.latency_micros) / 1e6
        return max(self.at_s - self.begin_s, step) + step


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTenant:
    """One started container, with the data that the guard needs.

    ``protected``: it has an objective that others are paused for, unless it requested alerts only
    (``alert_only``); ``best_effort``: it may be paused. ``gang`` names containers that stall when
    one of them is frozen, "" = alone; ``gang_here`` = all of them run on this node.
    ``freeze_seconds`` is how long it may be frozen before kubelet's probes would kill it.
    """

    key: ContainerKey
    namespace: str
    pod: str
    gpus: tuple[str, ...]
    percent: int
    epoch: int
    priority: int = 0
    protected: bool = False
    probation: bool = False
    alert_only: bool = False
    workload_class: str = ""
    family: str = ""
    max_slowdown_percent: int = 0
    gang: str = ""
    gang_here: bool = True
    freeze_seconds: float = 10.0
    pids: tuple[int, ...] = ()
    leaving: bool = False
    """Its pod is being deleted or its slice left the spec: it must be able to end itself."""

    @property
    def best_effort(self) -> bool:
        """True if it may be paused for others."""
        return not self.protected or self.probation

    @property
    def name(self) -> str:
        """The pod, as ``namespace/name``."""
        return f"{self.namespace}/{self.pod}"


class PauseResult(StrEnum):
    """Results of a pause; label of ``ullage_guard_freezes_total``."""

    CURED = "cured"
    NOT_CURED = "not_cured"
    UNDECIDED = "undecided"
    """The time limit was reached, or a tenant left, before the windows were conclusive."""
    FAILED = "failed"
    """The containers could not be stopped in time; they run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """Stop these containers, all or none, for at most ``limit_seconds``."""

    pause: int
    keys: tuple[ContainerKey, ...]
    limit_seconds: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thaw:
    """Let these containers run again."""

    keys: tuple[ContainerKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """End the tenant's running window here: conditions change."""

    key: ContainerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Report something about a tenant, once."""

    key: ContainerKey
    reason: Reason
    message: str
    warning: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A pause is over: for the counters."""

    result: PauseResult
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseObservation:
    """The same tenant with and without its neighbours, seconds apart."""

    victim: GuardTenant
    neighbours: tuple[GuardTenant, ...]
    """All other tenants of the device before the pause."""
    remaining: tuple[GuardTenant, ...]
    """Those of them that were not paused."""
    beside: ObjectiveWindow
    """Window above the objective, beside all neighbours."""
    without: ObjectiveWindow
    """Window while the others were stopped."""


Action = Freeze | Thaw | Cut | Tell | Ended | PauseObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMark:
    """The guard's addition to a slice's status; ``phase`` ``None`` leaves the phase alone."""

    phase: SlicePhase | None
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTally:
    """Counted windows of a container, those above the objective, and the last latency."""

    windows: int = 0
    violations: int = 0
    latency_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSubject:
    """A tenant whose objective is watched.

    ``max_slowdown_percent`` is the allowed slowdown, ``solo_micros`` its reference step time; 0 =
    unknown, then there is no verdict.
    """

    key: ContainerKey
    max_slowdown_percent: int
    solo_micros: int


class Windows(Protocol):
    """Source of windows: step records, latency histograms."""

    def next(self, subjects: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        """Windows that ended since the last call; state of other containers is dropped."""
        ...

    def cut(self, key: ContainerKey, now: float) -> None:
        """End the running window now and begin a clean one."""
        ...
