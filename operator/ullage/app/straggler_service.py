# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells owners of jobs about slow ranks by Events, in a task beside the scheduling loop.

Its memory ends with the process: a new leader emits the Event of a rank that is still slow again
and counts its duration from zero. Until it knows the slow ranks, conditions stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ullage.api.reasons import Standing
from ullage.app.times import STRAGGLER_LOOK_S
from ullage.app.tuning_service import BackgroundHooks
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.straggler import StragglerRecord
from ullage.ports import Clock
from ullage.scheduling.model.plan import Action, Emit
from ullage.scheduling.observation.stragglers import Slowness, look
from ullage.scheduling.times import STRAGGLER_GONE_S


class StragglerService:
    """Looks at the ranks of all jobs."""

    def __init__(self, state: ClusterState, hooks: BackgroundHooks, *, clock: Clock) -> None:
        self._state = state
        self._hooks = hooks
        self._clock = clock
        self._memory: Mapping[str, Slowness] = {}
        self._began: float | None = None
        self._shown: Mapping[str, StragglerRecord] | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(STRAGGLER_LOOK_S)

    def end_term(self) -> None:
        """Forget the Events of this leadership."""
        self._memory, self._began, self._shown = {}, None, None

    def look(self) -> None:
        """Look at all jobs, if this replica leads."""
        epoch = self._hooks.epoch()
        if epoch is None or not self._hooks.synced():
            return
        now = self._clock.now()
        self._memory, news = look(self._state.freeze(now), self._memory, now)
        self._publish(now)
        events: list[Action] = [
            Emit(
                target=each.job.ref,
                warning=Standing.GOOD not in each.reason.standing,
                epoch=epoch,
                reason=each.reason,
                text=each.text,
            )
            for each in news
        ]
        if events:
            self._hooks.submit(events)

    def _publish(self, now: float) -> None:
        """Hand slow ranks to decisions, once they are known, when they change."""
        self._began = now if self._began is None else self._began
        if now - self._began < STRAGGLER_GONE_S:
            return
        shown = {
            uid: slowness.shown
            for uid, slowness in self._memory.items()
            if slowness.shown is not None
        }
        if shown != self._shown:
            self._shown = shown
            self._state.set_stragglers(shown)
            self._hooks.poke("stragglers")
