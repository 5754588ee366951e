# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders records as tables. Pure: records in, rich renderables out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.devices import ObservedDevice
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice
from ullage.api.times import rfc3339
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import (
    AllocationRecord,
    Condition,
    DecisionRecord,
    Exclusion,
    LaneStatus,
    Offer,
    Placement,
    Replacement,
    Sharing,
    SizeRecord,
    SpendRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.lanes.assignment import assignment_of, counted_mib, counted_percent
from ullage.engines.lanes.explain import lane_line
from ullage.scheduling.accounting.bills import party_of
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S

GOOD, BAD, QUIET = "green", "red", "dim"
MOST_PODS: Final = 10
"""Maximum pods with ends in one answer."""
PHASE_STYLES: Mapping[str, str] = {
    "Running": GOOD,
    "Ready": GOOD,
    "Succeeded": GOOD,
    "Failed": BAD,
    "Degraded": BAD,
    "Suspended": QUIET,
}


def table_of(*columns: str, numbers: Iterable[str] = (), more: Iterable[str] = ()) -> Table:
    """An empty table: columns of text, columns of ``numbers``, ``more`` columns of text."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    for column in more:
        table.add_column(column, overflow="fold")
    return table


def facts(rows: Mapping[str, RenderableType] | None = None) -> Table:
    """A table of names and their values; a name without a value is left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in (rows or {}).items():
        if value:
            table.add_row(name, value)
    return table


def age(seconds: float) -> str:
    """A duration in kubectl's form: 45s, 12m, 3h, 2d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def times(slowdown: str) -> str:
    """A human-readable slowdown: ``1.82x``, or a dash."""
    return f"{slowdown}x" if slowdown else "-"


def overview(
    records: Iterable[WorkloadRecord],
    now: float,
    *,
    wide: bool = False,
    policy: PolicyRecord | None = None,
) -> RenderableType:
    """One line per workload; ``wide`` adds its tenant, and the text of the decision.

    ``policy`` maps workloads to tenants; ``None`` = the named one.
    """
    table = table_of(
        "NAMESPACE", "NAME", "KIND", "PHASE", "REASON", "NODES", "SHARE",
        "PREDICTED", "OBSERVED", "PROGRESS", "AGE",
        *(("CLASS", "TENANT", "PRIORITY", "MESSAGE") if wide else ()),
    )  # fmt: skip
    for workload in records:
        status = workload.status
        sharing = status.sharing
        table.add_row(
            workload.ref.namespace,
            workload.ref.name,
            workload.kind.value,
            Text(status.phase or "Pending", style=PHASE_STYLES.get(status.phase, "yellow")),
            _reason(status),
            status.nodes or ",".join(sorted({p.node for p in status.placement})) or "-",
            f"{sharing.percent}%" if sharing else "-",
            times(sharing.predicted if sharing else ""),
            times(sharing.observed if sharing else ""),
            _progress(workload),
            age(now - workload.created),
            *(_more(workload, policy or PolicyRecord()) if wide else ()),
        )
    return table if table.row_count else Text("nothing here yet", style=QUIET)


def _more(workload: WorkloadRecord, policy: PolicyRecord) -> tuple[str, ...]:
    decision = workload.status.decision
    return (
        workload.workload_class or "-",
        party_of(policy, workload),
        str(workload.priority),
        decision.message if decision else "-",
    )


def _reason(status: WorkloadStatus) -> str:
    finished = status.condition(ConditionType.FINISHED)
    if finished is not None and finished.status == "True":
        return finished.reason
    return status.decision.reason.value if status.decision else "-"


def _progress(workload: WorkloadRecord) -> str:
    status, progress = workload.status, workload.status.progress
    if workload.kind == "InferenceDeployment":
        return f"{status.ready_replicas}/{workload.replicas} ready"
    if progress is None:
        return "-"
    return f"{progress.percent}%" if progress.total else f"{progress.steps} steps"


def is_placed(workload: WorkloadRecord) -> bool:
    """True if a workload has its devices, by its status."""
    condition = workload.status.condition(ConditionType.ADMITTED)
    return condition is not None and condition.status == "True"


def behind_predecessors(pod: str, running: Sequence[str]) -> Text:
    """Older pods that a pod of a rollout waits for: its Deployment keeps them until it is ready.

    Args:
        pod: The waiting pod.
        running: Pods of other revisions, at least one.
    """
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return Text(
        f"{running[0]}{more} of the same Deployment may hold what {pod} needs, and a rollout with"
        " surge keeps them until it is ready: strategy.rollingUpdate with maxSurge: 0 and"
        " maxUnavailable: 1 lets them go first"
    )


def why(
    workload: WorkloadRecord, isolation: Condition | None = None, ends: Sequence[PodRecord] = ()
) -> RenderableType:
    """Reasons of a workload's place, wait or end: decision, obstacle, remedy.

    Args:
        workload: The workload.
        isolation: Reason why its class is isolated, ``None`` = it is not.
        ends: Its pods that failed, or whose container was restarted, or waits.
    """
    status = workload.status
    title = Text.assemble(
        (f"{workload.kind.value} {workload.ref.namespace}/{workload.ref.name}", "bold"),
        "  ",
        (status.phase or "Pending", PHASE_STYLES.get(status.phase, "yellow")),
    )
    parts: list[RenderableType] = [title]
    if workload.invalid:
        parts.append(Text(f"its newest version cannot be read: {workload.invalid}", style=BAD))
    if isolation is not None:
        rows = {
            "class": f"{workload.workload_class}: {isolation.reason}",
            "": isolation.message,
            "what helps": Reason.CLASS_FAULTED.what_to_do,
        }
        parts.append(facts(rows))
    finished = status.condition(ConditionType.FINISHED)
    ended = finished is not None and finished.status == "True"
    admitted = finished if ended else status.condition(ConditionType.ADMITTED)
    if admitted is not None and (ended or status.decision is None):
        parts.append(_ruled(admitted))
        if not ended:
            return Group(*parts)
    elif status.decision is None:
        parts.append(Text("no decision was made yet; is the operator running?"))
        return Group(*parts)
    else:
        parts.append(_decision(status.decision))
    if ends:
        parts.append(_ends(ends))
    if status.decision is not None and status.decision.refusals and not ended:
        parts.append(_refusals(status.decision))
    if status.scheduling.exclusions:
        parts.append(_exclusions(status.scheduling.exclusions))
    if status.scheduling.replacements:
        parts.append(_replacements(status.scheduling.replacements, status.placement))
    if status.allocation is not None and (status.allocation.pairs or status.allocation.parted):
        parts.append(_pairs(status.allocation))
    if workload.elasticity is not None and status.size is not None:
        parts.append(_size(workload.elasticity, status.replicas, status.size))
    if status.spend is not None and status.spend.decision is not None:
        parts.append(spend(status.spend))
    if status.sharing is not None:
        parts.append(_sharing(status.sharing, status.gpu))
    if status.conditions:
        parts.append(_conditions(status.conditions))
    return Group(*parts)


def _ruled(condition: Condition) -> Table:
    """The text of a condition without a relevant decision."""
    try:
        helps = Reason(condition.reason).what_to_do
    except ValueError:  # from another version of the operator
        helps = ""
    return facts(
        {
            "reason": condition.reason,
            "": Text(condition.message),
            "since": rfc3339(condition.since) if condition.since else "",
            "what helps": helps,
        }
    )


def _ends(pods: Sequence[PodRecord]) -> Table:
    """Ends of pods, or what their containers wait for."""
    table = table_of("POD", "NODE", "RESTARTS", "HOW IT IS")
    for pod in pods[:MOST_PODS]:
        how = f"{pod.waiting_reason}: {pod.waiting_message}".rstrip(": ")
        how = pod.how_it_ended if pod.stage.finished else how or pod.stage.value
        how += f"; before: {pod.last_end}" if pod.last_end else ""
        table.add_row(pod.name, pod.node or "-", str(pod.container_restarts), Text(how))
    if len(pods) > MOST_PODS:
        table.add_row(f"and {len(pods) - MOST_PODS} more", "", "", "")
    return table


def _decision(decision: DecisionRecord) -> Table:
    rows = {
        "reason": decision.reason.value,
        "": decision.message,
        "decided": rfc3339(decision.time) if decision.time else "",
        "chosen": decision.chosen,
        "runner-up": decision.runner_up,
        "what helps": decision.reason.what_to_do,
        "company": "alone until its latency is measured" if decision.alone else "",
        "inputs": f"{decision.inputs_hash or 'not kept'}, epoch {decision.epoch}",
    }
    return facts(rows)


def _size(bounds: Elasticity, members: int, size: SizeRecord) -> Table:
    """Members of an elastic gang, the reason of their number, and possible changes."""
    table = facts()
    table.add_row("members", f"{members} of {bounds.min_replicas} to {bounds.max_replicas}")
    table.add_row("", f"{size.reason}: {size.message}")
    if size.room_since:
        table.add_row("", "there is room for more; it grows when that lasts")
    if size.resumes:
        table.add_row("", "it is between two starts; its places are kept")
    return table


def _sharing(shared: Sharing, lane: LaneStatus | None) -> Table:
    """Renders predicted and observed slowdown, and the model behind them."""
    margin = f"{shared.z} sd, needs {shared.threshold or 'nothing'}" if shared.z else ""
    upper = f", below {times(shared.predicted_upper)} in 95 of 100"
    rows = {
        "share": f"{shared.percent}% and {shared.memory_mib} MiB",
        "predicted": times(shared.predicted) + (upper if shared.predicted_upper else ""),
        "observed": times(shared.observed) if shared.observed else "",
        "turns": _lane(lane) if lane is not None else "",
        "latency": f"{shared.latency_ms} ms" if shared.latency_ms else "",
        "attained": percent(shared.attainment) if shared.attainment else "",
        "margin": margin,
        "group": GROUPS.get(shared.group, shared.group),
        "model": shared.source,
        "risk used": percent(shared.risk_used) if shared.risk_used else "",
    }
    return facts(rows)


def _lane(lane: LaneStatus) -> str:
    """Text such as ``lane 2 of node-3: 4 GiB resident, waits 7 % of its time``."""
    try:
        waits = float(lane.wait_fraction or 0)
    except ValueError:
        waits = 0.0
    line = lane_line(lane.lane, lane.node, lane.persistent_mib, waits)
    return f"{line}; suspended until its next step" if lane.suspended else line


GROUPS: Mapping[str, str] = {
    "G0": "G0: these very classes were seen together on this type of device",
    "G1": "G1: every class is known on this type of device",
    "G2": "G2: a new class of a known family",
    "G3": "G3: nothing is known of the family",
    "G4": "G4: three or more tenants",
}
"""Text of the novelty of a mixture."""


def _refusals(decision: DecisionRecord) -> Table:
    table = table_of("WHAT BINDS", "DEVICES", "NEAREST", "BY HOW MUCH")
    for refusal in decision.refusals:
        table.add_row(
            refusal.reason.value, str(refusal.devices), refusal.nearest or "-", refusal.message
        )
    return table


def _exclusions(exclusions: Iterable[Exclusion]) -> Table:
    table = table_of("LEFT OUT", "SINCE", "UNTIL", "REASON", "WHAT HAPPENED")
    for exclusion in exclusions:
        until = rfc3339(exclusion.until) if exclusion.until else "the agent reports"
        table.add_row(
            str(exclusion.device),
            rfc3339(exclusion.since),
            until,
            exclusion.reason.value,
            exclusion.message,
        )
    return table


def _replacements(replacements: Iterable[Replacement], placement: Sequence[Placement]) -> Table:
    """Members that left slow nodes, and where their successors are."""
    nodes = {part.pod: part.node for part in placement}
    table = table_of("REPLACED", "FROM", "NOW ON", "AT", "REASON", "WHAT HAPPENED")
    for replacement in replacements:
        table.add_row(
            replacement.pod,
            replacement.node,
            nodes.get(replacement.pod, "-"),
            rfc3339(replacement.time),
            replacement.reason.value,
            replacement.message,
        )
    return table


def _pairs(books: AllocationRecord) -> Table:
    """Partners on a device in its turns, predicted speeds of both, and excluded partners."""
    table = table_of(
        "BESIDE", "TYPE", "NOW", "PROMISED", "SHARE", "STEPS/S", "THE OTHER", "RECEIVED"
    )
    for pair in books.pairs:
        table.add_row(
            pair.partner,
            pair.accelerator,
            Text("together", style=GOOD) if pair.since else "",
            percent(pair.fraction),
            f"{pair.percent}%",
            f"{pair.steps_per_second or '-'} (predicted)",
            f"{pair.partner_steps_per_second or '-'} (predicted)",
            f"{pair.seconds} s",
        )
    for left_out in books.parted:
        until = f"left out until {rfc3339(left_out.until)}"
        who = f"class {left_out.workload_class}"
        cells = (f"{until}: {left_out.message}", *[""] * 5)
        table.add_row(Text(who, style=BAD), left_out.accelerator, *cells)
    return table


def _conditions(conditions: Iterable[Condition]) -> Table:
    table = table_of("CONDITION", "STATUS", "REASON", "MESSAGE")
    for condition in conditions:
        table.add_row(condition.type, condition.status, condition.reason, condition.message)
    return table


def top(snapshot: Snapshot, now: float) -> RenderableType:
    """One line per device, and under it one per tenant."""
    owners = {uid: pod.owner.name for uid, pod in snapshot.pods.items()}
    sharing = {
        uid: workload.status.sharing
        for workload in snapshot.workloads.values()
        for uid in (
            *(placement.key.pod_uid for placement in workload.status.placement),
            *(member.pod.uid for member in workload.adopted),
        )
    }
    table = table_of(
        "NODE", "DEVICE", "TENANT", "PERCENT", "MEMORY", "PHASE",
        "PREDICTED", "UPPER", "OBSERVED", "ATTAINED", "RISK",
    )  # fmt: skip
    for node in sorted(snapshot.gpu_nodes.values(), key=lambda n: n.name):
        if not node.devices:
            table.add_row(node.name, "-", Text("no device reported", style=QUIET), *[""] * 8)
        for device in node.devices:
            tenants = [item for item in node.desired if item.gpu == device.uuid]
            table.add_row(node.name, *_device(device, tenants, node, now), *[""] * 5)
            for tenant in tenants:
                shared = sharing.get(tenant.key.pod_uid)
                table.add_row(
                    "", "",
                    f"{tenant.pod_namespace}/{owners.get(tenant.key.pod_uid, tenant.pod_name)}",
                    f"{tenant.percent}%" + f" in lane {tenant.lane}" * (tenant.lane > 0),
                    f"{tenant.memory_mib} MiB",
                    _phase(node, tenant),
                    *_figures(shared),
                )  # fmt: skip
    return table if table.row_count else Text("no GPUNode in this cluster", style=QUIET)


def _figures(shared: Sharing | None) -> tuple[str, ...]:
    """Predicted, upper bound, observed, attainment and the part of the risk budget in use."""
    if shared is None:
        return ("-",) * 5
    return (
        times(shared.predicted),
        times(shared.predicted_upper),
        times(shared.observed),
        percent(shared.attainment),
        percent(shared.risk_used),
    )


def percent(part: str) -> str:
    """A human-readable fraction: ``99.3%``, or a dash."""
    try:
        return f"{float(part):.1%}" if part else "-"
    except ValueError:
        return part


def _device(
    device: ObservedDevice, tenants: list[DesiredSlice], node: GPUNodeRecord, now: float
) -> tuple[RenderableType, ...]:
    parts = [assignment_of(item) for item in tenants]
    total, memory = counted_percent(parts), sum(counted_mib(parts))
    silent = now - node.heartbeat
    health = device.health.value if silent < HEARTBEAT_MAX_AGE_S else f"silent for {age(silent)}"
    return (
        f"{device.uuid} ({device.model})",
        Text(f"{len(tenants)} of {device.contexts}", style="bold"),
        Text(f"{total}%", style="bold"),
        Text(f"{memory} of {device.memory_mib} MiB", style="bold"),
        Text(health, style=GOOD if health == "Healthy" else BAD),
    )


def _phase(node: GPUNodeRecord, tenant: DesiredSlice) -> str:
    return next((seen.phase.value for seen in node.observed if seen.key == tenant.key), "Wanted")


def spend(record: SpendRecord) -> RenderableType:
    """The decision of pools: chosen, runner-up, reason, and time of the next one."""
    decision = record.decision
    if decision is None:
        return Text("its pools were not decided yet")
    committed = " until the end" if decision.committed else ""
    rows = {
        "capacity": f"{decision.mode}{committed}",
        "reason": decision.reason.value,
        "": decision.message,
        "pools": offer(decision.chosen),
        "next best": offer(decision.runner_up) if decision.runner_up is not None else "",
        "to save": _expected(record),
        "since": rfc3339(decision.since) if decision.since else "",
        "looked at again": rfc3339(record.next_decision) if record.next_decision else "",
        "what helps": decision.reason.what_to_do,
        "inputs": f"{decision.inputs_hash or 'not kept'}, epoch {decision.epoch}",
    }
    return Group(Text("where it may run", style="bold"), facts(rows))


def _expected(record: SpendRecord) -> str:
    savings = record.expected_savings
    return f"{savings} $ over the rest of the work, against on-demand" if savings else ""


def offer(option: Offer) -> str:
    """An allocation in a line."""
    if not option.pools:
        return "none for now"
    pools = " + ".join(f"{share.replicas} x {share.pool}" for share in option.pools)
    figures = [f"{option.per_hour} $/h"] if option.per_hour else []
    if option.cost_per_work:
        figures.append(f"{option.cost_per_work} $ per hour of work")
    return f"{pools} ({', '.join(figures)})" if figures else pools
