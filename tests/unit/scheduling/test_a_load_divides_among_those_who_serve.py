# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A declared load is of all replicas: those who serve carry it, and so their neighbours feel it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_profile,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import SETTINGS, Decided, decided
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import OfferedLoad
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.status import DecisionRecord, RefusalLine
from ullage.scheduling.assignment.observe import look
from ullage.scheduling.lifecycle.service_load import replicas_that_serve
from ullage.scheduling.model.slice_ledger import Ledger

ROW = SoloEntry(device="emulated", share=100, steps_per_second=100.0, latency=((0.99, 0.012),))
PROFILE = a_profile("p", ROW)
"""10 ms a request alone: one whole device serves 100 a second."""
OLD = NOW - 600


def serving(replicas: int = 2, load: float = 60.0, latency_ms: int = 500) -> WorkloadBuilder:
    slo = LatencyObjective(latency_ms=latency_ms)
    offered = OfferedLoad(requests_per_s=load, cv2=0.0)
    job = a_service().fractional(50, 50).replicas(replicas).profile("p")
    return job.with_(slo=slo, load=offered)


def refused(service: WorkloadBuilder, reason: Reason = Reason.NO_CAPACITY) -> WorkloadBuilder:
    """The last decision found no place for some of its replicas."""
    record = DecisionRecord(
        time=NOW - 60,
        epoch=7,
        inputs_hash="h",
        chosen="",
        runner_up="",
        reason=reason,
        message="",
        refusals=(RefusalLine(reason=reason, devices=1, nearest="node-1/x", message=""),),
    )
    return service.status(phase="Degraded", decision=record)


def replica(service: WorkloadBuilder, name: str = "serve-a", **fields: object) -> PodRecord:
    base: dict[str, object] = {
        "owner": service.build(),
        "stage": PodStage.RUNNING,
        "node": "node-1",
        "since": OLD,
        "created": OLD,
    }
    return a_pod(name, **(base | fields))  # type: ignore[arg-type]


def waiting(service: WorkloadBuilder, name: str = "serve-b", **fields: object) -> PodRecord:
    return replica(service, name, stage=PodStage.GATED, node="", **fields)


def counted(service: WorkloadBuilder, *pods: PodRecord) -> int:
    """Replicas that carry the load of a service of two or more."""
    snapshot = a_snapshot(service, *pods, a_gpu_node(), now=NOW)
    found = replicas_that_serve(look(snapshot, NOW, SETTINGS, Ledger(snapshot)))
    record = service.build()
    return found.get(record.ref.uid, record.replicas)


def test_who_is_refused_a_place_leaves_its_part_to_the_others() -> None:
    service = refused(serving(3))
    pods = [replica(service), waiting(service), waiting(service, "serve-c")]
    assert counted(service, *pods) == 1
    assert counted(service, pods[0], replica(service, "serve-b"), pods[2]) == 2


@pytest.mark.parametrize(
    "reason",
    [Reason.PLACED, Reason.WAITING_FOR_DECISION, Reason.INTERFERING, Reason.RESERVATION_EXPIRED],
)
def test_who_is_on_its_way_carries_its_part_already(reason: Reason) -> None:
    service = refused(serving(), reason)
    assert counted(service, replica(service), waiting(service)) == 2


def test_a_newcomer_is_not_refused_yet() -> None:
    service = refused(serving())
    assert counted(service, replica(service), waiting(service, created=NOW - 1)) == 2


def test_a_replica_that_does_not_become_ready_carries_nothing() -> None:
    service = serving()
    stuck = replica(service, "serve-b", ready=False)
    assert counted(service, replica(service), stuck) == 1
    assert counted(service, replica(service), replace(stuck, stage_since=NOW - 5)) == 2
    assert counted(service, replica(service), replace(stuck, deleting=True)) == 2


def test_a_replica_that_goes_is_replaced_and_one_too_many_changes_nothing() -> None:
    service = serving()
    assert counted(service, replica(service)) == 2, "its replacement is about to be created"
    more = [replica(service, f"serve-{name}") for name in "abc"]
    assert counted(service, *more) == 2
    assert counted(service, *more[:2], replica(service, "serve-d", ready=False)) == 2


def test_an_update_under_way_does_not_double_the_load_of_the_old_ones() -> None:
    service = refused(serving()).with_(template_hash="fedcba987654")
    old = replica(service, template_hash="0123456789ab")
    new = waiting(service, template_hash="fedcba987654")
    assert counted(service, old, new) == 2


def test_no_one_is_left_with_no_replica_to_carry_it() -> None:
    service = refused(serving())
    pods = [waiting(service), waiting(service, "serve-c")]
    assert counted(service, *pods) == 1


def _joined(service: WorkloadBuilder, *others: PodRecord) -> Decided:
    """A job asks for a place beside the only replica that runs."""
    mine = replica(service)
    held = a_slice(mine, percent=50, memory_mib=1000)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    job = a_job().fractional(25, 25)
    parts: list[Part] = [service, mine, *others, node, PROFILE, job, *job.pods()]
    return decided(*parts)


def test_a_neighbour_is_judged_by_the_load_that_the_replica_carries_now() -> None:
    both = serving(load=60.0)
    starting = replica(both, "serve-b", stage=PodStage.BOUND, node="node-2")
    assert _joined(both, starting).places()["train-0"] == [gpu()]
    alone = refused(both)
    found = _joined(alone, waiting(alone))
    assert "train-0" not in found.places()
    assert "default/serve" in found.decision("train").message


def test_who_could_serve_once_all_are_there_may_start() -> None:
    service = refused(serving(replicas=4, load=150.0))
    others = [waiting(service, f"serve-{name}") for name in "bcd"]
    mine = replica(service)
    held = a_slice(mine, percent=50, memory_mib=1000)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    room = a_gpu_node("node-2", devices=3)
    found = decided(service, mine, *others, node, room, PROFILE)
    assert sorted(found.places()) == ["serve-a", "serve-b", "serve-c", "serve-d"]
