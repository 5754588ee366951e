# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which tenants to pause: the guard's rules as a state machine without I/O or a clock.

A tenant above its objective in two of three windows has its best-effort neighbours paused. If that
restores the objective within the next windows, they are the cause: it records this and requests to
move one of them. Otherwise the tenant's own load is the cause: the neighbours run again at once and
none is blamed. It must never pause a container that has an objective, part of a gang, or any
container for longer than its probes allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.guard.pause import HISTORY, VIOLATED, Pause, PauseStage, WatchedTenant, figures
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import (
    Action,
    Cut,
    Ended,
    Freeze,
    GuardTenant,
    ObjectiveWindow,
    PauseObservation,
    PauseResult,
    SliceMark,
    Tell,
    Thaw,
    WindowTally,
    WindowVerdict,
)

DOUBLINGS: Final = 4
_ALERT: Final = "onViolation is Alert, no one is paused for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """Limits of how often and how long the guard may act."""

    cool_down_seconds: float = 60.0
    """Interval between two pauses on one device."""
    pauses_per_hour: int = 20
    """Most pauses on one device in an hour."""
    blame_seconds: float = 300.0
    """Time for which a neighbour found guilty stays marked if it is not moved."""


@dataclass(slots=True)
class _GuardedGpu:
    """State of one device."""

    pauses: deque[float] = field(default_factory=deque)
    pause: Pause | None = None
    cool_until: float = 0.0
    failures: int = 0
    """Consecutive pauses that failed; each doubles the wait for the next."""


class GuardMachine:
    """The guard of one node; every method takes the time and returns the actions to perform."""

    def __init__(self, limits: GuardLimits | None = None) -> None:
        self._limits = limits or GuardLimits()
        self._tenants: dict[ContainerKey, GuardTenant] = {}
        self._watched: dict[ContainerKey, WatchedTenant] = {}
        self._gpus: dict[str, _GuardedGpu] = {}
        self._guilty: dict[ContainerKey, tuple[float, str]] = {}
        self._numbers = 0

    # -- reading ---------------------------------------------------------------------------------

    @property
    def marks(self) -> Mapping[ContainerKey, SliceMark]:
        """The guard's additions to each tenant's status."""
        marks: dict[ContainerKey, SliceMark] = {}
        for key, (_, text) in self._guilty.items():
            marks[key] = SliceMark(phase=None, reason=Reason.INTERFERING, message=text)
        for key, watched in self._watched.items():
            if watched.violating:
                own = watched.self_made
                reason = Reason.SELF_VIOLATING if own else Reason.ABOVE_OBJECTIVE
                marks[key] = SliceMark(
                    phase=SlicePhase.VIOLATING, reason=reason, message=watched.note
                )
        for pause in self._pauses():
            for key in pause.keys if pause.frozen else ():
                mark = marks.get(key) or SliceMark(
                    phase=None, reason=Reason.BEST_EFFORT_PAUSED, message=pause.why
                )
                marks[key] = replace(mark, phase=SlicePhase.FROZEN)
        return marks

    @property
    def tallies(self) -> Mapping[ContainerKey, WindowTally]:
        """The counted windows of each tenant since its container started."""
        return {key: watched.tally for key, watched in self._watched.items()}

    @property
    def frozen(self) -> frozenset[ContainerKey]:
        """Containers that we froze, or are about to freeze."""
        return frozenset(key for pause in self._pauses() for key in pause.keys)

    def _pauses(self) -> list[Pause]:
        """Every pause once: a gang's pause holds several devices."""
        running = (gpu.pause for gpu in self._gpus.values())
        return list({pause.number: pause for pause in running if pause}.values())

    # -- events ----------------------------------------------------------------------------------

    def see(self, tenants: Iterable[GuardTenant], now: float) -> list[Action]:
        """Update the node's tenants; a container that restarts must be omitted once."""
        self._tenants = {tenant.key: tenant for tenant in tenants}
        for gone in self._watched.keys() - self._tenants.keys():
            del self._watched[gone]
        for gone in self._guilty.keys() - self._tenants.keys():
            del self._guilty[gone]
        actions: list[Action] = []
        for pause in self._pauses():
            left = [key for key in pause.keys if key not in self._tenants]
            leaving = any(self._tenants[k].leaving for k in pause.keys if k in self._tenants)
            if left or leaving or pause.victim not in self._tenants:
                result = (
                    PauseResult.CURED if pause.stage is PauseStage.CURED else PauseResult.UNDECIDED
                )
                actions += self._end(pause, result, now)
        return actions

    def window(self, window: ObjectiveWindow, now: float) -> list[Action]:
        """Process one window of one tenant."""
        tenant = self._tenants.get(window.key)
        verdict = window.verdict
        if tenant is None or verdict is WindowVerdict.NO_DATA:
            return []
        watched = self._watched.setdefault(window.key, WatchedTenant())
        watched.count(window)
        for pause in self._pauses():
            if pause.victim == window.key and pause.takes(window):
                return self._judge(pause, watched, window, now)
        watched.remember(window)
        return self._conclude(tenant, watched, window, now)

    def answered(self, number: int, problem: str, now: float) -> list[Action]:
        """Process the freezer's answer: stopped since ``now``, or the problem."""
        for pause in self._pauses():
            if pause.number == number and pause.stage is PauseStage.ASKED:
                if problem:
                    return self._failed(pause, problem, now)
                pause.froze(now)
                text = (
                    f"{pause.why}; {len(pause.keys)} paused for {pause.limit_seconds:.1f} s at most"
                )
                reports = (
                    Tell(key=key, reason=Reason.BEST_EFFORT_PAUSED, message=text)
                    for key in pause.keys
                )
                return [Cut(key=pause.victim), *reports]
        return []

    def lost(self, problem: str, now: float) -> list[Action]:
        """Handle the loss of the freezer, which has thawed all containers, or will."""
        actions: list[Action] = []
        for pause in self._pauses():
            if pause.stage is PauseStage.CURED:
                actions += self._end(pause, PauseResult.CURED, now)
            else:
                actions += self._failed(pause, problem, now)
        return actions

    def tick(self, now: float) -> list[Action]:
        """Process the passage of time."""
        actions: list[Action] = []
        for pause in self._pauses():
            if pause.late(now):
                actions += self._failed(pause, "no answer from the freezer", now)
            elif pause.over(now):
                result = (
                    PauseResult.CURED if pause.stage is PauseStage.CURED else PauseResult.UNDECIDED
                )
                actions += self._end(pause, result, now)
        for key, (until, _) in list(self._guilty.items()):
            if now >= until:
                del self._guilty[key]
        used = {uuid for tenant in self._tenants.values() for uuid in tenant.gpus}
        for uuid, gpu in list(self._gpus.items()):
            newest = max(gpu.pauses, default=-3600.0)
            if uuid not in used and gpu.pause is None and now - newest >= 3600:
                del self._gpus[uuid]
        return actions

    # -- drawing conclusions ---------------------------------------------------------------------

    def _conclude(
        self, tenant: GuardTenant, watched: WatchedTenant, window: ObjectiveWindow, now: float
    ) -> list[Action]:
        violated = watched.violated
        calm = all(recent.verdict is WindowVerdict.MET for recent in watched.recent)
        if violated >= VIOLATED:
            if not watched.violating:
                watched.begun = f"{figures(window)} in {violated} of {len(watched.recent)} windows"
                watched.violating, watched.because = True, ""
            now_above = window.verdict is WindowVerdict.VIOLATED
            return self._brake(tenant, watched, window, now) if now_above else []
        uneasy = (
            sum(recent.verdict is not WindowVerdict.MET for recent in watched.recent) >= VIOLATED
        )
        if uneasy and not watched.at_risk and not watched.violating:
            watched.at_risk = True
            done = (
                "no one is paused for it"
                if tenant.alert_only
                else "neighbours are paused only above it"
            )
            text = f"{figures(window)}; {done}"
            return [Tell(key=tenant.key, reason=Reason.SLO_AT_RISK, message=text)]
        if calm and len(watched.recent) == HISTORY:
            watched.at_risk = False
        return []

    def _brake(
        self, victim: GuardTenant, watched: WatchedTenant, window: ObjectiveWindow, now: float
    ) -> list[Action]:
        """Pause the best-effort neighbours, or note why not."""
        if not victim.protected or victim.probation or len(victim.gpus) != 1:
            return []
        beside = self._beside(victim)
        crowd = frozenset(tenant.key for tenant in beside)
        if watched.self_made and crowd <= watched.crowd:
            return []
        watched.self_made = False
        if not beside:
            return self._own_load(victim, watched, "no one shares its device")
        if victim.alert_only:
            return self._alert(victim, watched)
        gpu = self._gpus.setdefault(victim.gpus[0], _GuardedGpu())
        group, why_not = self._group(beside, window)
        why_not = why_not or self._hold_back(gpu, group, now)
        if why_not:
            watched.because = why_not
            return []
        watched.because = "its best-effort neighbours are paused"
        self._numbers += 1
        pause = Pause(
            number=self._numbers,
            victim=victim.key,
            keys=tuple(tenant.key for tenant in group),
            asked_at=now,
            limit_seconds=min(tenant.freeze_seconds for tenant in group),
            before=window,
            why=f"{victim.name} is at {figures(window)}",
        )
        for uuid in {uuid for tenant in (victim, *group) for uuid in tenant.gpus}:
            self._gpus.setdefault(uuid, _GuardedGpu()).pause = pause
        gpu.pauses.append(now)
        return [
            Freeze(
                pause=pause.number,
                keys=pause.keys,
                limit_seconds=pause.limit_seconds,
                why=pause.why,
            )
        ]

    def _alert(self, victim: GuardTenant, watched: WatchedTenant) -> list[Action]:
        """Report once that the objective is broken; its owner requested only an alert."""
        if watched.because == _ALERT:
            return []
        watched.because = _ALERT
        return [Tell(key=victim.key, reason=Reason.ABOVE_OBJECTIVE, message=watched.note)]

    def _beside(self, victim: GuardTenant) -> list[GuardTenant]:
        others = (tenant for tenant in self._tenants.values() if tenant.key != victim.key)
        return sorted(
            (tenant for tenant in others if victim.gpus[0] in tenant.gpus), key=lambda t: t.key
        )

    def _group(
        self, beside: list[GuardTenant], window: ObjectiveWindow
    ) -> tuple[list[GuardTenant], str]:
        """Chooses what to freeze: best effort, whole gangs only, and for a useful time."""
        chosen: dict[ContainerKey, GuardTenant] = {}
        why_not = "no best-effort neighbour on its device"
        for tenant in beside:
            if not tenant.best_effort or tenant.leaving:
                continue
            members = [tenant]
            if tenant.gang:
                members = [t for t in self._tenants.values() if t.gang == tenant.gang]
            if not all(m.gang_here and m.best_effort and not m.leaving for m in members):
                why_not = f"{tenant.name} is part of a gang that cannot be paused as a whole"
            elif min(m.freeze_seconds for m in members) < window.clean_seconds:
                why_not = f"{tenant.name} may not stand still for as long as one window"
            else:
                chosen |= {member.key: member for member in members}
        return [chosen[key] for key in sorted(chosen)], "" if chosen else why_not

    def _hold_back(self, gpu: _GuardedGpu, group: list[GuardTenant], now: float) -> str:
        """The obstacle to any pause now; empty = none."""
        devices = {uuid for tenant in group for uuid in tenant.gpus}
        busy = any(self._gpus[uuid].pause for uuid in devices if uuid in self._gpus)
        if gpu.pause or busy:
            return "a pause is under way"
        if now < gpu.cool_until:
            return "it is too soon after the last pause"
        while gpu.pauses and now - gpu.pauses[0] >= 3600:
            gpu.pauses.popleft()
        if len(gpu.pauses) >= self._limits.pauses_per_hour:
            return f"no more than {self._limits.pauses_per_hour} pauses an hour"
        return ""

    def _own_load(self, victim: GuardTenant, watched: WatchedTenant, because: str) -> list[Action]:
        watched.self_made = True
        watched.crowd = frozenset(tenant.key for tenant in self._beside(victim))
        watched.because = because
        return [Tell(key=victim.key, reason=Reason.SELF_VIOLATING, message=watched.note)]

    # -- during a pause --------------------------------------------------------------------------

    def _judge(
        self, pause: Pause, watched: WatchedTenant, window: ObjectiveWindow, now: float
    ) -> list[Action]:
        """Judges a clean window of the victim while its neighbours are frozen."""
        if pause.stage is PauseStage.CURED:
            watched.remember(window)
            return []
        if window.verdict is WindowVerdict.VIOLATED:
            pause.bad_windows += 1
            if pause.bad_windows < pause.windows_needed:
                return []
            victim = self._tenants[pause.victim]
            ended = self._end(pause, PauseResult.NOT_CURED, now)
            return ended + self._own_load(victim, watched, "pausing its neighbours did not help")
        pause.stage = PauseStage.CURED
        watched.remember(window)
        return self._convict(pause, window, now)

    def _convict(self, pause: Pause, window: ObjectiveWindow, now: float) -> list[Action]:
        """The neighbours are the cause: record it, and name the one to move."""
        victim = self._tenants[pause.victim]
        frozen = [self._tenants[key] for key in pause.keys]
        local = [tenant for tenant in frozen if victim.gpus[0] in tenant.gpus]
        # The least important tenant is moved first; of equals the larger share, then the newest.
        guilty = min(
            local, key=lambda tenant: (tenant.priority, -tenant.percent, -tenant.epoch, tenant.key)
        )
        text = (
            f"{pause.why}; with {', '.join(tenant.name for tenant in local)} paused at "
            f"{window.ratio:.2f} of it: must leave this device"
        )
        self._guilty[guilty.key] = (now + self._limits.blame_seconds, text)
        beside = self._beside(victim)
        return [
            PauseObservation(
                victim=victim,
                neighbours=tuple(beside),
                remaining=tuple(tenant for tenant in beside if tenant.key not in pause.keys),
                beside=pause.before,
                without=window,
            ),
            Tell(key=guilty.key, reason=Reason.INTERFERING, message=text),
        ]

    def _failed(self, pause: Pause, problem: str, now: float) -> list[Action]:
        report = Tell(
            key=pause.victim,
            reason=Reason.PAUSE_FAILED,
            message=f"{pause.why}; its neighbours could not be paused: {problem}",
        )
        return [*self._end(pause, PauseResult.FAILED, now), report]

    def _end(self, pause: Pause, result: PauseResult, now: float) -> list[Action]:
        """Thaw all containers of the pause; thawing a running one is harmless."""
        for gpu in self._gpus.values():
            if gpu.pause is pause:
                gpu.pause = None
                gpu.failures = gpu.failures + 1 if result is PauseResult.FAILED else 0
                waits = 2 ** min(max(0, gpu.failures - 1), DOUBLINGS)
                gpu.cool_until = now + self._limits.cool_down_seconds * waits
        seconds = now - pause.frozen_at if pause.frozen else 0.0
        actions: list[Action] = [
            Thaw(keys=pause.keys),
            Cut(key=pause.victim),
            Ended(result=result, seconds=seconds),
        ]
        if pause.frozen:
            text = f"after {seconds:.1f} s; {_ENDINGS[result]}"
            actions += [
                Tell(key=key, reason=Reason.BEST_EFFORT_RESUMED, message=text, warning=False)
                for key in pause.keys
                if key in self._tenants
            ]
        return actions


_ENDINGS: Final[Mapping[PauseResult, str]] = {
    PauseResult.CURED: "the neighbour kept its objective meanwhile",
    PauseResult.NOT_CURED: "the neighbour did not get better, its load is its own",
    PauseResult.UNDECIDED: "nothing could be learned in that time",
    PauseResult.FAILED: "the pause did not hold",
}
