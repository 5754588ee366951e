# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A status that was written reads back as it was, and fits the published schema."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from docs.generate.crds.definition import schema
from fakes.examples import examples
from structure import list_faults, shape_faults, unknown_fields
from ullage.api.base import Resource
from ullage.api.inferencedeployment import InferenceDeployment
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import SliceKey
from ullage.api.trainingjob import TrainingJob
from ullage.cluster.codecs.status import as_stored, status_from_wire, status_to_wire
from ullage.cluster.records.status import (
    MOST_EXCLUSIONS,
    Account,
    AllocationRecord,
    Condition,
    DecisionRecord,
    DroppedDeadline,
    Exclusion,
    FailureRecord,
    MadeRoom,
    Offer,
    Placement,
    PoolShare,
    Progress,
    Received,
    Recommended,
    RefusalLine,
    SchedulingState,
    Sharing,
    SpendDecision,
    SpendRecord,
    WorkloadStatus,
)
from ullage.cluster.records.workload import WorkloadKind

CI = examples(40, many=200)
FEWER = examples(20, many=100)
"""Of the same statuses drawn again: to draw them is what these tests cost."""
JOB, SERVICE = WorkloadKind.TRAINING_JOB, WorkloadKind.INFERENCE_DEPLOYMENT

PHASES = schema(TrainingJob)["properties"]["status"]["properties"]["phase"]["enum"]

times = st.integers(1, 4_000_000_000).map(float)
maybe_time = st.just(0.0) | times
words = st.text("abcXYZ019-", min_size=1, max_size=12)
lines = st.text(max_size=30)
small = st.integers(0, 1000)
decimals = st.just("") | st.decimals(0, 999, places=3).map(str)

conditions = st.builds(
    Condition,
    type=st.sampled_from(ConditionType).map(str),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(Reason).map(str),
    message=lines,
    since=maybe_time,
    observed_generation=small,
)
placements = st.builds(
    Placement,
    key=st.builds(SliceKey, pod_uid=words, container=words, index=st.integers(0, 15)),
    pod=words,
    node=words,
    gpu=words,
    percent=st.integers(1, 100),
    memory_mib=small,
    epoch=small,
)
refusals = st.builds(
    RefusalLine, reason=st.sampled_from(Reason), devices=small, nearest=lines, message=lines
)
decisions = st.builds(
    DecisionRecord,
    time=times,
    epoch=small,
    inputs_hash=words,
    chosen=lines,
    runner_up=lines,
    reason=st.sampled_from(Reason),
    message=lines,
    refusals=st.lists(refusals, max_size=8, unique_by=lambda line: line.reason).map(tuple),
    alone=st.booleans(),
    identity=st.just("") | words,
)
exclusions = st.builds(
    Exclusion,
    reason=st.sampled_from(Reason),
    node=words,
    gpu=words,
    since=times,
    until=maybe_time,
    message=lines,
)
scheduling = st.builds(
    SchedulingState,
    exclusions=st.lists(exclusions, max_size=MOST_EXCLUSIONS).map(tuple),
    preemptions=st.integers(1, 1000),
    preempted_at=times,
) | st.builds(SchedulingState, exclusions=st.lists(exclusions, max_size=2).map(tuple))
sharing = st.builds(
    Sharing,
    percent=st.integers(1, 100),
    memory_mib=small,
    predicted=decimals,
    observed=decimals,
)
progress = st.builds(
    Progress,
    steps=small,
    resumed_at=small,
    total=small,
    percent=st.integers(0, 100),
    expected_percent=st.integers(0, 100),
    steps_per_second=decimals,
    eta=maybe_time,
)
types = st.sampled_from(["a100", "h100", "k80"])
deltas = st.decimals(-999, 999, places=1).map(str)


def by_type(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    """A value by accelerator type, sorted by it."""
    return st.dictionaries(types, values, max_size=3).map(lambda one: tuple(sorted(one.items())))


allocations = st.builds(
    AllocationRecord,
    since=times,
    fractions=by_type(st.decimals(0, 1, places=4).map(str)),
    effective_throughput=decimals,
    normalised_share=decimals,
    source=st.sampled_from(["", "Measured", "Declared", "Estimated", "Neutral"]),
    deficit_seconds=by_type(deltas),
    received=by_type(st.builds(Received, seconds=small, since=maybe_time)),
    isolated_seconds=decimals,
    skipped_since=maybe_time,
    restart_seconds=decimals,
    dropped=st.none()
    | st.builds(
        DroppedDeadline,
        cause=st.sampled_from(["Passed", "TooSlow", "Contended", "WorkUnknown"]),
        needed=decimals,
        best=decimals,
        approximate=st.booleans(),
    ),
)
made_rooms = st.builds(
    MadeRoom,
    time=times,
    percent=st.integers(1, 100),
    node=words,
    gpu=words,
    beneficiary=words,
    beneficiary_uid=words,
)
failures = st.builds(
    FailureRecord,
    time=times,
    count=small,
    nodes=st.lists(types, max_size=3, unique=True).map(lambda names: tuple(sorted(names))),
)
maybe_small = st.none() | small
recommendations = st.lists(
    st.builds(
        Recommended,
        accelerator=types,
        devices=small,
        reason=st.sampled_from(Reason),
        total_s=maybe_small,
        low_s=maybe_small,
        high_s=maybe_small,
        cost=decimals,
        source=st.sampled_from(["", "Measured", "Declared", "Estimated"]),
        confidence=decimals,
        need_mib=maybe_small,
        message=lines,
    ),
    max_size=3,
    unique_by=lambda row: row.accelerator,
).map(tuple)
offers = st.builds(
    Offer,
    pools=st.lists(
        st.builds(PoolShare, pool=types, replicas=small), max_size=3, unique_by=lambda p: p.pool
    ).map(lambda pools: tuple(sorted(pools, key=lambda p: p.pool))),
    cost_per_work=decimals,
    per_hour=decimals,
)
money = st.just("") | st.decimals("0", "999999999", places=6).map(lambda one: f"{one:f}")
sums = {
    "since": times,
    "as_of": times,
    "total": money,
    "on_demand_total": money,
    "per_hour": money,
    "on_demand_per_hour": money,
    "vs_on_demand": money,
    "unpriced_seconds": small,
    "message": lines,
}
accounts = st.builds(
    Account,
    per_thousand_steps=money,
    first_step=small,
    earlier_steps=small,
    reached_steps=small,
    lost_steps=small,
    lost_seconds=small,
    assumed_steps=small,
    assumed_seconds=small,
    on_demand_seconds=small,
    evictions=small,
    **sums,
)
spendings = st.builds(
    SpendRecord,
    account=st.none() | accounts,
    decision=st.builds(
        SpendDecision,
        time=times,
        epoch=small,
        inputs_hash=st.just("") | words,
        mode=st.sampled_from(["Idle", "Spot", "OnDemand"]),
        reason=st.sampled_from(Reason),
        message=lines,
        chosen=offers,
        runner_up=st.none() | offers,
        committed=st.booleans(),
        since=maybe_time,
    ),
    next_decision=maybe_time,
    expected_savings=st.just("") | decimals | st.just("-12.5"),
)
common = {
    "observed_generation": small,
    "placement": st.lists(placements, max_size=3, unique_by=lambda p: p.key).map(tuple),
    "decision": st.none() | decisions,
    "scheduling": scheduling,
    "sharing": st.none() | sharing,
    "template_hash": st.just("") | words,
    "conditions": st.lists(conditions, max_size=4, unique_by=lambda c: c.type).map(tuple),
}
job_statuses = st.builds(
    WorkloadStatus,
    phase=st.sampled_from(PHASES),
    restarts=small,
    retry_at=maybe_time,
    last_failure=st.none() | failures,
    nodes=lines,
    gpus=small,
    start_time=maybe_time,
    completion_time=maybe_time,
    progress=st.none() | progress,
    allocation=st.none() | allocations,
    recommendation=recommendations,
    recommendation_basis=st.just("") | words,
    spend=st.none() | spendings,
    made_room=st.none() | made_rooms,
    **common,
)
service_statuses = st.builds(
    WorkloadStatus,
    phase=st.sampled_from(["Pending", "Ready", "Degraded"]),
    replicas=small,
    ready_replicas=small,
    selector=lines,
    endpoint=lines,
    spend=st.none() | st.builds(SpendRecord, account=st.builds(Account, **sums)),
    **common,
)


def ordered(status: WorkloadStatus) -> WorkloadStatus:
    """The status with its lists in an order of their own, as server-side apply may leave them."""
    decision = status.decision
    if decision is not None:
        lines = sorted(decision.refusals, key=repr)
        decision = replace(decision, refusals=tuple(lines))
    return replace(
        status,
        decision=decision,
        placement=tuple(sorted(status.placement, key=repr)),
        conditions=tuple(sorted(status.conditions, key=repr)),
    )


@CI
@given(job_statuses)
def test_a_training_jobs_status_reads_back_equal(status: WorkloadStatus) -> None:
    back = status_from_wire(JOB, status_to_wire(JOB, status))
    assert ordered(back) == ordered(status)
    assert status_from_wire(JOB, status_to_wire(JOB, back)) == back


@CI
@given(service_statuses)
def test_an_inference_deployments_status_reads_back_equal(status: WorkloadStatus) -> None:
    back = status_from_wire(SERVICE, status_to_wire(SERVICE, status))
    assert ordered(back) == ordered(status)
    assert status_from_wire(SERVICE, status_to_wire(SERVICE, back)) == back


@FEWER
@given(job_statuses, st.randoms(use_true_random=False))
def test_the_order_that_the_api_keeps_its_lists_in_does_not_matter(
    status: WorkloadStatus, random: Any
) -> None:
    wire = status_to_wire(JOB, status)
    for field in ("conditions", "placement"):
        items = wire.get(field)
        if isinstance(items, list):
            random.shuffle(items)
    decision = wire.get("decision")
    if isinstance(decision, dict):
        random.shuffle(decision.get("refusals", []))
    assert status_from_wire(JOB, wire) == as_stored(JOB, status)


@FEWER
@given(job_statuses)
def test_every_field_of_a_job_is_in_the_schema(status: WorkloadStatus) -> None:
    assert fits(TrainingJob, status_to_wire(JOB, status))


@FEWER
@given(service_statuses)
def test_every_field_of_a_service_is_in_the_schema(status: WorkloadStatus) -> None:
    assert fits(InferenceDeployment, status_to_wire(SERVICE, status))


@FEWER
@given(job_statuses)
def test_what_the_api_cannot_hold_is_removed_once(status: WorkloadStatus) -> None:
    assert ordered(as_stored(JOB, status)) == ordered(status)
    assert as_stored(SERVICE, as_stored(SERVICE, status)) == as_stored(SERVICE, status)


def fits(kind: type[Resource], wire: dict[str, object]) -> bool:
    """Whether the API server takes the status and keeps all of it."""
    node = schema(kind)["properties"]["status"]
    faults = [*shape_faults(node, wire), *list_faults(node, wire), *unknown_fields(node, wire)]
    assert faults == []
    return True


def test_fractions_of_a_second_and_long_texts_are_cut() -> None:
    status = WorkloadStatus(
        phase="Pending",
        start_time=12.9,
        decision=DecisionRecord(
            time=5.5,
            epoch=1,
            inputs_hash="x",
            chosen="y" * 3000,
            runner_up="",
            reason=Reason.PLACED,
            message="",
        ),
    )
    stored = as_stored(JOB, status)
    assert stored.start_time == 12.0
    assert stored.decision is not None
    assert stored.decision.time == 5.0
    assert len(stored.decision.chosen) == 1024


def test_replicas_of_a_service_are_said_even_when_there_are_none() -> None:
    assert status_to_wire(SERVICE, WorkloadStatus(phase="Pending")) == {
        "phase": "Pending",
        "replicas": 0,
        "readyReplicas": 0,
    }
    assert status_to_wire(JOB, WorkloadStatus()) == {}
