# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Assembles the node agent: its parts, its tasks, and the hooks that changes trigger.

Every source (API server, kubelet, devices, containers) only records its observation and calls a
hook here, which updates book, slots, status and checkpoint in one step without waiting. One event
loop, one owner per datum. Every failure is reported and retried: the process ends only on request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import structlog

from ullage.api.slices import SliceKey
from ullage.process.build_metrics import register_build
from ullage.process.metric_families import FiguresCollector
from ullage.process.supervised import TaskSupervisor, end
from ullage_node.api_client import CORE, GPU_NODES, ApiClient
from ullage_node.assemble import watchers_of
from ullage_node.containers import Containers
from ullage_node.dataio.loaders import LoaderReports
from ullage_node.device_watch import DeviceWatch
from ullage_node.devices.backend import switch_of
from ullage_node.events import AgentEvent, Events, EventSubject
from ullage_node.faults import FaultBook, FaultFigures
from ullage_node.follow import Follower
from ullage_node.follow import WatchedKind as Followed
from ullage_node.health import HealthChange, HealthTracker
from ullage_node.kubelet.plugin_server import DevicePluginService, PluginServer
from ullage_node.kubelet.pod_resources import PodResources
from ullage_node.kubelet.registrar import PLUGIN_SOCKET, Registrar, Rhythm
from ullage_node.kubelet.slot_board import SlotBoard, offered_slots
from ullage_node.lanes.metrics import LaneTurns, lane_figures
from ullage_node.mirrors import ApiPods, NodeMirror, PodMirror
from ullage_node.model.device_labels import DeviceRegistry
from ullage_node.model.devices import DeviceBackend, FaultReading, ProgressSource
from ullage_node.mps.metrics import mps_figures
from ullage_node.node_lanes import NodeLanes
from ullage_node.publisher import Publisher
from ullage_node.reporter import NodeReporter, Parts
from ullage_node.settings import AgentSettings
from ullage_node.slices.binder import Binder, BinderDependencies
from ullage_node.slices.cdi import CDIDirectory, device_name
from ullage_node.slices.checkpoint import Saver, boot_id, restore, snapshot
from ullage_node.slices.detach import Detacher
from ullage_node.slices.library import Library
from ullage_node.slices.pods import PodCache
from ullage_node.slices.reconcile import Reconciler, in_use
from ullage_node.slices.retire import remove_everything
from ullage_node.slices.steps import StepRecords
from ullage_node.slices.table import SliceTable
from ullage_node.telemetry.ranks import read_rank_records
from ullage_node.telemetry.station import Sources
from ullage_node.times import (
    FILE_RETRY_S,
    FIRST_SPEC_S,
    LAST_REPORT_S,
    LOOK_STALLED_S,
    PODS_SETTLE_S,
)
from ullage_node.traces.analysis import analysed
from ullage_node.traces.tracer import Tracer
from ullage_node.web import Instruments, WebServer

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Agent:
    """One node's agent; build it inside a running event loop and await :meth:`run`."""

    def __init__(
        self,
        settings: AgentSettings,
        client: ApiClient,
        backend: DeviceBackend,
        progress: ProgressSource,
        version: str,
    ) -> None:
        paths, periods = settings.paths, settings.periods
        self.settings = settings
        self._client = client
        self._backend = backend
        self._progress = progress
        self.table, self.faults = SliceTable(), FaultBook()
        self._boot = boot_id(paths.proc_root)
        self._restored = restore(self.table, paths.checkpoint, self._boot)
        tracker = HealthTracker(periods.recovery_seconds)
        tracker.restore(self._restored.quarantine, wall=time.time())
        self.watch = DeviceWatch(backend.probe, backend.driver, tracker, periods)
        self._saver = Saver(
            paths.checkpoint, lambda: snapshot(self.table, self._boot, self.watch.quarantine)
        )
        self.pods, self.node = PodCache(), NodeMirror()
        self._pod_mirror = PodMirror(self.pods)
        self._resources = PodResources(paths.pod_resources_socket)
        self.surroundings = BinderDependencies(
            node=settings.name,
            table=self.table,
            pods=self.pods,
            lister=self._resources,
            reader=ApiPods(client),
            driver=backend.driver,
            cdi=CDIDirectory(paths.cdi_dir),
            steps=StepRecords(paths.steps_dir),
            library=Library(paths.state_dir),
            save=self._saver.save,
            lane_folder=lambda container, slot: self.lanes.folder(container, slot),
            missing_room=lambda container: self.lanes.missing_room(container),
        )
        self.binder = Binder(self.surroundings)
        self.reconciler = Reconciler(self.surroundings, self.binder)
        self.events = Events(client, settings.name)
        self.lanes = NodeLanes(settings, self.table, self.events)
        self.containers = Containers(self.table, self.binder, backend.driver, self.events, progress)
        self.detacher = Detacher(
            self.table, self.pods, backend.driver, lambda: self.containers.attachments
        )
        self.tasks = TaskSupervisor()
        self._reconcile_now, self._life_changed = asyncio.Event(), asyncio.Event()
        registry = DeviceRegistry(settings.name, lambda: self.watch.observed)
        register_build(registry, "node")
        self.instruments = Instruments(registry)
        self._build_plugin()
        self._build_reporting(version, registry)
        self._register_metrics(registry)
        self.web = WebServer(
            settings.http, registry, self.unhealthy, self.unready, self._client.review
        )
        self._connect()
        self._taken_in = False
        self._gate_open = False
        self._observed_at = time.monotonic()
        self._stale: tuple[SliceKey, ...] = ()
        self._object_uid = ""
        self._orders_swept = False

    def _build_plugin(self) -> None:
        """Device plugin and registration with kubelet."""
        settings, directory = self.settings, self.settings.paths.device_plugin_dir
        self.board = SlotBoard()
        self.service = DevicePluginService(self.board, self._start_container, device_name)
        self.plugin = PluginServer(self.service, self.board, directory / PLUGIN_SOCKET)
        self.registrar = Registrar(
            directory,
            self.plugin,
            self.board,
            self._resources,
            Rhythm(
                poll=settings.periods.socket_poll_seconds,
                check=settings.periods.kubelet_check_seconds,
            ),
        )

    def _build_reporting(self, version: str, registry: DeviceRegistry) -> None:
        """Telemetry, guard and the publisher of the node's status."""
        settings = self.settings
        sources = Sources(
            around=self.surroundings,
            containers=self.containers,
            watch=self.watch,
            events=self.events,
            sampler=self._backend.sampler,
        )
        built = watchers_of(sources, settings, registry)
        self.telemetry, self.guard, self.notices = built.telemetry, built.guard, built.notices
        self.volumes = built.volumes
        self.loaders = LoaderReports(folder=self.surroundings.steps.of, say=self.events.say)
        if settings.checkpoint.enabled:
            switch = switch_of(settings.backend, settings.paths.run_dir, self.guard.stand_still)
            self.lanes.suspend_by(switch)
        self.tracer = Tracer(
            containers=self.table.container_of_pod,
            folder=self.surroundings.steps.of,
            progress=lambda: self.containers.progress,
            read_ranks=read_rank_records,
            analyse=analysed,
        )
        self.reporter = NodeReporter(
            Parts(
                settings=settings,
                version=version,
                table=self.table,
                node=self.node,
                watch=self.watch,
                driver=self._backend.driver,
                board=self.board,
                registrar=self.registrar,
                containers=self.containers,
                events=self.events,
                progress=self._progress,
                steps=self.surroundings.steps,
                guard=self.guard,
                telemetry=self.telemetry,
                notices=self.notices,
                faults=self.faults,
                lanes=self.lanes.server,
                tracer=self.tracer,
                volumes=self.volumes,
                loaders=self.loaders,
            )
        )
        self.publisher = Publisher(
            self._client,
            settings.name,
            self.reporter.status,
            settings.periods.heartbeat_seconds,
            starts_seconds=settings.periods.starts_seconds,
        )

    def _register_metrics(self, registry: DeviceRegistry) -> None:
        """Metrics that are read from live objects."""
        self.lanes.server.on_turn = LaneTurns(registry).take
        registry.register(FiguresCollector(lambda: lane_figures(self.lanes.server.devices)))
        registry.register(FiguresCollector(lambda: FaultFigures(events=self.faults.counts)))
        registry.register(
            FiguresCollector(
                lambda: mps_figures(self.watch.observed, self.watch.faults, self.detacher.results)
            )
        )
        registry.register(
            FiguresCollector(
                lambda: self.reporter.figures(
                    self.publisher,
                    self.tasks.failures,
                    {"GPUNode": self.node.unreadable, "Pod": self._pod_mirror.unreadable},
                )
            )
        )

    def _connect(self) -> None:
        self.node.on_change = self._on_spec
        self._pod_mirror.on_change = self._on_pods
        self.watch.on_change = self._on_devices
        self.watch.on_faults = self._on_faults
        self.detacher.on_result = self.containers.tell_detached
        self.containers.on_change = self._settle
        self.containers.suspended = self.lanes.suspended
        self.guard.on_change = self.telemetry.book.on_change = self.publisher.poke
        self.tracer.on_change = self.publisher.poke
        self.notices.on_change = self.volumes.on_change = self.publisher.poke
        self.telemetry.turns = lambda: self.lanes.server.readings
        self.registrar.on_change = self._settle
        self.reconciler.before_release = self._last_report

    # -- life ------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; then deregister from kubelet first."""
        self.surroundings.library.install()  # nothing else is done yet
        await self.web.start()
        name = self.settings.name
        nodes = Followed(path=GPU_NODES, fields=f"metadata.name={name}")
        pods = Followed(path=f"{CORE}/pods", fields=f"spec.nodeName={name}")
        registrar = self.tasks.spawn(registrar=self.registrar.run)
        others = self.tasks.spawn(
            devices=self.watch.run,
            node=Follower(self._client, nodes, self.node).run,
            pods=Follower(self._client, pods, self._pod_mirror).run,
            observe=self._observe_loop,
            detach=self.detacher.run,
            guard=self.guard.run,
            telemetry=self.telemetry.run,
            notices=self.notices.run,
            lanes=self.lanes.run,
            traces=self.tracer.run,
            volumes=self.volumes.run,
            reconcile=self._reconcile_loop,
            life=self._life_loop,
            gate=self._open_gate,
            publish=self.publisher.run,
            events=self.events.run,
            save=self._saver.run,
            removal=self.surroundings.steps.trash.run,
        )
        try:
            await stop.wait()
        finally:
            # At once: a stream that ends after a successor registered would take it down.
            await end(registrar)
            await end(others)
            await self._close()

    async def _close(self) -> None:
        with contextlib.suppress(OSError):
            await self._saver.save()
        await self._resources.close()
        await self.web.stop()

    # -- reactions to changes --------------------------------------------------------------------

    def _on_spec(self) -> None:
        spec = self.node.spec
        if spec is not None and self._restored.problem:
            subject = EventSubject(namespace="", name=self.settings.name, uid=spec.uid)
            self.events.say(
                AgentEvent(
                    subject=subject, reason="CheckpointRebuilt", message=self._restored.problem
                )
            )
        if (spec.uid if spec else "") != self._object_uid:
            self._object_uid = spec.uid if spec else ""
            self.publisher.forget()
        earlier = self.node.take_earlier()
        self.table.remember(earlier)
        self.telemetry.usage.restore(earlier)
        self.telemetry.book.restore(self.node.take_observations())
        self.faults.restore(self.node.take_faults())
        self.telemetry.book.taken_in(spec.observations_read if spec else "")
        if spec is not None:
            self.lanes.server.order_by(spec.lane_policy)
            self.volumes.fairness = spec.io_fairness
        self.tracer.want(spec.traces if spec is not None else ())
        if spec is not None and not self._orders_swept:
            self._orders_swept = True
            self.tracer.take_back_others(self.surroundings.steps.folders())
        self.notices.restore(self.node.take_interruption())
        self._life_changed.set()
        self.containers.stir()
        self._take_in()
        self._settle()

    def _on_pods(self) -> None:
        if self._claim():
            self._settle()
        self._reconcile_now.set()
        self.containers.stir()

    def _claim(self) -> bool:
        """Give pods the slices that were reserved for them; returns True if any got some now."""
        return sum(map(self.table.claim, self.pods.by_uid.values())) > 0

    def _on_devices(self, changes: Sequence[HealthChange]) -> None:
        if self.watch.known:
            self.table.set_devices(self.watch.devices(self.settings.max_sharers))
        self.containers.tell_health(changes)
        self._take_in()
        self._settle()

    def _on_faults(self, reading: FaultReading, wall: float) -> None:
        self.faults.see(self.table.held, time.monotonic())
        if new := self.faults.take(reading, wall):
            self.containers.tell_faults(new)
            self.publisher.poke()

    def _take_in(self) -> None:
        """Apply the spec to the book, once the devices are known; earlier, all would be refused."""
        if not (self.node.synced and self.watch.known):
            return
        spec = self.node.spec
        wanted = spec.slices if spec else ()
        self._claim()
        if spec and (spec.retire or self.reporter.retired):
            known = {part.desired.key for part in self.table.held}
            wanted = tuple(part for part in wanted if self.table.claimed(part).key in known)
        stale = self.table.intake(spec.epoch if spec else 0, wanted, spec.faulty if spec else ())
        if stale and stale != self._stale:
            _log.warning("slices of an older epoch ignored", count=len(stale))
        self._stale = stale
        self.reporter.generation = spec.generation if spec else 0
        self._taken_in = True

    def _settle(self) -> None:
        """Bring slots, suspects, status and checkpoint in line with the book."""
        self.faults.see(self.table.held, time.monotonic())
        in_use_now = in_use(self.binder.last_listing, self.table.slots)
        self.board.publish(offered_slots(self.table.rooms, in_use_now))
        self.registrar.serve(self._serving_wanted())
        self.publisher.poke()
        self._saver.poke()

    def _serving_wanted(self) -> bool:
        spec = self.node.spec
        return (
            self.settings.late_binding
            and self.watch.known
            and not (self.reporter.retired or (spec is not None and spec.retire))
            and (self._taken_in or self._gate_open)
        )

    async def _open_gate(self) -> None:
        await asyncio.sleep(FIRST_SPEC_S)
        self._gate_open = True
        self._settle()
        await asyncio.Event().wait()

    # -- loops -----------------------------------------------------------------------------------

    async def _start_container(self, slots: Sequence[str]) -> None:
        await self.containers.start(slots, self.instruments.prestart)

    async def _observe_loop(self) -> None:
        while True:
            if not self.reporter.retired:
                await self.containers.observe()
                self.telemetry.look(time.monotonic(), time.time())
                self.loaders.look(self.table.bindings, time.monotonic())
                await self._look_at_lanes()
            self._observed_at = time.monotonic()
            period = self.settings.periods.observe_seconds
            await asyncio.sleep(period)
            if self.containers.rest_periods and not self.lanes.server.devices:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(period * self.containers.rest_periods):
                        await self.containers.stirred.wait()
            self.containers.stirred.clear()

    async def _look_at_lanes(self) -> None:
        if not self._taken_in:
            return
        try:
            await self.lanes.look(self.containers.attachments)
        except OSError as error:
            _log.error("no socket for a lane", error=str(error))

    async def _reconcile_loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.periods.reconcile_seconds):
                    await self._reconcile_now.wait()
                    await asyncio.sleep(PODS_SETTLE_S)
            self._reconcile_now.clear()
            try:
                await self.reconcile()
            except OSError as error:
                _log.error("cannot clean up", error=str(error))

    async def reconcile(self) -> None:
        """Compare the book with kubelet, pods and devices once; not on a partial view."""
        if not (self._taken_in and self.pods.synced):
            return
        version = self.table.version
        with self.instruments.reconcile.time():
            freed = await self.reconciler.run_once()
        if freed:
            _log.info("freed", containers=[key.directory for key in freed])
        if self.table.version != version:
            self._take_in()
        self._settle()

    async def _last_report(self) -> None:
        """Report the final figures of containers about to be forgotten, if that is quick."""
        await self.containers.observe()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await self.publisher.publish(counters=True)

    async def _life_loop(self) -> None:
        """Take the node out of service and back, as the spec requires."""
        while True:
            await self._life_changed.wait()
            self._life_changed.clear()
            wanted = self.node.spec is not None and self.node.spec.retire
            try:
                if wanted and not self.reporter.retired:
                    await self._retire()
                elif not wanted and self.reporter.retired and self.node.spec is not None:
                    self._return_to_service()
            except OSError as error:
                _log.error("cannot leave the node", error=str(error))
                await asyncio.sleep(FILE_RETRY_S)
                self._life_changed.set()

    async def _retire(self) -> None:
        self.containers.out_of_service = True
        self.watch.paused = True  # opening the backend again would put its files back
        self.registrar.serve(False)
        await self.registrar.left()
        async with self.binder.lock:
            await self._saver.disable()
            await remove_everything(
                self.settings.paths,
                self.surroundings.cdi,
                self.surroundings.steps,
                self._backend.driver,
            )
            if not self.table.held:
                self.surroundings.library.remove()
                self.lanes.clear()
        self.reporter.retired = True
        _log.info("retired")
        self._settle()

    def _return_to_service(self) -> None:
        self.surroundings.library.install()
        self.reporter.retired = False
        self.containers.out_of_service = False
        self._saver.enabled = True
        self.watch.reopen()
        _log.info("in service again")
        self._take_in()
        self._settle()

    # -- probes ----------------------------------------------------------------------------------

    def unhealthy(self) -> str:
        """Problem of the process itself, empty if none."""
        age = time.monotonic() - self._observed_at
        if age > LOOK_STALLED_S:
            return f"no look at the containers for {age:.0f} s"
        failing = self.tasks.failing()
        return "; ".join(f"{name} fails: {text}" for name, text in sorted(failing.items()))

    def unready(self) -> str:
        """The reason why the node does not serve; empty if it serves or need not."""
        if not self.watch.known and self.watch.problem is None:
            return "looking for devices"
        registration = self.registrar.registration
        if not self._serving_wanted() or registration.registered or registration.foreign:
            return "" if self._taken_in or self._gate_open else "waiting for the first spec"
        return registration.problem or "not registered with kubelet yet"
