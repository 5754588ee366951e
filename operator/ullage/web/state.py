# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of the web page, from the records that ``kubectl ullage`` reads too.

Pure. Bounded: of each list the first entries by need, and the total number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from ullage.api.devices import Health, ObservedDevice
from ullage.api.rank_traces import TimeBreakdown
from ullage.api.slices import DesiredSlice
from ullage.api.times import rfc3339
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.lanes.assignment import assignment_of, counted_mib, counted_percent
from ullage.scheduling.accounting.bills import Bill, bill_of, party_of, total
from ullage.scheduling.model.phases import OVER, Phase
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S

MOST_DEVICES: Final = 256
MOST_ROWS: Final = 200
"""Maximum rows of the queue, of the objectives and of the tenants."""
MOST_TRACES: Final = 50
MOST_RANKS: Final = 16
LONGEST_TEXT: Final = 300
"""Maximum characters of a name or a message; ``kubectl ullage why`` has the whole one."""
_WAITS: Final = (Phase.PENDING, Phase.RESERVING, Phase.STARTING, Phase.RESTARTING)

Json = dict[str, object]


def page_state(
    snapshot: Snapshot, currency: str, requests: Iterable[ProfileRequestRecord] = ()
) -> Json:
    """Everything on the page, as JSON.

    Args:
        snapshot: The current snapshot.
        currency: Currency of the prices, ISO 4217.
        requests: Requests for step traces.
    """
    workloads = list(snapshot.workloads.values())
    return {
        "takenAt": rfc3339(snapshot.taken_at),
        "currency": currency,
        "devices": _listed(_devices(snapshot), MOST_DEVICES),
        "queue": _listed(_queue(snapshot), MOST_ROWS),
        "objectives": _listed(_objectives(workloads), MOST_ROWS),
        "traces": _listed(_traces(requests, snapshot.taken_at), MOST_TRACES),
        "cost": _listed(_costs(snapshot), MOST_ROWS),
    }


def _listed(items: Sequence[Json], most: int) -> Json:
    return {"total": len(items), "items": list(items[:most])}


def cut(text: str) -> str:
    """A text truncated to a number of characters; unprintable ones become spaces."""
    short = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    return "".join(letter if letter.isprintable() else " " for letter in short)


def _devices(snapshot: Snapshot) -> list[Json]:
    """Unhealthy devices first, then by node."""
    owners = {uid: pod.owner.name for uid, pod in snapshot.pods.items()}
    devices = []
    for node in snapshot.gpu_nodes.values():
        held = defaultdict(list)
        for desired in node.desired:
            held[desired.gpu].append(desired)
        silent = snapshot.taken_at - node.heartbeat > HEARTBEAT_MAX_AGE_S
        for device in node.devices:
            health = "Silent" if silent else device.health.value
            devices.append(_device(node, device, health, held[device.uuid], owners))
    return sorted(
        devices,
        key=lambda row: (row["health"] == Health.HEALTHY, str(row["node"]), str(row["uuid"])),
    )


def _device(
    node: GPUNodeRecord,
    device: ObservedDevice,
    health: str,
    tenants: Sequence[DesiredSlice],
    owners: dict[str, str],
) -> Json:
    phases = {seen.key: seen.phase.value for seen in node.observed}
    parts = [assignment_of(tenant) for tenant in tenants]
    granted = counted_percent(parts)
    usable = health == Health.HEALTHY
    return {
        "node": cut(node.name),
        "index": device.index,
        "uuid": cut(device.uuid),
        "accelerator": cut(device.model),
        "health": health,
        "grantedPercent": granted,
        "headroomPercent": max(0, WHOLE_PERCENT - granted) if usable else 0,
        "memoryMiB": device.memory_mib,
        "grantedMemoryMiB": sum(counted_mib(parts)),
        "slices": [
            {
                "namespace": cut(tenant.pod_namespace),
                "name": cut(owners.get(tenant.key.pod_uid, tenant.pod_name)),
                "percent": tenant.percent,
                "lane": tenant.lane,
                "memoryMiB": tenant.memory_mib,
                "phase": phases.get(tenant.key, "Wanted"),
            }
            for tenant in sorted(tenants, key=lambda tenant: (-tenant.percent, tenant.pod_name))
        ],
    }


def _named(workload: WorkloadRecord) -> Json:
    return {
        "kind": workload.kind.value,
        "namespace": cut(workload.ref.namespace),
        "name": cut(workload.ref.name),
        "phase": workload.status.phase or Phase.PENDING.value,
    }


def _queue(snapshot: Snapshot) -> list[Json]:
    """Workloads before Running: highest priority first, ties to the oldest."""
    waiting = [
        workload
        for workload in snapshot.workloads.values()
        if (workload.status.phase or Phase.PENDING) in _WAITS and not workload.suspend
    ]
    waiting.sort(key=lambda workload: (-workload.priority, workload.created, workload.ref.uid))
    return [_waiting(workload, snapshot) for workload in waiting]


def _waiting(workload: WorkloadRecord, snapshot: Snapshot) -> Json:
    decision = workload.status.decision
    reason = decision.reason if decision is not None else None
    return _named(workload) | {
        "priority": workload.priority,
        "tenant": cut(party_of(snapshot.policy, workload)),
        "ageSeconds": max(0, int(snapshot.taken_at - workload.created)),
        "reason": "" if reason is None else reason.value,
        "message": cut(decision.message) if decision is not None else "not decided yet",
        "whatHelps": "" if reason is None else reason.what_to_do,
    }


def _objectives(workloads: Iterable[WorkloadRecord]) -> list[Json]:
    """Work that shares a device, the largest observed slowdown first."""
    objectives = [
        _named(workload)
        | {
            "percent": shared.percent,
            "maxSlowdown": "" if workload.max_slowdown is None else f"{workload.max_slowdown:g}",
            "predicted": shared.predicted,
            "upper": shared.predicted_upper,
            "observed": shared.observed,
            "attainment": shared.attainment,
        }
        for workload in workloads
        if (shared := workload.status.sharing) is not None and workload.status.phase not in OVER
    ]
    return sorted(
        objectives,
        key=lambda row: (-_number(row["observed"]), str(row["namespace"]), str(row["name"])),
    )


def _number(value: object) -> float:
    try:
        return float(str(value) or 0)
    except ValueError:
        return 0.0


def _traces(requests: Iterable[ProfileRequestRecord], now: float) -> list[Json]:
    """Finished traces of jobs, the newest first: figures alone, no text of a trace."""
    done = [request for request in requests if request.status.result is not None]
    done.sort(key=lambda request: (-request.status.completion_time, request.ref.uid))
    return [_trace(request, now) for request in done]


def _trace(request: ProfileRequestRecord, now: float) -> Json:
    status, result = request.status, request.status.result
    assert result is not None
    window, straggler = status.window, result.straggler
    return {
        "kind": cut(request.job_kind or "Pods"),
        "namespace": cut(request.ref.namespace),
        "name": cut(request.job_name or request.ref.name),
        "ageSeconds": max(0, int(now - status.completion_time)),
        "steps": f"{window.first_step}-{window.last_step}" if window is not None else "",
        "last": None if straggler is None else straggler.rank,
        "ranks": [
            {
                "rank": rank.rank,
                "computePercent": _percent(rank.step, rank.step.compute_micros),
                "communicationPercent": _percent(rank.step, rank.step.communication_micros),
                "dataWaitPercent": _percent(rank.step, rank.step.data_wait_micros),
            }
            for rank in result.ranks[:MOST_RANKS]
        ],
        "ranksLeftOut": result.ranks_left_out + max(0, len(result.ranks) - MOST_RANKS),
    }


def _percent(step: TimeBreakdown, micros: int) -> int:
    return round(100 * step.share(micros))


def _costs(snapshot: Snapshot) -> list[Json]:
    """One row for each tenant, the most expensive first."""
    bills: dict[str, list[Bill]] = defaultdict(list)
    for workload in snapshot.workloads.values():
        bill = bill_of(workload, snapshot.taken_at)
        if bill is not None:
            bills[party_of(snapshot.policy, workload)].append(bill)
    sums = {party: total(party_bills) for party, party_bills in bills.items()}
    return [
        {
            "tenant": cut(party),
            "workloads": bill.workloads,
            "spent": _money(bill.spent),
            "perHour": _money(bill.per_hour),
            "saved": _money(bill.saved),
            "lostSeconds": bill.lost_seconds,
        }
        for party, bill in sorted(
            sums.items(), key=lambda entry: (-(entry[1].spent or 0), entry[0])
        )
    ]


def _money(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount:.2f}"
