# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Advances ProfileRequests, in a task beside the scheduling loop.

It decides nothing itself: statuses come from ``scheduling.observation``, and the orders of a node
follow from the statuses that the API stores. A write that the API does not show yet is not repeated
for a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from ullage import ports
from ullage.api.reasons import Reason
from ullage.api.times import DAY_S
from ullage.api.traces import DesiredTrace
from ullage.app.times import PROFILING_LOOK_S, TRACE_LOOK_S, TUNING_ECHO_S
from ullage.app.tuning_service import BackgroundHooks
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.status import profile_request_as_stored, whole_second
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord, ProfileRequestStatus
from ullage.metrics.traces import TraceFigures
from ullage.ports import Clock
from ullage.process.faults import fault_text
from ullage.scheduling.model.plan import (
    Action,
    CreateProfileRequest,
    DeleteWorkload,
    Emit,
    OrderTraces,
    SetProfileRequestStatus,
)
from ullage.scheduling.observation.profile_requests import (
    NodeView,
    TraceInputs,
    admitted,
    given_up,
    is_expired,
    next_status,
    orders_by_node,
    pods_under_way,
    queued,
)
from ullage.scheduling.observation.profiling import BegunTrace, due_jobs
from ullage.scheduling.observation.traced_pods import TracedTarget, target_of

log = structlog.get_logger("ullage.traces")

Requests = Mapping[tuple[str, str], ProfileRequestRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The version that the last status of a request is based on, and when it was written."""

    resource_version: str
    at: float


class TraceService:
    """Steps of every ProfileRequest, and the orders of every node."""

    def __init__(self, state: ClusterState, hooks: BackgroundHooks, *, clock: Clock) -> None:
        self._state = state
        self._hooks = hooks
        self._clock = clock
        self._seen = -1
        self._look_again_at = 0.0
        self._written: dict[str, _Written] = {}
        """By uid of the request."""
        self._deleted: dict[str, float] = {}
        self._ordered: dict[str, tuple[tuple[DesiredTrace, ...], float]] = {}
        """The orders last written to a node, and when."""
        self._phases: dict[str, tuple[str, float]] = {}
        """Phase of each request that is under way, and since when."""
        self._sampled: dict[str, BegunTrace] = {}
        """Requests of the policy's sample that this replica made in the last day, by name."""
        self._sample_seen = 0.0
        self._requests: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._rejected: Counter[str] = Counter()
        self._failures = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(TRACE_LOOK_S)

    def figures(self) -> TraceFigures:
        """The current figures."""
        return TraceFigures(
            requests=dict(self._requests),
            seconds=dict(self._seconds),
            rejected=dict(self._rejected),
            failures=self._failures,
        )

    def end_term(self) -> None:
        """Forget what this leadership wrote: its last writes may have been lost."""
        self._written, self._deleted, self._ordered, self._phases = {}, {}, {}, {}
        self._sampled, self._sample_seen = {}, 0.0
        self._seen = -1

    def look(self) -> None:
        """Take one step of each request, if this replica leads and something may have changed."""
        epoch = self._hooks.epoch()
        if epoch is None or not self._hooks.synced():
            return
        now = self._clock.monotonic()
        if self._state.version == self._seen and now < self._look_again_at:
            return
        self._seen, self._look_again_at = self._state.version, now + 1.0
        requests = self._state.profile_requests()
        self._forget_all_but({request.ref.uid for request in requests.values()}, now)
        writes = self._order(requests, epoch, now)
        writes += self._steps(requests, epoch, now)
        writes += self._samples(requests, epoch)
        if writes:
            self._hooks.submit(writes)

    # -- requests ----------------------------------------------------------------------------------

    def _steps(self, requests: Requests, epoch: int, now: float) -> list[Action]:
        moment = whole_second(self._clock.now())
        writes: list[Action] = []
        under_way: list[ProfileRequestRecord] = []
        for at in sorted(requests):
            request = requests[at]
            if is_expired(request, moment):
                if now - self._deleted.get(request.ref.uid, -TUNING_ECHO_S) >= TUNING_ECHO_S:
                    self._deleted[request.ref.uid] = now
                    writes.append(_deletion(request, epoch))
            elif not (request.status.is_over or request.deleting):
                under_way.append(request)
        if not under_way:
            return writes
        snapshot, allowed = self._state.freeze(self._clock.now()), admitted(under_way)
        pods = _by_namespace(snapshot, {request.ref.namespace for request in under_way})
        busy = frozenset[str]().union(*map(pods_under_way, under_way))
        for request in under_way:
            last = self._written.get(request.ref.uid)
            if (
                last is not None
                and last.resource_version == request.resource_version
                and now - last.at < TUNING_ECHO_S
            ):
                continue  # the API does not show it yet: a new one would have another time
            inputs = TraceInputs(
                now=moment,
                target=self._target(request, snapshot, pods),
                nodes=self._nodes(request, snapshot),
                busy=busy,
            )
            status = self._next(request, inputs if request.ref.uid in allowed else None, moment)
            busy |= {pod.uid for pod in status.pods}
            status = profile_request_as_stored(status)
            if status != request.status:
                self._written[request.ref.uid] = _Written(
                    resource_version=request.resource_version, at=now
                )
                writes += self._writes(request, status, epoch, now)
        return writes

    def _next(
        self, request: ProfileRequestRecord, inputs: TraceInputs | None, moment: float
    ) -> ProfileRequestStatus:
        """The next status; without inputs, that of a request that waits for others."""
        try:
            return queued(request, moment) if inputs is None else next_status(request, inputs)
        except Exception as error:  # it ends with this one; the others go on
            self._failures += 1
            text = fault_text(error)
            where = f"{request.ref.namespace}/{request.ref.name}"
            log.error("ProfileRequest given up", request=where, error=text, exc_info=error)
            return given_up(request, text, moment)

    def _target(
        self,
        request: ProfileRequestRecord,
        snapshot: Snapshot,
        pods: Mapping[str, Sequence[PodRecord]],
    ) -> TracedTarget:
        return target_of(request, snapshot, pods.get(request.ref.namespace, ()), self._injected)

    def _injected(self, uid: str) -> bool | None:
        """True if pods of a TrainingJob get the step hook; ``None`` = not known."""
        blueprint = self._state.blueprint(uid)
        return blueprint.runtime.inject if blueprint is not None else None

    def _nodes(self, request: ProfileRequestRecord, snapshot: Snapshot) -> dict[str, NodeView]:
        """The nodes of the pods that are traced."""
        traces = self._state.node_traces()
        return {
            name: NodeView(heartbeat=record.heartbeat, reports=traces[name].reports)
            for name in {pod.node for pod in request.status.pods}
            if (record := snapshot.gpu_nodes.get(name)) is not None and name in traces
        }

    def _writes(
        self,
        request: ProfileRequestRecord,
        status: ProfileRequestStatus,
        epoch: int,
        now: float,
    ) -> list[Action]:
        """The write of a status, and the Event of an end."""
        condition = status.conditions[0]
        reason = Reason(condition.reason)
        before = self._phases.get(request.ref.uid)
        if before is not None and before[0] != status.phase:
            self._seconds[before[0]] += now - before[1]
        if before is None or before[0] != status.phase:
            self._phases[request.ref.uid] = (status.phase, now)
        written = SetProfileRequestStatus(
            target=request.ref,
            resource_version=request.resource_version,
            status=status,
            epoch=epoch,
            reason=reason,
            text=status.message,
        )
        if not status.is_over:
            return [written]
        self._requests[reason.value] += 1
        self._rejected.update(
            capture.reason.value for capture in status.ranks if capture.reason is not None
        )
        return [
            written,
            Emit(
                target=request.ref,
                warning=status.phase == "Failed",
                epoch=epoch,
                reason=reason,
                text=status.message,
            ),
        ]

    # -- the policy's sample -----------------------------------------------------------------------

    def _samples(self, requests: Requests, epoch: int) -> list[Action]:
        """Requests for jobs of the policy's sample whose trace is due."""
        moment = self._clock.now()
        if 0 <= moment - self._sample_seen < PROFILING_LOOK_S:
            return []
        self._sample_seen = moment
        snapshot = self._state.freeze(moment)
        self._sampled = {
            name: trace for name, trace in self._sampled.items() if moment - trace.at < DAY_S
        }
        writes: list[Action] = []
        due_now = due_jobs(snapshot, requests.values(), self._sampled, moment, self._injected)
        for due in due_now:
            self._sampled[due.name] = BegunTrace(job=due.job, at=moment)
            writes.append(
                CreateProfileRequest(
                    owner=due.job,
                    name=due.name,
                    steps=due.steps,
                    ttl_s=due.ttl_s,
                    epoch=epoch,
                    reason=Reason.SAMPLED,
                    text=f"{due.job.name} is in the sample of this period",
                )
            )
        return writes

    # -- nodes -------------------------------------------------------------------------------------

    def _order(self, requests: Requests, epoch: int, now: float) -> list[Action]:
        """Orders of nodes that differ from what the stored statuses ask for."""
        wanted = orders_by_node(requests.values())
        writes: list[Action] = []
        for name, traces in self._state.node_traces().items():
            orders = wanted.get(name, ())
            if traces.orders == orders:
                self._ordered.pop(name, None)
                continue
            last = self._ordered.get(name)
            if last is not None and last[0] == orders and now - last[1] < TUNING_ECHO_S:
                continue
            self._ordered[name] = (orders, now)
            writes.append(
                OrderTraces(
                    node=ObjectRef(
                        kind=ports.GPU_NODE.kind, namespace="", name=name, uid=traces.uid
                    ),
                    orders=orders,
                    epoch=epoch,
                    reason=Reason.TRACE_ARMED,
                    text=f"{len(orders)} pods are to be traced",
                )
            )
        return writes

    def _forget_all_but(self, uids: set[str], now: float) -> None:
        self._written = {uid: last for uid, last in self._written.items() if uid in uids}
        self._phases = {uid: phase for uid, phase in self._phases.items() if uid in uids}
        self._deleted = {
            uid: at for uid, at in self._deleted.items() if uid in uids and now - at < TUNING_ECHO_S
        }


def _by_namespace(snapshot: Snapshot, namespaces: set[str]) -> dict[str, list[PodRecord]]:
    pods: dict[str, list[PodRecord]] = {}
    for pod in snapshot.pods.values():
        if pod.namespace in namespaces:
            pods.setdefault(pod.namespace, []).append(pod)
    return pods


def _deletion(request: ProfileRequestRecord, epoch: int) -> DeleteWorkload:
    text = f"ended {request.ttl_s} s ago"
    return DeleteWorkload(owner=request.ref, epoch=epoch, reason=Reason.COMPLETED, text=text)
