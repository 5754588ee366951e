# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One leadership: everything that decides and writes under one epoch, and ends with it.

Run once the Lease is held and closed when it is lost. The next leadership of the same process is
another Term, without this one's assumptions, queue, refusals or learned data.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import kopf

from ullage.app.coordinator_service import CoordinatorService
from ullage.app.device_models import ModelTeller, known_devices
from ullage.app.efficiency_reports import EfficiencyReports
from ullage.app.foreign_pods import ForeignPodReporter
from ullage.app.loop import DecisionLoop
from ullage.app.replica import Replica
from ullage.app.router_service import RouterService
from ullage.app.times import CATCH_UP_MOST_S, CAUGHT_UP_S, MODELS_WAIT_S, REPORTS_S
from ullage.handlers import ends, pools
from ullage.handlers.ends import LeaderContext
from ullage.handlers.frame import Bridge
from ullage.handlers.kinds import LIVES
from ullage.handlers.pools import PoolScaling
from ullage.kube.coordinator_reader import CoordinatorReader
from ullage.kube.coordinators import Coordinators
from ullage.kube.router_reader import RouterReader
from ullage.kube.writer.limits import WriteLimits
from ullage.kube.writer.writer import Writer
from ullage.ports import JsonObject, JsonPatch, Kind, Unavailable
from ullage.prices.asked import Prices
from ullage.prices.fetcher import Fetcher
from ullage.prices.source import Where
from ullage.scheduling.model.plan import Action, DecideSettings


class Term:
    """Decides and writes from ``run`` to ``close``."""

    def __init__(self, replica: Replica) -> None:
        """Nothing is decided or written before ``run``."""
        self._replica = replica
        self.fenced = asyncio.Event()
        """The API rejected our epoch: a newer leader writes."""
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
        self._efficiency = EfficiencyReports(
            replica.cluster,
            snapshot=replica.leader_snapshot,
            may_write=replica.lease.held_for_write,
            now=replica.clock.now,
        )
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
            ExceptionGroup: the loop, the writer or the learner failed.
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
            supervised("models", self._write_reports)
            supervised("leads", self._coordinator_service.run)
            supervised("efficiency", self._efficiency.run)
            supervised("routers", self._router_service.run)
            supervised("kopf", self._lives.run)
            supervised("unheld", self._lives.tell_unheld)

    async def close(self) -> None:
        """Stop what ``run`` leaves behind: nothing of this leadership continues after this."""
        self.closed = True
        self._replica.solver.forget()
        self._replica.learner.forget()
        await self.writer.stop()

    # -- obstacles to decisions ------------------------------------------------------------------

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
        """True while a stream may have missed the last writes of the previous leader."""
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
            reserve_first=times.reserve_first,
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

    async def _write_reports(self) -> None:
        """Write models to DeviceProfiles, and Events about foreign pods, until cancelled."""
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


class Lives:
    """kopf for the duration of a leadership: its handlers, its patches, the fence."""

    def __init__(self, replica: Replica, submit: Callable[[Sequence[Action]], None]) -> None:
        """``submit`` queues writes."""
        self._replica = replica
        self._leader = LeaderContext(
            state=replica.state,
            pool_watch=replica.pool_watch,
            clock=replica.clock,
            epoch=lambda: replica.lease.epoch,
            submit=submit,
            poke=replica.trigger.poke,
        )
        state, clock, settings = replica.state, replica.clock, replica.settings.price
        self._fetcher = Fetcher(
            replica.cluster,
            environment=os.environ,
            file_root=settings.file_root,
            timeout_s=settings.timeout_seconds,
            now=clock.now,
        )
        prices = Prices(
            self._fetcher,
            lambda: state.pools_written().values(),
            clock=clock,
            where=Where(namespace=replica.settings.lease.namespace, file_root=settings.file_root),
            period_s=settings.period_seconds,
            answers=replica.counters.price_answers,
        )
        self._scaling = PoolScaling(self._leader, prices)

    async def run(self) -> None:
        """Handle until cancelled.

        Raises:
            RuntimeError: kopf ended by itself.
        """
        try:
            await self._replica.frame.run(self._send, self._register)
        finally:
            await self._fetcher.close()

    async def tell_unheld(self) -> None:
        """Send Events to owners of objects that end in any order, until cancelled."""
        await ends.tell_unheld(self._leader, self._replica.mirror)

    def _register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        for life in LIVES:
            ends.register(registry, bridge, life, self._leader)
        pools.register(registry, bridge, self._scaling)

    async def _send(self, kind: Kind, namespace: str, name: str, patch: JsonPatch) -> JsonObject:
        """Patch our finalizers, while the Lease is held.

        Raises:
            ApiError: it is not, or the API server refuses.
        """
        if not self._replica.lease.held_for_write():
            raise Unavailable(503, "this replica does not lead")
        return await self._replica.cluster.json_patch(kind, name, patch, namespace=namespace)
