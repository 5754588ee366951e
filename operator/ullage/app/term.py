# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One leadership: everything that decides and writes under one epoch, and ends with it.

Run once the Lease is held and closed when it is lost. The next leadership of the same process is
another Term: it knows nothing of what this one assumed, queued, was refused or learned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ullage.app.coordinator_service import CoordinatorService
from ullage.app.device_models import ModelTeller
from ullage.app.foreign_pods import ForeignPodReporter
from ullage.app.known_devices import known_devices
from ullage.app.lives import Lives
from ullage.app.loop import DecisionLoop
from ullage.app.replica import Replica
from ullage.app.router_service import RouterService
from ullage.app.times import CATCH_UP_MOST_S, CAUGHT_UP_S, MODELS_WAIT_S, REPORTS_S
from ullage.kube.coordinator_reader import CoordinatorReader
from ullage.kube.coordinators import Coordinators
from ullage.kube.router_reader import RouterReader
from ullage.kube.writer.limits import WriteLimits
from ullage.kube.writer.writer import Writer
from ullage.scheduling.model.plan import DecideSettings


class Term:
    """Decides and writes from ``run`` to ``close``."""

    def __init__(self, replica: Replica) -> None:
        """Nothing is decided or written before ``run``."""
        self._replica = replica
        self.fenced = asyncio.Event()
        """The API refused our epoch: a newer leader writes."""
        self.closed = False
        self._began = 0.0
        self._caught_up = False
        self.writer = self._make_writer()
        self.loop = DecisionLoop(
            state=replica.state,
            writer=self.writer,
            solver=replica.solver,
            trigger=replica.trigger,
            clock=replica.clock,
            may_decide=self._obstacle,
            settings=self._decide_settings,
            outcomes=replica.counters.outcomes,
            stats=replica.counters.loop,
            guard=replica.counters.guard,
        )
        self._lives = Lives(replica, self.writer.submit)
        self._models = ModelTeller(known_devices())
        self._foreign = ForeignPodReporter()
        self._coordinator_service = CoordinatorService(
            CoordinatorReader(),
            replica.state,
            is_leader=replica.is_leader,
            poke=replica.trigger.poke,
        )
        self._router_service = RouterService(
            RouterReader(),
            replica.state,
            clock=replica.clock,
            is_leader=replica.is_leader,
            poke=replica.trigger.poke,
        )

    async def run(self) -> None:
        """Decide and write until cancelled.

        Raises:
            ExceptionGroup: the loop, the writer or the learner failed by itself.
        """
        replica = self._replica
        self._began = replica.clock.monotonic()
        replica.counters.outcomes.look_away()
        replica.learner.wake()
        replica.trigger.poke("leading")

        def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
            tasks.create_task(replica.supervisor.run(name, work))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            tasks.create_task(self.loop.run())
            tasks.create_task(replica.learner.run())
            supervised("models", self._tell_models)
            supervised("leads", self._coordinator_service.run)
            supervised("routers", self._router_service.run)
            supervised("kopf", self._lives.run)
            supervised("unheld", self._lives.tell_unheld)

    async def close(self) -> None:
        """End what ``run`` leaves behind: nothing of this leadership goes on after this."""
        self.closed = True
        self._replica.solver.forget()
        self._replica.learner.forget()
        await self.writer.stop()

    # -- what stands in the way of deciding ------------------------------------------------------

    def _obstacle(self) -> str:
        replica, led_s = self._replica, self._replica.clock.monotonic() - self._began
        if not replica.lease.held:
            return "not-leading"
        if not replica.synced():
            return "not-synced"
        if not self._caught_up and self._behind() and led_s < CATCH_UP_MOST_S:
            return "catching-up"
        self._caught_up = True
        if replica.learner.rebuilding and led_s < MODELS_WAIT_S:
            return "models-to-come"
        return ""

    def _behind(self) -> bool:
        """Whether a stream may not have seen yet what the leader before wrote last."""
        now = self._replica.clock.monotonic()
        return any(
            reflector.streak.worked_s(now) < CAUGHT_UP_S for reflector in self._replica.reflectors
        )

    def _decide_settings(self) -> DecideSettings:
        times = self._replica.settings.decide
        return DecideSettings(
            epoch=self._replica.lease.epoch,
            seed=times.seed,
            reserve_timeout_s=times.reserve_timeout_seconds,
            schedule_timeout_s=times.schedule_timeout_seconds,
            start_timeout_s=times.start_timeout_seconds,
            backpressure_ended_at=self._replica.api_backpressure.since(),
            restart_backoff_s=times.restart_backoff_seconds,
            restart_backoff_max_s=times.restart_backoff_max_seconds,
            preemption_backoff_s=times.preemption_backoff_seconds,
            preemption_backoff_max_s=times.preemption_backoff_max_seconds,
            pre_stop_sleep_s=times.pre_stop_sleep_seconds,
            router_image=times.router_image,
            orders=bool(times.order_image),
        )

    # -- parts -------------------------------------------------------------------------------------

    def _make_writer(self) -> Writer:
        replica, settings = self._replica, self._replica.settings
        return Writer(
            replica.cluster,
            replica.state,
            fence=replica.lease.held_for_write,
            on_result=lambda action, error: self.loop.written(action, error),
            on_lost=self.fenced.set,
            clock=replica.clock,
            limits=WriteLimits(
                per_second=settings.write.per_second,
                in_flight=settings.write.in_flight,
                passing_s=settings.write.passing_seconds,
                pre_stop_sleep_s=settings.decide.pre_stop_sleep_seconds,
                order_image=settings.decide.order_image,
                coordinators=Coordinators(
                    image=settings.decide.lead_image, namespace=settings.lease.namespace
                ),
            ),
            stats=replica.counters.writer,
        )

    async def _tell_models(self) -> None:
        """Write what was learned to the DeviceProfiles, and of foreign pods, until cancelled."""
        replica = self._replica
        while True:
            await asyncio.sleep(REPORTS_S)
            snapshot = replica.leader_snapshot()
            if snapshot is not None:
                now, courses, epoch = (
                    replica.clock.now(),
                    replica.learner.courses,
                    replica.lease.epoch,
                )
                self.writer.submit(self._models.writes(snapshot, courses, now=now, epoch=epoch))
                state = replica.state
                self.writer.submit(self._foreign.report(snapshot, state.foreign_pods(), epoch))
                self.writer.submit(self._foreign.unprepared(state.unprepared_pods(), epoch))
