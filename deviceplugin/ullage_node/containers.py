# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks the containers on our slots: kubelet starts them, a poll every second watches them.

Those that do nothing are read every few seconds, see :attr:`Containers.rest_periods`.

Joins the pure parts (book, last word, observer) with the backend and reports through events. It
frees nothing; the reconciler does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from prometheus_client import Histogram

from ullage.api.faults import DeviceFault
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.xids import xid_of
from ullage_node.events import AgentEvent, Events, EventSubject
from ullage_node.health import HealthChange
from ullage_node.kubelet.plugin_server import StartDenied
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    ContainerBinding,
    ContainerKey,
    ProgressSource,
    ShareDriver,
    StepProgress,
)
from ullage_node.model.slices import SliceRefusal
from ullage_node.slices.binder import Binder, StartRefused
from ullage_node.slices.observer import Observer, PhaseChange
from ullage_node.slices.table import SliceTable
from ullage_node.times import OBSERVE_S, STILL_AFTER_PERIODS, STILL_PERIODS

UNSEEN: Final = frozenset({AttachState.ABSENT, AttachState.UNVERIFIED})
"""States in which a container holds nothing of its device."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Containers:
    """Starts and observes containers."""

    def __init__(
        self,
        table: SliceTable,
        binder: Binder,
        driver: ShareDriver,
        events: Events,
        progress: ProgressSource,
    ) -> None:
        self._table = table
        self._binder = binder
        self._driver = driver
        self._events = events
        self._source = progress
        self._observer = Observer()
        self.attachments: Mapping[ContainerKey, Attachment] = {}
        """Newest reading of each container."""
        self.progress: Mapping[ContainerKey, StepProgress] = {}
        self.refusals: Counter[str] = Counter()
        self.stirred = asyncio.Event()
        """Set when a container may have changed: it is worth a reading."""
        self._still: object = None
        self._still_readings = 0
        self.out_of_service = False
        """The node is being retired: no container starts any more."""
        self.on_change: Callable[[], None] = lambda: None
        self.suspended: Callable[[ContainerKey], bool] = lambda _: False
        """True if a container holds nothing of its device because the node suspended it."""

    async def start(self, slots: Sequence[str], timer: Histogram) -> None:
        """Prepare the container that holds these slots; kubelet is about to start it.

        Raises:
            StartDenied: the container must not start now; the text says why.
        """
        begun = time.perf_counter()
        self.stir()
        try:
            if self.out_of_service:
                message = "this node is taken out of service"
                raise StartRefused(SliceRefusal(reason=Reason.RETIRED, message=message))
            binding = await self._binder.start_container(slots)
        except StartRefused as refused:
            self._tell_refusal(slots, refused)
            raise StartDenied(refused.refusal.text) from refused
        finally:
            timer.observe(time.perf_counter() - begun)
            self.on_change()
        self._observer.restart(binding.key)
        if why := self._binder.without_hook.get(binding.key):
            subject = _subject(binding)
            self._events.say(
                AgentEvent(subject=subject, reason=Reason.HOOK_NOT_INJECTED.value, message=why)
            )
        _log.info(
            "prepared",
            pod=f"{binding.pod_namespace}/{binding.pod_name}",
            slots=binding.slots,
            gpus=[part.gpu for part in binding.slices],
            percent=[part.percent for part in binding.slices],
            seconds=round(time.perf_counter() - begun, 4),
        )

    def _tell_refusal(self, slots: Sequence[str], refused: StartRefused) -> None:
        refusal, pod = refused.refusal, refused.pod
        self.refusals[refusal.reason.value] += 1
        name = f"{pod.namespace}/{pod.name}" if pod else ""
        is_new = True
        if pod is not None:
            subject = EventSubject(namespace=pod.namespace, name=pod.name, uid=pod.uid)
            event = AgentEvent(subject=subject, reason="SliceRefused", message=refusal.text)
            is_new = self._events.say(event)
        (_log.info if is_new else _log.debug)(
            "start refused", slots=list(slots), pod=name, why=refusal.text
        )

    async def observe(self) -> None:
        """Read every bound container once and draw the conclusions."""
        bindings = self._table.bindings
        self._observer.keep([binding.key for binding in bindings])
        try:
            async with asyncio.timeout(OBSERVE_S):
                seen = await self._driver.observe(bindings) if bindings else {}
        except TimeoutError:
            _log.warning("no reading of the containers", seconds=OBSERVE_S)
            return
        now = time.monotonic()
        for binding in bindings:
            # A container that was bound again meanwhile is not the one that was read.
            if self._table.binding(binding.key) is binding:
                self._conclude(binding, seen[binding.key], now)
        self.attachments = seen
        self.progress = self._source.sample(bindings, seen, now) if bindings else {}
        self._tell_records(bindings)
        self._compare(bindings)

    def stir(self) -> None:
        """A container may change now: read every period again."""
        self._still_readings = 0
        self.stirred.set()

    @property
    def rest_periods(self) -> int:
        """Periods that the next reading may be left out.

        Some, once all containers have held their slices and done nothing for a while: reading them
        is most of what an idle node costs.
        """
        return STILL_PERIODS - 1 if self._still_readings >= STILL_AFTER_PERIODS else 0

    def _compare(self, bindings: Sequence[ContainerBinding]) -> None:
        """Count readings that are alike and leave nothing to wait for.

        What serves counts as busy: its pages, not its step record, say what it does.
        """
        still = {
            key: (seen.pids, made.steps if (made := self.progress.get(key)) else 0)
            for key, seen in self.attachments.items()
        }
        settled = all(
            self.attachments[binding.key].state is AttachState.ENFORCED
            and all(
                part.phase is SlicePhase.ATTACHED and part.desired.slo is None
                for part in self._table.held_for(binding.key)
            )
            for binding in bindings
        )
        self._still_readings = self._still_readings + 1 if settled and still == self._still else 0
        self._still = still

    def _conclude(self, binding: ContainerBinding, seen: Attachment, now: float) -> None:
        held = self._table.held_for(binding.key)
        if not held or not held[0].phase.started:
            return
        if seen.state in UNSEEN and self.suspended(binding.key):
            return
        change = self._observer.judge(binding.key, held[0].phase, seen, now)
        version = self._table.version
        if change is None:
            return
        self._table.set_phase(binding.key, change.phase, change.why)
        if self._table.version != version:
            self._tell_change(binding, change)
            self.on_change()

    def _tell_change(self, binding: ContainerBinding, change: PhaseChange) -> None:
        why = change.why
        _log.info(
            "container",
            pod=f"{binding.pod_namespace}/{binding.pod_name}",
            phase=change.phase.value,
            why=f"{why.reason.value}: {why.message}" if why else "",
        )
        if why is not None:
            failed = change.phase is SlicePhase.FAILED
            word = "SliceUnenforced" if failed else why.reason.value
            self._events.say(
                AgentEvent(subject=_subject(binding), reason=word, message=why.message)
            )

    def _tell_records(self, bindings: Sequence[ContainerBinding]) -> None:
        """Notify pods whose step record is unusable; repeats are rate-limited."""
        refused = self._source.refused
        for binding in bindings:
            if why := refused.get(binding.key):
                event = AgentEvent(
                    subject=_subject(binding), reason=Reason.STEP_RECORD_INVALID.value, message=why
                )
                self._events.say(event)

    def tell_detached(self, binding: ContainerBinding, failed: str) -> None:
        """Notify a pod that is being deleted of the result of detaching its clients."""
        text = failed or "its clients were terminated; its processes may be killed"
        self._events.say(
            AgentEvent(
                subject=_subject(binding),
                reason="ClientTerminated" if not failed else "ClientNotTerminated",
                message=text,
                warning=bool(failed),
            )
        )

    def tell_faults(self, faults: Sequence[DeviceFault]) -> None:
        """Notify the pods that were on a device of the faults that the driver reported."""
        for fault in faults:
            row, many = xid_of(fault.xid), len(fault.suspects)
            held = "this pod alone held it" if many == 1 else f"{many} pods held it"
            _log.warning("device fault", gpu=fault.gpu, fault=row.text, suspects=fault.suspects)
            for pod in fault.suspects:
                subject = EventSubject(namespace=pod.namespace, name=pod.pod, uid=pod.pod_uid)
                message = f"{fault.gpu}: {row.text}; {held}"
                self._events.say(AgentEvent(subject=subject, reason="DeviceFault", message=message))

    def tell_health(self, changes: Sequence[HealthChange]) -> None:
        """Notify the tenants of devices whose health changed."""
        for change in changes:
            refusal = change.refusal
            for binding in self._table.bindings:
                if any(part.gpu == change.uuid for part in binding.slices):
                    self._events.say(
                        AgentEvent(
                            subject=_subject(binding),
                            reason="DeviceUnhealthy" if refusal else "DeviceRecovered",
                            message=refusal.message if refusal else f"{change.uuid}: healthy again",
                            warning=refusal is not None,
                        )
                    )


def _subject(binding: ContainerBinding) -> EventSubject:
    return EventSubject(
        namespace=binding.pod_namespace, name=binding.pod_name, uid=binding.key.pod_uid
    )
