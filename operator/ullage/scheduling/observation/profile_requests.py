# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The state machine of a ProfileRequest, from the choice of pods to the joined result.

Nodes are asked for the current steps of the pods. From the answers one first step is chosen for all
pods and sent to the nodes. All state is in the status and in the reports of nodes, so a new
operator continues where the last one stopped. Every wait has a limit, and every end a reason.
Orders are derived from stored statuses, so none outlives its request.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.labels import HOOK_LABEL
from ullage.api.rank_traces import RankTrace
from ullage.api.readers import WireError
from ullage.api.reasons import ConditionType, Reason
from ullage.api.traces import (
    MAX_RANK,
    MAX_TRACES,
    DesiredTrace,
    ObservedTrace,
    TraceAnswer,
    TraceState,
)
from ullage.api.words import Inject, TracedKind
from ullage.cluster.records.trace import (
    MOST_RANKS,
    ProfileRequestRecord,
    ProfileRequestStatus,
    RankCapture,
    StepWindow,
    TracedPod,
)
from ullage.engines.tracing.join import NodeTrace, joined
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.observation.traced_pods import PodOfJob, TracedTarget, chosen_pods
from ullage.scheduling.times import (
    AGENT_SILENT_S,
    STEPS_COME_S,
    TRACE_ANSWER_S,
    TRACE_ENDS_S,
    TRACE_LEAD_S,
    TRACE_MOST_S,
    TRACE_PUBLISH_LEAST_S,
    TRACE_PUBLISH_MOST_S,
    TRACE_WAITS_S,
    TRACED_JOB_COMES_S,
)

MOST_OF_NAMESPACE: Final = 4
"""Requests of one namespace that are under way."""
MOST_OF_CLUSTER: Final = 32
MOST_ATTEMPTS: Final = 2
TRACED_SLOWDOWN: Final = 3
"""Most times that a step takes longer while it is traced; 1.1 to 1.4 were measured."""
MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node with pods of a request.

    Attributes:
        heartbeat: Last report of its agent, seconds since the epoch.
        reports: What the agent reports of orders.
    """

    heartbeat: float
    reports: tuple[ObservedTrace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInputs:
    """Inputs of a step of one request, beside its own record.

    Attributes:
        now: Seconds since the epoch, whole ones as statuses keep them.
        target: The traced job.
        nodes: Nodes by name; one that is gone is missing.
        busy: Uids of pods that other requests trace.
    """

    now: float
    target: TracedTarget
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    busy: Set[str] = frozenset()


def admitted(requests: Iterable[ProfileRequestRecord]) -> frozenset[str]:
    """Uids of the requests that may be under way: those that are, then the oldest ones."""
    unfinished = [item for item in requests if not (item.status.is_over or item.deleting)]
    unfinished.sort(
        key=lambda item: (
            not item.status.asked_time,
            item.created,
            item.ref.namespace,
            item.ref.name,
        )
    )
    taken: Counter[str] = Counter()
    uids: list[str] = []
    for request in unfinished:
        space = request.ref.namespace
        if taken[space] < MOST_OF_NAMESPACE and len(uids) < MOST_OF_CLUSTER:
            taken[space] += 1
            uids.append(request.ref.uid)
    return frozenset(uids)


def is_expired(request: ProfileRequestRecord, now: float) -> bool:
    """True when the time after its end is over."""
    status = request.status
    return status.is_over and not request.deleting and now >= status.completion_time + request.ttl_s


def pods_under_way(request: ProfileRequestRecord) -> frozenset[str]:
    """Uids of the pods that a request traces now."""
    if request.status.is_over or request.deleting:
        return frozenset()
    return frozenset(pod.uid for pod in request.status.pods if pod.reason is None)


def order_id(uid: str, attempt: int) -> str:
    """Identity of an order: the uid of its request, with the number of a further attempt."""
    return uid if attempt <= 1 else f"{uid}.{attempt}"


def orders_by_node(
    requests: Iterable[ProfileRequestRecord],
) -> dict[str, tuple[DesiredTrace, ...]]:
    """Orders by node; nodes without orders are left out."""
    orders: dict[str, list[DesiredTrace]] = {}
    for request in sorted(requests, key=lambda item: (item.created, item.ref.uid)):
        status = request.status
        if status.is_over or request.deleting or not status.asked_time:
            continue
        for pod in status.pods:
            if pod.reason is not None:
                continue
            order = DesiredTrace(
                id=order_id(request.ref.uid, status.attempt),
                pod_uid=pod.uid,
                start_step=status.start_step,
                steps=request.steps,
                stacks=request.stacks,
                shapes=request.shapes,
                ranks=request.ranks or (),
            )
            orders.setdefault(pod.node, []).append(order)
    return {node: tuple(listed[:MAX_TRACES]) for node, listed in orders.items()}


def next_status(request: ProfileRequestRecord, inputs: TraceInputs) -> ProfileRequestStatus:
    """The status to write; the same object while nothing changes.

    Args:
        request: The request, with the status that is stored.
        inputs: Everything else.
    """
    status = request.status
    if status.is_over or request.deleting:
        return status
    if not status.asked_time:
        return _pending(request, inputs)
    reports = _reports(request, inputs)
    status = replace(status, pods=tuple(_without_gone(status.pods, reports, inputs)))
    if not any(pod.reason is None for pod in status.pods):
        return _ended(request, status, reports, inputs)
    if not status.start_step:
        return _asked(request, status, reports, inputs)
    return _capturing(request, status, reports, inputs)


def queued(request: ProfileRequestRecord, now: float) -> ProfileRequestStatus:
    """The status of a request that is not among those that may be under way."""
    text = (
        f"at most {MOST_OF_NAMESPACE} requests of a namespace, and {MOST_OF_CLUSTER} of the "
        "cluster, are traced at a time"
    )
    return _waiting(request, Reason.TRACE_QUEUED, text, TRACE_WAITS_S, now)


def given_up(request: ProfileRequestRecord, why: str, now: float) -> ProfileRequestStatus:
    """The status of a request that could not be processed."""
    text = f"this request cannot be processed: {why}"
    return _failed(request, request.status, Reason.CAPTURE_FAILED, text, now)


# -- before nodes are asked ------------------------------------------------------------------------


def _pending(request: ProfileRequestRecord, inputs: TraceInputs) -> ProfileRequestStatus:
    target, now, status = inputs.target, inputs.now, request.status
    job = _called(request)
    if target.ended:
        return _failed(request, status, Reason.JOB_ENDED, f"{job} has ended", now)
    if target.instrumented is False:
        return _failed(request, status, Reason.NOT_INSTRUMENTED, _without_hook(request), now)
    running = [pod for pod in target.pods if pod.running]
    chosen = chosen_pods(request, running)
    if running and not chosen:
        places = sorted({pod.rank for pod in running if pod.rank is not None})
        text = f"no pod of {job} has one of the ranks that are listed; pods {places[:16]} run"
        return _failed(request, status, Reason.NO_PODS, text, now)
    if not target.exists:
        text = f"there is no {job}" if request.job_kind else "no pod has these labels"
        return _waiting(request, Reason.NO_PODS, text, TRACED_JOB_COMES_S, now)
    if not running:
        text = f"no pod of {job} runs on a device of Ullage"
        return _waiting(request, Reason.NO_PODS, text, TRACE_WAITS_S, now)
    starting = sum(pod.starting for pod in target.pods)
    if starting and now < request.created + TRACED_JOB_COMES_S:
        text = f"{starting} of {len(target.pods)} pods of {job} do not run yet"
        return _waiting(request, Reason.NO_PODS, text, TRACE_WAITS_S, now)
    if others := sorted(pod.name for pod in chosen if pod.uid in inputs.busy):
        text = f"another request traces {', '.join(others[:4])}"
        return _waiting(request, Reason.TRACE_QUEUED, text, TRACE_WAITS_S, now)
    pods = tuple(_traced(pod) for pod in _with_room(chosen))
    text = f"{len(pods)} pods are asked for their current step"
    return _updated(
        request,
        replace(status, phase="Pending", attempt=1, asked_time=now, pods=pods),
        Reason.STEPS_ASKED,
        text,
        now,
    )


def _waiting(
    request: ProfileRequestRecord, reason: Reason, text: str, limit_s: float, now: float
) -> ProfileRequestStatus:
    """The request waits, and fails when it has waited too long."""
    if now >= request.created + limit_s:
        return _failed(request, request.status, reason, f"{text}, for {limit_s:.0f} s", now)
    return _updated(request, replace(request.status, phase="Pending"), reason, text, now)


def _called(request: ProfileRequestRecord) -> str:
    if request.job_kind:
        return f"{request.job_kind} {request.job_name}"
    return "the pods of " + ",".join(f"{key}={value}" for key, value in request.labels)


def _without_hook(request: ProfileRequestRecord) -> str:
    """Text that says which line to add."""
    job = _called(request)
    if request.job_kind == TracedKind.TRAINING_JOB:
        return (
            f"{job} has spec.runtime.inject: Never, so its program has no step hook. "
            "Set spec: {runtime: {inject: Auto}} for its next start; this job is not restarted"
        )
    return (
        f"no pod of {job} has the label {HOOK_LABEL}: {Inject.AUTO}, so its program has no step "
        "hook. Add it to the pod template for the next start; these pods are not restarted"
    )


def _with_room(pods: Sequence[PodOfJob]) -> list[PodOfJob]:
    """The pods, without those beyond what one node takes."""
    taken: Counter[str] = Counter()
    kept: list[PodOfJob] = []
    for pod in pods:
        taken[pod.node] += 1
        if taken[pod.node] <= MAX_TRACES:
            kept.append(pod)
    return kept


def _traced(pod: PodOfJob) -> TracedPod:
    return TracedPod(uid=pod.uid, pod=pod.name, node=pod.node, rank=pod.rank)


# -- while nodes are asked -------------------------------------------------------------------------

Reports = Mapping[str, ObservedTrace]
"""Reports about the present order, by uid of the pod."""


def _reports(request: ProfileRequestRecord, inputs: TraceInputs) -> Reports:
    """Reports of the nodes that the pods run on; reports of other nodes do not count."""
    wanted = order_id(request.ref.uid, request.status.attempt)
    nodes = {pod.uid: pod.node for pod in request.status.pods}
    return {
        report.pod_uid: report
        for name in sorted(set(nodes.values()))
        if (view := inputs.nodes.get(name)) is not None
        for report in view.reports
        if report.id == wanted and nodes.get(report.pod_uid) == name
    }


def _without_gone(
    pods: Iterable[TracedPod], reports: Reports, inputs: TraceInputs
) -> Iterable[TracedPod]:
    """The pods; a pod that is gone, or whose node is gone, gets a reason."""
    there = {pod.uid for pod in inputs.target.pods}
    for pod in pods:
        report = reports.get(pod.uid)
        if pod.reason is not None or (report is not None and report.state.is_final):
            yield pod
        elif pod.node not in inputs.nodes:
            yield replace(pod, reason=Reason.NODE_GONE, message=f"node {pod.node} is gone")
        elif pod.uid not in there:
            yield replace(pod, reason=Reason.JOB_ENDED, message=f"pod {pod.pod} is gone")
        else:
            yield pod


def _asked(
    request: ProfileRequestRecord,
    status: ProfileRequestStatus,
    reports: Reports,
    inputs: TraceInputs,
) -> ProfileRequestStatus:
    """Wait until all pods have reported their step, then choose the first step to trace."""
    waited_s = inputs.now - status.asked_time
    pods = tuple(
        _judged(pod, reports.get(pod.uid), waited_s, status.asked_time, inputs)
        for pod in status.pods
    )
    status = replace(status, pods=pods)
    left = [reports.get(pod.uid) for pod in pods if pod.reason is None]
    if not left:
        return _ended(request, status, reports, inputs)
    ready = [report for report in left if report is not None and report.state is TraceState.READY]
    if len(ready) < len(left):
        text = f"{len(left) - len(ready)} of {len(left)} pods have not reported their step yet"
        return _updated(request, status, Reason.STEPS_ASKED, text, inputs.now)
    start, step_s = first_step(ready, waited_s)
    ahead = start - max(report.step for report in ready)
    most_s = (ahead + TRACED_SLOWDOWN * request.steps) * step_s + TRACE_ENDS_S
    last = start + request.steps - 1
    return _updated(
        request,
        replace(
            status,
            phase="Armed",
            start_step=start,
            window=StepWindow(first_step=start, last_step=last),
            give_up_time=math.ceil(inputs.now + min(most_s, TRACE_MOST_S)),
        ),
        Reason.TRACE_ARMED,
        f"{len(left)} pods trace steps {start} to {last}",
        inputs.now,
    )


def first_step(ready: Sequence[ObservedTrace], waited_s: float) -> tuple[int, float]:
    """First step to trace, and the time of a step in seconds.

    Every program must have the order before it reaches the step. The order takes about as long as
    the question and its answer took, and the answers are as old:
    ``max(step) + 1 + ceil((2 * publish + lead) / step time)``, ``derived``.

    Args:
        ready: Reports with the steps of all pods.
        waited_s: Seconds since the nodes were asked.
    """
    step_s = max(max(report.step_micros for report in ready), 1) / MICROS
    publish_s = min(max(waited_s, TRACE_PUBLISH_LEAST_S), TRACE_PUBLISH_MOST_S)
    ahead = math.ceil((2 * publish_s + TRACE_LEAD_S) / step_s)
    return max(report.step for report in ready) + 1 + ahead, step_s


def _judged(
    pod: TracedPod,
    report: ObservedTrace | None,
    waited_s: float,
    asked_at: float,
    inputs: TraceInputs,
) -> TracedPod:
    """The pod; with a reason if it will not report its step."""
    if pod.reason is not None:
        return pod
    if report is None:
        return _unanswered(pod, waited_s, asked_at, inputs)
    if report.state.is_final:
        return _refused(pod, report)
    if report.state is not TraceState.READY and waited_s >= STEPS_COME_S:
        text = f"pod {pod.pod} has counted no step in {waited_s:.0f} s"
        if inputs.target.instrumented:
            return replace(pod, reason=Reason.NO_STEPS, message=text)
        hint = "; does its program have the step hook (kubectl ullage explain NotInstrumented)?"
        return replace(pod, reason=Reason.NOT_INSTRUMENTED, message=text + hint)
    return pod


def _unanswered(pod: TracedPod, waited_s: float, asked_at: float, inputs: TraceInputs) -> TracedPod:
    node = inputs.nodes.get(pod.node)
    reported = node is not None and node.heartbeat > asked_at + TRACE_ANSWER_S / 2
    if waited_s >= TRACE_ANSWER_S and reported:
        text = f"the agent of {pod.node} reports and does not know step traces"
        return replace(pod, reason=Reason.AGENT_TOO_OLD, message=text)
    if waited_s >= AGENT_SILENT_S:
        text = f"the agent of {pod.node} has not answered in {waited_s:.0f} s"
        return replace(pod, reason=Reason.AGENT_SILENT, message=text)
    return pod


def _refused(pod: TracedPod, report: ObservedTrace) -> TracedPod:
    reason = _reason(report.reason)
    return replace(pod, reason=reason, message=f"pod {pod.pod}: {report.message or reason.meaning}")


def _reason(word: str) -> Reason:
    """The reason that a node gives; one of another version says that the capture failed."""
    try:
        return Reason(word)
    except ValueError:
        return Reason.CAPTURE_FAILED


# -- while steps are traced ------------------------------------------------------------------------


def _capturing(
    request: ProfileRequestRecord,
    status: ProfileRequestStatus,
    reports: Reports,
    inputs: TraceInputs,
) -> ProfileRequestStatus:
    late = any(
        rank.reason == Reason.TRACE_LATE for report in reports.values() for rank in report.ranks
    )
    if late and status.attempt < MOST_ATTEMPTS:
        text = f"a rank was past step {status.start_step}; the pods are asked again"
        return _updated(
            request,
            replace(
                status,
                phase="Pending",
                attempt=status.attempt + 1,
                asked_time=inputs.now,
                start_step=0,
                give_up_time=0.0,
                window=None,
            ),
            Reason.TRACE_LATE,
            text,
            inputs.now,
        )
    states = [
        report.state if (report := reports.get(pod.uid)) is not None else None
        for pod in status.pods
        if pod.reason is None
    ]
    final = sum(state is not None and state.is_final for state in states)
    if final == len(states) or inputs.now >= status.give_up_time:
        return _ended(request, status, reports, inputs)
    analysed = sum(state in (TraceState.ANALYSING, *_FINAL) for state in states)
    begun = sum(state in (TraceState.CAPTURING, TraceState.ANALYSING, *_FINAL) for state in states)
    if not begun:
        return _updated(request, status, Reason.TRACE_ARMED, status.message, inputs.now)
    phase = "Analysing" if analysed == len(states) else "Capturing"
    text = f"{final} of {len(states)} pods are done"
    return _updated(request, replace(status, phase=phase), Reason.CAPTURING, text, inputs.now)


_FINAL: Final = (TraceState.DONE, TraceState.FAILED)


# -- at the end ------------------------------------------------------------------------------------


def _ended(
    request: ProfileRequestRecord,
    status: ProfileRequestStatus,
    reports: Reports,
    inputs: TraceInputs,
) -> ProfileRequestStatus:
    """The final status of a request, from all reports so far."""
    wanted = order_id(request.ref.uid, status.attempt)
    captures: list[RankCapture] = []
    traces: dict[int, NodeTrace] = {}
    for pod in status.pods:
        report = reports.get(pod.uid)
        if pod.reason is not None or report is None or not report.ranks:
            captures.append(_missing(pod, report, inputs))
            continue
        for answer in report.ranks:
            capture = _capture(pod, answer)
            if answer.summary:
                trace = _read(answer.summary)
                rank = _rank_of(pod, answer, report.ranks, trace)
                fault = _misplaced(trace, rank, wanted, traces)
                trace = _of_window(trace, status)
                if isinstance(trace, RankTrace) and rank is not None and not fault:
                    traces[rank] = NodeTrace(rank=rank, node=pod.node, trace=trace)
                    capture = replace(capture, rank=rank, state="Done", reason=None, message="")
                else:
                    reason = Reason.RANK_UNKNOWN if fault else Reason.TRACE_INVALID
                    capture = replace(capture, reason=reason, message=fault or str(trace))
            captures.append(capture)
    status = replace(status, ranks=tuple(captures[:MOST_RANKS]))
    failed = [capture for capture in captures if capture.state == "Failed"]
    if not traces:
        reason, text = _most_common(failed)
        return _failed(request, status, reason, text, inputs.now)
    result = joined([traces[rank] for rank in sorted(traces)[:MOST_RANKS]])
    done = replace(
        status, phase="Done", result=result, completion_time=inputs.now, give_up_time=0.0
    )
    if not failed:
        return _updated(request, done, Reason.TRACE_DONE, result.message, inputs.now, holds=True)
    text = f"{len(failed)} ranks are missing ({_most_common(failed)[1]}); {result.message}"
    return _updated(request, done, Reason.TRACE_PARTIAL, text, inputs.now, holds=True)


def _capture(pod: TracedPod, answer: TraceAnswer) -> RankCapture:
    """The answer of a rank, as a failure until its summary is read."""
    reason = _reason(answer.reason)
    return RankCapture(
        pod=pod.pod,
        node=pod.node,
        local_rank=answer.local_rank,
        bytes=answer.bytes,
        state="Failed",
        reason=reason,
        message=answer.message or reason.meaning,
    )


def _missing(pod: TracedPod, report: ObservedTrace | None, inputs: TraceInputs) -> RankCapture:
    """A pod without an answer of a rank."""
    if pod.reason is not None:
        reason, text = pod.reason, pod.message
    elif report is not None and report.state.is_final:
        reason, text = _reason(report.reason), report.message
    elif report is None:
        reason, text = (
            Reason.AGENT_SILENT,
            f"the agent of node {pod.node} does not report on this request",
        )
    else:
        reason, text = Reason.TRACE_MISSING, f"the program of {pod.pod} did not answer in time"
    return RankCapture(
        rank=pod.rank, pod=pod.pod, node=pod.node, state="Failed", reason=reason, message=text
    )


def _read(summary: str) -> RankTrace | str:
    """The summary of a rank, or what is wrong with it."""
    try:
        body = json.loads(summary)
        if not isinstance(body, dict):
            return "the summary is not an object"
        return RankTrace.from_wire(body)
    except (WireError, ValueError, RecursionError) as error:
        return f"the summary cannot be read: {error}"


def _of_window(trace: RankTrace | str, status: ProfileRequestStatus) -> RankTrace | str:
    """The summary, or that it is not of the steps that were ordered."""
    window = status.window
    if isinstance(trace, str) or window is None or not trace.first_step:
        return trace
    if window.first_step <= trace.first_step <= window.last_step:
        return trace
    return f"the trace begins at step {trace.first_step}, not at {window.first_step}"


def _rank_of(
    pod: TracedPod,
    answer: TraceAnswer,
    answers: Collection[TraceAnswer],
    trace: RankTrace | str,
) -> int | None:
    """The rank of a trace: by the pod's own place, else as the file claims."""
    claimed = trace.rank if isinstance(trace, RankTrace) else None
    if claimed is not None or pod.rank is None:
        return claimed
    return pod.rank * (1 + max(other.local_rank for other in answers)) + answer.local_rank


def _misplaced(
    trace: RankTrace | str, rank: int | None, wanted: str, traces: Mapping[int, NodeTrace]
) -> str:
    """Text about a trace of another order or of a rank that it cannot have; empty = none."""
    if not isinstance(trace, RankTrace):
        return ""
    if rank is not None and (rank > MAX_RANK or rank >= (trace.world_size or MAX_RANK + 1)):
        return f"rank {rank} does not exist in a job of {trace.world_size} ranks"
    if trace.trace_id not in ("", wanted):
        return "the trace belongs to another order"
    if rank is None:
        return "neither the pod nor its trace says which rank it is"
    if rank in traces:
        return f"another pod also claims rank {rank}"
    return ""


def _most_common(failed: Sequence[RankCapture]) -> tuple[Reason, str]:
    """Reason and text that most ranks without a trace have; of several, the first."""
    counts = Counter(capture.reason for capture in failed)
    reason = max(counts, key=lambda each: counts[each])
    text = next(capture.message for capture in failed if capture.reason == reason)
    return reason or Reason.CAPTURE_FAILED, text


def _failed(
    request: ProfileRequestRecord,
    status: ProfileRequestStatus,
    reason: Reason,
    text: str,
    now: float,
) -> ProfileRequestStatus:
    failed = replace(status, phase="Failed", completion_time=now, give_up_time=0.0)
    return _updated(request, failed, reason, text, now)


def _updated(
    request: ProfileRequestRecord,
    status: ProfileRequestStatus,
    reason: Reason,
    text: str,
    now: float,
    *,
    holds: bool = False,
) -> ProfileRequestStatus:
    """The status with its conditions and its message; the stored one where nothing changed."""
    conditions = [DesiredCondition(ConditionType.COMPLETE, holds, reason, text, follows=True)]
    if status.phase == "Failed":
        conditions.append(DesiredCondition(ConditionType.FAILED, True, reason, text))
    updated = replace(
        status,
        observed_generation=request.generation,
        message=text,
        conditions=merged(status.conditions, conditions, now, request.generation),
    )
    return request.status if updated == request.status else updated
