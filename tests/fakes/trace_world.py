# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""ProfileRequests, pods, agents and ranks in memory: what orders ask for is done, late or never."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from ullage.api.rank_traces import RankTrace, StepColumns, TimeBreakdown
from ullage.api.reasons import Reason
from ullage.api.traces import DesiredTrace, ObservedTrace, TraceAnswer, TraceState
from ullage.cluster.codecs.status import profile_request_as_stored
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.scheduling.observation.profile_requests import (
    NodeView,
    TraceInputs,
    admitted,
    next_status,
    orders_by_node,
    pods_under_way,
    queued,
)
from ullage.scheduling.observation.traced_pods import PodOfJob, TracedTarget

BEGAN = 1_000_000.0


def a_request(name: str = "digits", **fields: object) -> ProfileRequestRecord:
    """A request for five steps of all ranks of a TrainingJob, as it is read after its creation."""
    record = ProfileRequestRecord(
        ref=ObjectRef(kind="ProfileRequest", namespace="team", name=name, uid=f"uid-{name}"),
        generation=1,
        resource_version="1",
        created=BEGAN,
        job_kind="TrainingJob",
        job_name="digits",
    )
    return replace(record, **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class RankProgram:
    """A program: it counts steps, and traces those that are ordered.

    Attributes:
        pace_s: Time of a step.
        claims: Rank that its trace claims; ``None`` = its own.
        refuses: It answers every order with this reason.
        silent: It answers nothing.
        ahead: Steps that it is ahead of what its agent tells.
        off: Steps by which its trace is of others than were ordered.
    """

    pod: PodOfJob
    pace_s: float = 0.1
    steps: float = 1.0
    claims: int | None = None
    refuses: Reason | None = None
    silent: bool = False
    ahead: int = 0
    off: int = 0
    alive: bool = True
    placed: set[str] = field(default_factory=set)
    """Orders in its directory, which outlives the agent."""


@dataclass(slots=True)
class AgentOfNode:
    """A node agent: what it was ordered, and what it reports.

    Attributes:
        knows_traces: False for an agent of an earlier version.
        alive: It reads, works and reports.
    """

    orders: tuple[DesiredTrace, ...] = ()
    reports: dict[tuple[str, str], ObservedTrace] = field(default_factory=dict)
    heartbeat: float = BEGAN
    knows_traces: bool = True
    alive: bool = True

    def restart(self) -> None:
        """Forget everything in memory; what ranks wrote is on the disk."""
        self.reports = {}


class TraceWorld:
    """One job of some pods on some nodes, and requests about it."""

    def __init__(self, pods: int = 4, nodes: int = 2, requests: int = 1) -> None:
        self.now = BEGAN
        self.instrumented: bool | None = True
        self.ended = False
        self.exists = True
        views = [
            PodOfJob(
                uid=f"pod-{at}",
                name=f"digits-{at}",
                node=f"node-{at % nodes}",
                rank=at,
                devices=1,
                running=True,
            )
            for at in range(pods)
        ]
        self.ranks = {view.uid: RankProgram(pod=view) for view in views}
        self.agents = {f"node-{at}": AgentOfNode() for at in range(nodes)}
        names = [f"digits-{at}" for at in range(requests)]
        self.requests = {f"uid-{name}": a_request(name) for name in names}
        self.written = 0

    @property
    def request(self) -> ProfileRequestRecord:
        """The first request."""
        return next(iter(self.requests.values()))

    def target(self) -> TracedTarget:
        """The job as the operator sees it."""
        pods = tuple(
            replace(rank.pod, running=rank.alive)
            for rank in self.ranks.values()
            if rank.alive or not self.ended
        )
        return TracedTarget(
            exists=self.exists, ended=self.ended, pods=pods, instrumented=self.instrumented
        )

    def operate(self) -> None:
        """One look of an operator that knows nothing but what is stored."""
        wanted = orders_by_node(self.requests.values())
        for name, agent in self.agents.items():
            agent.orders = wanted.get(name, ())
        unfinished = [item for item in self.requests.values() if not item.status.is_over]
        allowed = admitted(unfinished)
        busy = frozenset[str]().union(*map(pods_under_way, unfinished))
        nodes = {
            name: NodeView(heartbeat=agent.heartbeat, reports=tuple(agent.reports.values()))
            for name, agent in self.agents.items()
        }
        for request in unfinished:
            if request.ref.uid in allowed:
                inputs = TraceInputs(now=self.now, target=self.target(), nodes=nodes, busy=busy)
                status = next_status(request, inputs)
            else:
                status = queued(request, self.now)
            busy |= {pod.uid for pod in status.pods}
            status = profile_request_as_stored(status)
            if status != request.status:
                self.written += 1
                self.requests[request.ref.uid] = replace(request, status=status)

    def work(self) -> None:
        """One look of every agent that lives."""
        for name, agent in self.agents.items():
            if not agent.alive:
                continue
            agent.heartbeat = self.now
            if not agent.knows_traces:
                continue
            wanted = {(order.id, order.pod_uid): order for order in agent.orders}
            agent.reports = {key: made for key, made in agent.reports.items() if key in wanted}
            for key, order in wanted.items():
                report = agent.reports.get(key)
                if report is None or not report.state.is_final:
                    agent.reports[key] = self._report(name, order, report)

    def _report(
        self, node: str, order: DesiredTrace, before: ObservedTrace | None
    ) -> ObservedTrace:
        rank = self.ranks.get(order.pod_uid)
        report = before or ObservedTrace(
            id=order.id, pod_uid=order.pod_uid, state=TraceState.WAITING
        )
        if rank is None or not rank.alive or rank.pod.node != node:
            reason = Reason.JOB_ENDED.value
            return replace(report, state=TraceState.FAILED, reason=reason, message="it is gone")
        if not order.start_step:
            if rank.steps < 1 or not self.instrumented:
                return report
            micros = int(rank.pace_s * 1e6)
            told = int(rank.steps)
            return replace(report, state=TraceState.READY, step=told, step_micros=micros)
        if rank.silent:
            return replace(report, state=TraceState.ARMED)
        if rank.refuses is not None:
            answer = TraceAnswer(reason=rank.refuses.value, message="as it was told to")
        elif order.id not in rank.placed and rank.steps + rank.ahead > order.start_step:
            answer = TraceAnswer(reason=Reason.TRACE_LATE.value, message="too late")
        elif rank.steps < order.start_step + order.steps:
            rank.placed.add(order.id)
            begun = rank.steps >= order.start_step
            state = TraceState.CAPTURING if begun else TraceState.ARMED
            return replace(report, state=state)
        else:
            claimed = rank.pod.rank if rank.claims is None else rank.claims
            trace = RankTrace(
                rank=claimed,
                world_size=len(self.ranks),
                trace_id=order.id,
                start_micros=1,
                first_step=order.start_step + rank.off,
                step=TimeBreakdown(span_micros=1000, compute_micros=410, idle_micros=590),
                steps=StepColumns(
                    starts_micros=tuple(range(0, 1000, 200)),
                    spans_micros=(200,) * 5,
                    compute_micros=(82,) * 5,
                    communication_micros=(0,) * 5,
                    copies_micros=(0,) * 5,
                    data_wait_micros=(0,) * 5,
                ),
            )
            answer = TraceAnswer(bytes=1000, summary=json.dumps(trace.to_wire()))
        return replace(report, state=TraceState.DONE, ranks=(answer,))

    def pass_time(self, seconds: float) -> None:
        """Let programs make their steps."""
        self.now += seconds
        for rank in self.ranks.values():
            if rank.alive:
                rank.steps += seconds / rank.pace_s

    def go_on(self, seconds: float = 1.0) -> None:
        """One look of all, and the time until the next one."""
        self.operate()
        self.work()
        self.pass_time(seconds)

    def run(self, most_s: float = 120.0, seconds: float = 1.0) -> None:
        """Go on until every request is over.

        Raises:
            AssertionError: one is not after this time.
        """
        end = self.now + most_s
        while any(not request.status.is_over for request in self.requests.values()):
            assert self.now < end, [request.status for request in self.requests.values()]
            self.go_on(seconds)
        self.operate()
        self.work()
