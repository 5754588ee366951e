# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Assembles the operator and runs it: self-test, reflectors, election, leaderships, endpoints.

The process runs until SIGTERM. It waits for an unavailable API server and rechecks missing rights.
A lost Lease ends only the leadership: the replica stands by and leads again as a new holder. On
SIGTERM it releases its Lease.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from ullage.app.api_backpressure import ApiBackpressure, Traffic
from ullage.app.complaints import Complaints
from ullage.app.effects import effect_of
from ullage.app.fit_schedule import Pace
from ullage.app.health import HealthView
from ullage.app.http import LOOPBACK, Endpoints
from ullage.app.learner import Learner, own_process
from ullage.app.memory import give_back
from ullage.app.operator_figures import ReplicaFigures
from ullage.app.replica import Counters, Replica
from ullage.app.settings import Settings
from ullage.app.solver import Solver
from ullage.app.straggler_service import StragglerService
from ullage.app.suggestions import SuggestionService
from ullage.app.term import Term
from ullage.app.times import FENCED_FIRST_S, FENCED_MOST_S, LOOP_LAG_PERIOD_S, SELF_TEST_AGAIN_S
from ullage.app.trace_service import TraceService
from ullage.app.trigger import Trigger
from ullage.app.tuning_service import BackgroundHooks, TuningService
from ullage.app.web_page import WebPage
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import STREAMS
from ullage.engines.admission.model import LearnedModel
from ullage.handlers.admission import AdmissionAdvice, refuse
from ullage.handlers.frame import STUCK, KopfFrame
from ullage.handlers.kinds import FOLLOWED, KINDS
from ullage.handlers.mirror import Mirror
from ullage.handlers.pool_watch import PoolWatch
from ullage.kube.backoff import Backoff
from ullage.kube.client import K8sCluster
from ullage.kube.clock import SystemClock
from ullage.kube.election import LeaseTimes
from ullage.kube.lease import Lease
from ullage.kube.reflector import Reflector
from ullage.kube.reviews import reviews
from ullage.kube.self_test import SelfTestFailed, run_self_test
from ullage.metrics.collector import OperatorCollector
from ullage.ports import ApiError, Clock
from ullage.process.build_metrics import register_build
from ullage.process.faults import fault_text
from ullage.process.secure_metrics import SecureMetrics
from ullage.process.supervised import TaskSupervisor
from ullage.process.token_access import TokenAccess

log = structlog.get_logger("ullage.operator")


@dataclass(slots=True)
class Pulse:
    """Measures the lag of the event loop; a listener is called after each measurement."""

    lag_s: float = 0.0

    async def run(self, beat: Callable[[], object]) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            self.lag_s = max(0.0, loop.time() - due)
            beat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Dependencies of an operator; tests inject their own.

    Attributes:
        clock: Time.
        solver: Creates the solver, from the deadline of a decision in seconds.
        learner: Creates the learning process.
        frame: Creates kopf's frame, from the mirror that it lists and watches.
    """

    clock: Clock = field(default_factory=SystemClock)
    solver: Callable[[float], Solver] = Solver
    learner: Callable[[], Executor] = own_process
    frame: Callable[[Mirror], KopfFrame] = KopfFrame


class Operator:
    """One replica."""

    def __init__(
        self,
        settings: Settings,
        cluster: K8sCluster,
        surroundings: Surroundings | None = None,
    ) -> None:
        """No request is sent before ``run`` or ``work``."""
        around = surroundings or Surroundings()
        self._settings = settings
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._tested = asyncio.Event()
        self._untested = "not made yet"
        self._fenced_pauses = Backoff(first_s=FENCED_FIRST_S, max_s=FENCED_MOST_S)
        self.pulse = Pulse()
        self.replica = self._make_replica(around)
        self.trigger, self.lease = self.replica.trigger, self.replica.lease
        self.term = Term(self.replica)
        hooks = BackgroundHooks(
            synced=self.replica.synced,
            epoch=self.replica.epoch,
            submit=lambda actions: self.term.writer.submit(actions),
            poke=self.trigger.poke,
        )
        self.tunings = TuningService(self.replica.state, hooks, clock=self.replica.clock)
        self.traces = TraceService(self.replica.state, hooks, clock=self.replica.clock)
        self.stragglers = StragglerService(self.replica.state, hooks, clock=self.replica.clock)
        self.suggestions = SuggestionService(
            requests=self.tunings.wanted,
            publish=self.tunings.suggested,
            clock=self.replica.clock,
        )
        self.figures = ReplicaFigures(
            self.replica,
            term=lambda: self.term,
            loop_lag_s=lambda: self.pulse.lag_s,
            suggestions=self.suggestions.figures,
            traces=self.traces.figures,
        )
        self.endpoints = self._make_endpoints()

    async def run(self) -> None:
        """Serve and work until a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        http = self._settings.http
        await self.endpoints.start(
            port=http.port, debug_port=http.debug_port or None, metrics_port=http.metrics_port
        )
        page = WebPage(
            lambda: self.replica.state.freeze(self.replica.clock.now()),
            self._settings.price.currency,
            lambda: tuple(self.replica.state.profile_requests().values()),
        )
        await self._start_page(page)
        try:
            await self.work()
        finally:
            await page.stop()
            await self.endpoints.stop()
        log.info("stopped")

    async def work(self) -> None:
        """Do everything except serving, until ``stop``."""
        replica = self.replica
        replica.solver.start()  # their imports are done before this replica leads
        replica.learner.start()
        try:
            await self._work()
        finally:
            replica.solver.close()
            replica.learner.close()
            self.suggestions.close()

    async def _work(self) -> None:
        supervisor, replica = self.replica.supervisor, self.replica
        async with asyncio.TaskGroup() as tasks:
            # separate from the others: its faults make no replica unhealthy
            running = [tasks.create_task(TaskSupervisor().run("admission", self._warn))]
            running += [
                tasks.create_task(supervisor.run(name, work))
                for name, work in (
                    ("pulse", lambda: self.pulse.run(replica.api_backpressure.since)),
                    ("self-test", self._self_test),
                    ("memory", give_back),
                    ("pools", replica.pool_watch.run),
                    ("tunings", self.tunings.run),
                    ("suggestions", self.suggestions.run),
                    ("traces", self.traces.run),
                    ("stragglers", self.stragglers.run),
                    ("leadership", self._lead),
                )
            ]
            running += [
                tasks.create_task(self._reflect(reflector)) for reflector in replica.reflectors
            ]
            await self._stop.wait()
            for task in running:
                task.cancel()

    def stop(self) -> None:
        """Begin a graceful shutdown."""
        self._stop.set()

    # -- before the first look -------------------------------------------------------------------

    async def _self_test(self) -> None:
        """Retry until the API server authenticates and authorises us; readiness has the reason."""
        pauses = Backoff(max_s=SELF_TEST_AGAIN_S)
        while True:
            try:
                user = await run_self_test(self._cluster, namespace=self._settings.lease.namespace)
            except (SelfTestFailed, ApiError) as error:
                text = str(error) if isinstance(error, SelfTestFailed) else fault_text(error)
                if text != self._untested:
                    log.error("self-test failed; asking again", error=text)
                self._untested = text
                await asyncio.sleep(pauses.pause(self.replica.clock.monotonic()))
            else:
                log.info("self-test passed", user=user, version=version("ullage"))
                self._untested = ""
                self._tested.set()
                return

    async def _reflect(self, reflector: Reflector) -> None:
        await self._tested.wait()
        await reflector.run()

    async def _warn(self) -> None:
        """Answer admission reviews with warnings, leading or not."""
        http, replica = self._settings.http, self.replica

        async def look() -> Snapshot | None:
            return replica.state.freeze(replica.clock.now()) if replica.synced() else None

        if http.admission_port:
            admission = AdmissionAdvice(look, Path(http.admission_dir), http.admission_port)
            await KopfFrame(Mirror(admission.kinds)).run(refuse, admission.register)

    # -- leading ---------------------------------------------------------------------------------

    async def _lead(self) -> None:
        """Stand by, lead, and stand by again, until cancelled."""
        while True:
            if self.term.closed:
                self.term = Term(self.replica)
            term = self.term
            async with AsyncExitStack() as end:  # every step of it, whatever fails, the last first
                end.push_async_callback(self.lease.release)
                end.callback(self.suggestions.forget)
                end.callback(self.tunings.end_term)
                end.callback(self.traces.end_term)
                end.callback(self.stragglers.end_term)
                end.callback(self.replica.state.end_term)
                end.push_async_callback(term.close)
                await self._synced()
                await self.lease.campaign(self.replica.synced)
                why = await self._hold(term)
            log.warning("standing by", reason=why, epoch=self.lease.epoch)
            if term.fenced.is_set():
                await asyncio.sleep(self._fenced_pauses.pause(self.replica.clock.monotonic()))

    async def _hold(self, term: Term) -> str:
        """Lead until the Lease or the leadership is lost; returns the reason.

        Raises:
            ExceptionGroup: a fault of our own ended the leadership.
        """
        kept, led = asyncio.create_task(self.lease.keep()), asyncio.create_task(term.run())
        fenced = asyncio.create_task(term.fenced.wait())
        tasks = (kept, led, fenced)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                await term.writer.stop()  # first of all; the Lease is renewed meanwhile
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        if not led.cancelled():
            led.result()
        if fenced.done() and not fenced.cancelled():
            return "a newer leader's epoch stands in the API"
        return self.lease.lost

    async def _synced(self) -> None:
        """Wait for the first full snapshot."""
        if self.replica.synced():
            return
        while not self.replica.synced():
            await asyncio.sleep(0.05)
        log.info("synced", objects=dict(self.replica.state.counts()))

    # -- reporting ------------------------------------------------------------------------------

    def _make_endpoints(self) -> Endpoints:
        metrics = CollectorRegistry(auto_describe=False)
        metrics.register(OperatorCollector(self.figures, self.replica.counters.guard))
        register_build(metrics, "operator")
        return Endpoints(
            self.health, metrics, lambda: self.term.loop.last_inputs, self._secure_metrics()
        )

    async def _start_page(self, page: WebPage) -> None:
        """Serve the web page if enabled; the operator works without it."""
        http = self._settings.http
        if not http.web_port:
            return
        try:
            await page.start(http.web_port, None if http.web_proxy else LOOPBACK)
        except OSError as error:
            log.warning("no web page is served", port=http.web_port, error=str(error))

    def _secure_metrics(self) -> Callable[[Callable[[], bytes]], SecureMetrics] | None:
        http = self._settings.http
        if not http.metrics_port:
            return None
        access = TokenAccess(reviews(self._cluster))
        return lambda page: SecureMetrics(page, access, Path(http.certificate_dir))

    def health(self) -> HealthView:
        """Input of the probes."""
        replica, now = self.replica, self.replica.clock.monotonic()
        stats, reflectors = replica.counters.loop, self.replica.reflectors
        unheld = self.lease.streak
        return HealthView(
            loop_lag_s=self.pulse.lag_s,
            untested=self._untested,
            lease_failing_s=unheld.seconds(now),
            lease_error=unheld.text,
            is_leader=self.lease.held,
            decision_age_s=replica.decision_age_s(),
            cycle_age_s=now - stats.last_begun,
            max_age_s=3 * self._settings.trigger.resync_seconds,
            obstacle=stats.obstacle,
            cycles_failing_s=self.term.loop.streak.own_seconds(now),
            behind={r.stream.name: why for r in reflectors if (why := r.problem())},
            stuck={r.stream.name: why for r in reflectors if (why := r.stuck())}
            | ({"kopf": STUCK} if replica.frame.stuck else {}),
            failing_tasks=replica.supervisor.failing(),
        )

    def _traffic(self) -> Traffic:
        stats = self.replica.counters.writer
        return Traffic(
            waiting=stats.queue_depth,
            in_flight_most=self._settings.write.in_flight,
            answer_s=stats.answer_s,
            answered_at=stats.answered_at,
            lease_s=self.lease.look_s,
            loop_lag_s=self.pulse.lag_s,
        )

    # -- parts -----------------------------------------------------------------------------------

    def _make_replica(self, around: Surroundings) -> Replica:
        settings, clock = self._settings, around.clock
        state = ClusterState(effect_of, complain=Complaints(clock))
        mirror = Mirror(KINDS, FOLLOWED)
        trigger = Trigger(
            idle_s=settings.trigger.idle_seconds,
            max_s=settings.trigger.max_seconds,
            resync_s=settings.trigger.resync_seconds,
            rest_most_s=settings.trigger.rest_max_seconds,
        )
        name = settings.identity or socket.gethostname()
        return Replica(
            settings=settings,
            cluster=self._cluster,
            clock=clock,
            state=state,
            reflectors=[
                Reflector(
                    stream,
                    source=self._cluster,
                    sink=mirror.tee(stream, state),
                    clock=clock,
                    poke=trigger.poke,
                )
                for stream in STREAMS
            ],
            lease=Lease(
                self._cluster,
                new_identity=lambda: f"{name}_{uuid.uuid4().hex[:8]}",
                namespace=settings.lease.namespace,
                clock=clock,
                highest_epoch=state.highest_epoch,
                times=LeaseTimes(
                    duration_s=settings.lease.duration_seconds,
                    renew_deadline_s=settings.lease.renew_deadline_seconds,
                    period_s=settings.lease.period_seconds,
                ),
                owner=settings.lease.owner,
            ),
            trigger=trigger,
            api_backpressure=ApiBackpressure(self._traffic, clock),
            supervisor=TaskSupervisor(clock.monotonic),
            counters=Counters(),
            mirror=mirror,
            frame=around.frame(mirror),
            pool_watch=PoolWatch(state, synced=lambda: self.replica.synced(), clock=clock),
            solver=around.solver(settings.decide.deadline_seconds),
            learner=self._make_learner(around),
        )

    def _make_learner(self, around: Surroundings) -> Learner:
        times = self._settings.learn
        return Learner(
            snapshot=lambda: self.replica.leader_snapshot(),
            publish=self._publish,
            clock=around.clock,
            pace=Pace(
                every_s=times.every_seconds,
                fit_every_s=times.fit_every_seconds,
                fit_rows=times.fit_rows,
            ),
            deadline_s=times.deadline_seconds,
            executor=around.learner,
        )

    def _publish(self, models: Mapping[str, LearnedModel]) -> None:
        self.replica.state.set_models(models)
        self.trigger.poke("model")
