# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the operator together and runs it: reflectors, election, decisions, writer, endpoints.

Order of life: self-test, reflectors, synced, Lease, then kopf, decisions and writer; on SIGTERM
the reverse. A replica that loses its Lease ends, and Kubernetes starts it again as a standby.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from ullage.adapters.clock import SystemClock
from ullage.adapters.credentials import Credentials
from ullage.adapters.election import LeaseTimes
from ullage.adapters.k8s import K8sCluster
from ullage.adapters.lead_reader import LeadReader
from ullage.adapters.leads import Leads
from ullage.adapters.lease import Lease
from ullage.adapters.metrics.collector import (
    OperatorCollector,
    OperatorFigures,
    SectionGuard,
    StreamFigures,
)
from ullage.adapters.metrics.cost import CostFigures
from ullage.adapters.metrics.devices import DeviceFigures
from ullage.adapters.metrics.pools import PoolFigures
from ullage.adapters.metrics.spending import SpendFigures
from ullage.adapters.metrics.tiers import TierFigures
from ullage.adapters.metrics.turns import TurnFigures
from ullage.adapters.reflector import Reflector
from ullage.adapters.writer.writer import WriteLimits, Writer, WriterStats
from ullage.app.calm import Calm, Traffic
from ullage.app.device_models import ModelTeller
from ullage.app.figures.cost import CostSums
from ullage.app.figures.device import device_figures
from ullage.app.figures.party import Parties
from ullage.app.figures.sharing import sharing_figures
from ullage.app.figures.spend import SpendSums
from ullage.app.figures.tier import TierSums
from ullage.app.figures.turn import turn_figures
from ullage.app.foreign_pods import ForeignPodReporter
from ullage.app.health import HealthView
from ullage.app.http import Endpoints
from ullage.app.kopf_shell import KopfThread, Poker, connection_info
from ullage.app.lead_service import LeadService
from ullage.app.learner import Learner
from ullage.app.loop import DecisionLoop
from ullage.app.memory import give_back
from ullage.app.pool_service import Hooks, PoolService
from ullage.app.settings import Settings
from ullage.app.solver import Solver
from ullage.app.supervised import Supervisor
from ullage.app.syllabus import Pace
from ullage.app.trigger import Trigger
from ullage.decide.effects import effect_of
from ullage.decide.model import DecideSettings
from ullage.decide.phases import Phase
from ullage.engines.admission.model import LearnedModel
from ullage.state.cluster.cluster import ClusterState
from ullage.state.records import Snapshot, WorkloadRecord
from ullage.state.streams import STREAMS, WORKLOAD_PROFILES

log = structlog.get_logger("ullage.operator")
LAG_PERIOD_S = 0.5
TELL_EVERY_S = 5.0
MODELS_WAIT_S = 3.0
"""How long the first decisions of a new leader wait for the models of the one before it."""


@dataclass(slots=True)
class Pulse:
    """Measures how late the event loop is, and tells a listener that it has."""

    lag_s: float = 0.0

    async def run(self, beat: Callable[[], object]) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self.lag_s = max(0.0, loop.time() - due)
            beat()


def _stream_figures(reflector: Reflector) -> StreamFigures:
    return StreamFigures(
        name=reflector.stream.name,
        age_s=reflector.last_event_age_s(),
        objects=reflector.objects,
        relists=reflector.relists_total,
        drift=reflector.resync_drift_total,
        errors=reflector.errors_total,
        synced=reflector.synced,
    )


class Operator:
    """One replica."""

    def __init__(self, settings: Settings, cluster: K8sCluster, credentials: Credentials) -> None:
        self._settings = settings
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._lost = ""
        self.clock = SystemClock()
        self.state = ClusterState(effect_of)
        self.trigger = Trigger(
            idle_s=settings.trigger.idle_seconds,
            max_s=settings.trigger.max_seconds,
            resync_s=settings.trigger.resync_seconds,
        )
        poke = self.trigger.poke
        self.reflectors = [
            Reflector(stream, source=cluster, sink=self.state, clock=self.clock, poke=poke)
            for stream in STREAMS
        ]
        self.lease = self._make_lease()
        self.writer_stats = WriterStats()
        self.parties = Parties()
        self.costs = CostSums(began=self.clock.now(), parties=self.parties)
        self.spends = SpendSums(parties=self.parties)
        self.tiers = TierSums()
        self.guard = SectionGuard()
        self.supervisor = Supervisor(self.clock.monotonic)
        self.solver = Solver(settings.decide.deadline_seconds)
        self.writer = self._make_writer()
        self.loop = DecisionLoop(
            state=self.state,
            writer=self.writer,
            solver=self.solver,
            trigger=self.trigger,
            clock=self.clock,
            may_decide=self._obstacle,
            settings=self._decide_settings,
            guard=self.guard,
        )
        self.learner = self._make_learner()
        self.models = ModelTeller()
        self.foreign = ForeignPodReporter()
        self.pools = self._make_pools()
        self.leads = LeadService(
            LeadReader(),
            self.state,
            leads=lambda: self.lease.held and all(r.synced for r in self.reflectors),
            poke=poke,
        )
        self._led_at = 0.0
        self.pulse = Pulse()
        self.calm = Calm(self._traffic, self.clock)
        poker = Poker(loop=asyncio.get_running_loop(), poke=poke)
        self.kopf = KopfThread(poker, lambda: connection_info(credentials))

    def _make_writer(self) -> Writer:
        settings = self._settings
        return Writer(
            self._cluster,
            self.state,
            fence=self.lease.held_for_write,
            on_result=lambda action, error: self.loop.written(action, error),
            on_lost=lambda: self._lose("a newer leader's epoch stands in the API"),
            clock=self.clock,
            limits=WriteLimits(
                per_second=settings.write.per_second,
                in_flight=settings.write.in_flight,
                pre_stop_sleep_s=settings.decide.pre_stop_sleep_seconds,
                order_image=settings.decide.order_image,
                leads=Leads(image=settings.decide.lead_image, namespace=settings.lease.namespace),
            ),
            stats=self.writer_stats,
        )

    async def run(self) -> None:
        """Serve until a signal, or until the Lease is lost."""
        self._handle_signals()
        endpoints = await self._serve()
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self.pulse.run(self.calm.since))]
                running += [tasks.create_task(reflector.run()) for reflector in self.reflectors]
                self.learner.start()  # its imports are done when this replica comes to lead
                await self._synced()
                self.solver.start()
                running += [
                    tasks.create_task(self.learner.run()),
                    tasks.create_task(self.supervisor.run("memory", give_back)),
                    tasks.create_task(self.supervisor.run("models", self._tell_models)),
                    tasks.create_task(self.supervisor.run("pools", self.pools.run)),
                    tasks.create_task(self.supervisor.run("leads", self.leads.run)),
                    tasks.create_task(self.lease.run()),
                    tasks.create_task(self.writer.run()),
                    tasks.create_task(self.loop.run()),
                ]
                await self._stop.wait()
                await self._leave()
                for task in running:
                    task.cancel()
        finally:
            self.solver.close()
            self.learner.close()
            await endpoints.stop()
        log.info("stopped", lost=self._lost)

    def stop(self) -> None:
        """Begin a graceful end."""
        self._stop.set()

    async def _leave(self) -> None:
        """Stop writing first, then let the next replica take over at once."""
        await self.writer.stop()
        await self.kopf.stop()
        if not self._lost:
            await self.lease.release()

    async def _synced(self) -> None:
        """Wait for the first full picture, or for the end."""
        while not all(r.synced for r in self.reflectors) and not self._stop.is_set():
            await asyncio.sleep(0.05)
        if not self._stop.is_set():
            log.info("synced", objects=dict(self.state.counts()))

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _serve(self) -> Endpoints:
        metrics = CollectorRegistry(auto_describe=False)
        metrics.register(OperatorCollector(self.figures, self.guard))
        endpoints = Endpoints(self.health, metrics, lambda: self.loop.last_inputs)
        http = self._settings.http
        await endpoints.start(port=http.port, debug_port=http.debug_port or None)
        return endpoints

    def health(self) -> HealthView:
        """What the probes look at."""
        stats, now = self.loop.stats, self.clock.monotonic()
        failing = {"kopf": str(self.kopf.failure)} if self.kopf.failure else {}
        return HealthView(
            loop_lag_s=self.pulse.lag_s,
            leading=self.lease.held,
            decision_age_s=self._decision_age_s(),
            cycle_age_s=now - stats.last_begun,
            max_age_s=3 * self._settings.trigger.resync_seconds,
            obstacle=stats.obstacle,
            cycles_failing_s=self.loop.streak.own_seconds(now),
            behind={r.stream.name: why for r in self.reflectors if (why := r.problem())},
            stuck={r.stream.name: why for r in self.reflectors if (why := r.stuck())},
            failing_tasks={**failing, **self.supervisor.failing()},
        )

    def _decision_age_s(self) -> float:
        """Seconds since the last decision of this leadership, or since it began; else 0."""
        if not self.lease.held:
            return 0.0
        return self.clock.monotonic() - max(self.loop.stats.last_completed, self._led_at)

    def figures(self) -> OperatorFigures:
        """What the metrics tell, as of now."""
        stats, guard = self.loop.stats, self.guard
        now = self.clock.now()
        picture = self.state.freeze(now)
        workloads = list(picture.workloads.values())
        waiting = [w.status.decision for w in workloads if w.status.phase == Phase.PENDING]
        return OperatorFigures(
            leading=self.lease.held,
            epoch=self.lease.epoch,
            loop_lag_s=self.pulse.lag_s,
            streams=[_stream_figures(reflector) for reflector in self.reflectors],
            decision_seconds=stats.seconds.cumulative(),
            decision_seconds_sum=stats.seconds.sum,
            timeouts=self.solver.timeouts,
            crashes=self.solver.crashes,
            set_aside=self.solver.aside.in_force(),
            faults=self.solver.aside.faults,
            pokes=self.trigger.pokes,
            skipped=stats.skipped,
            failed=stats.failed,
            decision_age_s=self._decision_age_s(),
            actions=stats.actions,
            writes=self.writer_stats.writes,
            task_failures=self.supervisor.failures,
            queue_depth=self.writer_stats.queue_depth,
            fenced=self.writer_stats.fenced,
            assumed=self.state.assumed,
            assume_expired=stats.expired,
            projection_errors=self.state.projection_errors,
            foreign_pods=len(self.state.foreign_pods()),
            workloads=Counter((w.kind.value, w.status.phase or "Pending") for w in workloads),
            waiting=Counter(decision.reason.value for decision in waiting if decision),
            sharing=sharing_figures(
                self.loop.outcomes,
                self.learner,
                profiles=self.state.counts()[WORKLOAD_PROFILES.name],
                unusable=self.loop.last_plan.dropped if self.loop.last_plan else {},
            ),
            cost=guard("cost", lambda: self.costs.figures(workloads, now), CostFigures()),
            spend=guard("spend", lambda: self.spends.figures(workloads), SpendFigures()),
            tiers=guard("tiers", lambda: self.tiers.figures(picture.leads), TierFigures()),
            turns=guard("turns", lambda: self._turns(picture, workloads), TurnFigures()),
            pools=guard("pools", lambda: self.pools.figures(picture), PoolFigures()),
            devices=guard("devices", lambda: self._devices(picture), DeviceFigures()),
        )

    def _turns(self, picture: Snapshot, workloads: Sequence[WorkloadRecord]) -> TurnFigures:
        return turn_figures(
            workloads,
            picture.taken_at,
            self.parties,
            round_s=float(picture.policy.round_seconds),
            preemptions=self.loop.stats.preemptions,
            divisions=self.loop.stats.divisions,
        )

    def _devices(self, picture: Snapshot) -> DeviceFigures:
        return device_figures(picture, self.loop.outcomes.foretold)

    def _make_lease(self) -> Lease:
        times = self._settings.lease
        name = self._settings.identity or socket.gethostname()
        return Lease(
            self._cluster,
            # a restarted container is a new holder: it knows nothing of what was assumed
            identity=f"{name}_{uuid.uuid4().hex[:8]}",
            namespace=times.namespace,
            clock=self.clock,
            highest_epoch=self.state.highest_epoch,
            on_acquired=self._lead,
            on_lost=self._lose,
            times=LeaseTimes(
                duration_s=times.duration_seconds,
                renew_deadline_s=times.renew_deadline_seconds,
                period_s=times.period_seconds,
            ),
        )

    def _lead(self, epoch: int) -> None:
        log.info("leading", epoch=epoch, identity=self.lease.identity)
        self.kopf.start()
        self._led_at = self.clock.monotonic()
        self.learner.wake()
        self.trigger.poke("leading")
        asyncio.get_running_loop().call_later(MODELS_WAIT_S, self.trigger.poke, "leading")

    def _lose(self, reason: str) -> None:
        """Never write again; the process ends and comes back as a standby."""
        if not self._lost:
            log.error("lease lost", reason=reason, epoch=self.lease.epoch)
            self._lost = reason
            self.stop()

    def _obstacle(self) -> str:
        if not self.lease.held:
            return "not-leading"
        if not all(r.synced for r in self.reflectors):
            return "not-synced"
        if self.learner.rebuilding and self.clock.monotonic() - self._led_at < MODELS_WAIT_S:
            return "models-to-come"
        return ""

    def _make_learner(self) -> Learner:
        times = self._settings.learn
        return Learner(
            picture=self._to_learn_from,
            publish=self._publish,
            clock=self.clock,
            pace=Pace(
                every_s=times.every_seconds,
                fit_every_s=times.fit_every_seconds,
                fit_rows=times.fit_rows,
            ),
            deadline_s=times.deadline_seconds,
        )

    def _make_pools(self) -> PoolService:
        hooks = Hooks(
            synced=lambda: all(r.synced for r in self.reflectors),
            epoch=lambda: self.lease.epoch if self.lease.held else None,
            submit=self.writer.submit,
            poke=self.trigger.poke,
        )
        return PoolService(
            self._cluster,
            self.state,
            hooks,
            clock=self.clock,
            settings=self._settings.price,
            namespace=self._settings.lease.namespace,
            environment=os.environ,
        )

    def _to_learn_from(self) -> Snapshot | None:
        """The picture, where this replica leads."""
        if not self.lease.held or not all(r.synced for r in self.reflectors):
            return None
        return self.state.freeze(self.clock.now())

    async def _tell_models(self) -> None:
        """Write what was learned to the DeviceProfiles, and of foreign pods, until cancelled."""
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            snapshot = self._to_learn_from()
            if snapshot is not None:
                now, courses, epoch = self.clock.now(), self.learner.courses, self.lease.epoch
                self.writer.submit(self.models.writes(snapshot, courses, now=now, epoch=epoch))
                foreign = self.state.foreign_pods()
                self.writer.submit(self.foreign.report(snapshot, foreign, epoch))

    def _publish(self, models: Mapping[str, LearnedModel]) -> None:
        self.state.set_models(models)
        self.trigger.poke("model")

    def _traffic(self) -> Traffic:
        return Traffic(
            waiting=self.writer_stats.queue_depth,
            in_flight_most=self._settings.write.in_flight,
            answer_s=self.writer_stats.answer_s,
            answered_at=self.writer_stats.answered_at,
            lease_s=self.lease.look_s,
            loop_lag_s=self.pulse.lag_s,
        )

    def _decide_settings(self) -> DecideSettings:
        times = self._settings.decide
        return DecideSettings(
            epoch=self.lease.epoch,
            seed=times.seed,
            reserve_timeout_s=times.reserve_timeout_seconds,
            schedule_timeout_s=times.schedule_timeout_seconds,
            start_timeout_s=times.start_timeout_seconds,
            calm_since=self.calm.since(),
            restart_backoff_s=times.restart_backoff_seconds,
            pre_stop_sleep_s=times.pre_stop_sleep_seconds,
            orders=bool(times.order_image),
        )
