# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the code writes and assumes is what the schema stores: names, words and defaults."""

from __future__ import annotations

import pytest

from docs.generate.crds.definition import schema
from structure import faults
from ullage.api.base import Resource
from ullage.api.checks import CheckState, NodeCheck
from ullage.api.dataio import LoaderState, ObservedLoader, ObservedStarvation, StarvationCause
from ullage.api.devices import Backend, GPUMode, Health, MpsState, MpsStatus, ObservedDevice
from ullage.api.faults import DeviceFault, Suspect
from ullage.api.gpunode import GPUNode
from ullage.api.inferencedeployment import InferenceDeployment
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.loads import ObservedLoad
from ullage.api.objective import LatencySLO
from ullage.api.observations import Fingerprint, LatencyObjective, Observation, ObservedPartner
from ullage.api.reasons import ConditionType, Reason
from ullage.api.schedulingpolicy import SchedulingPolicySpec
from ullage.api.slices import (
    DesiredSlice,
    ObservedLane,
    ObservedRank,
    ObservedSlice,
    Proof,
    SliceKey,
    SlicePhase,
)
from ullage.api.traces import ObservedTrace, TraceState
from ullage.api.trainingjob import ElasticitySpec, TrainingJob
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule
from ullage.cluster.codecs.status import status_to_wire
from ullage.cluster.records import policy as records
from ullage.cluster.records.efficiency import EfficiencyRecord, FindingRecord
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import (
    Account,
    AllocationRecord,
    ChosenShare,
    Condition,
    DecisionRecord,
    Exclusion,
    FailureRecord,
    LaneStatus,
    MadeRoom,
    NeedRecord,
    Placement,
    Progress,
    Recommended,
    RefusalLine,
    ReplicaChoice,
    ScalingHistory,
    ScalingRecord,
    SchedulingState,
    Sharing,
    SizeRecord,
    SpendRecord,
    WorkloadStatus,
)
from ullage.cluster.records.tier import TierRecord
from ullage.cluster.records.workload import WorkloadKind
from ullage.engines.efficiency.ledger import UsageMark
from ullage_node.status import StatusFacts, body_of

KEY = SliceKey(pod_uid="uid-1", container="main", index=1)
DESIRED = DesiredSlice(
    key=KEY,
    pod_namespace="default",
    pod_name="train-0",
    gpu="gpu-1",
    percent=40,
    memory_mib=1024,
    epoch=3,
    priority=7,
    protected=True,
    workload_class="resnet50-amp",
    family="resnet",
    trust_domain="namespace/default",
    max_slowdown_percent=130,
    solo_step_micros=400,
    slo=LatencyObjective(latency_ms=40, percentile="99.9", metric="seconds", window_seconds=7),
    probation=True,
    alert_only=True,
    reports_load=True,
    context_overhead_mib=300,
    persistent_mib=256,
    ephemeral_mib=768,
    lane=2,
    suspendable=True,
    inject=True,
    rebalance=True,
    work_steps=3000,
)
OBSERVED = ObservedSlice(
    key=KEY,
    phase=SlicePhase.ATTACHED,
    gpu="gpu-1",
    percent=40,
    memory_mib=1024,
    epoch=3,
    reason="Enforced",
    message="limits verified",
    pids=(11, 12),
    sm_count=20,
    proof=Proof.REPORTED,
    memory_used_mib=100,
    steps=5,
    items=50,
    load=ObservedLoad(
        seconds=15,
        requests_milli=12_000,
        request_micros=81_000,
        latency_micros=90_000,
        late_milli=4,
    ),
    usage=ObservedUsage(
        allocated_ms=3_600_000,
        used_ms=900_000,
        withheld_ms=20_000,
        unmeasured_ms=1000,
        estimated=True,
        recent=RecentUsage(
            allocated_ms=810_000,
            used_ms=90_000,
            withheld_ms=1000,
            needed_percent=31,
            duty_percent=92,
            kernel_idle_percent=40,
            memory_mib=1024,
        ),
    ),
    step_micros=900,
    solo_step_micros=400,
    latency_micros=41_000,
    windows=30,
    violations=2,
    checkpoint_age_s=95,
    resumed_at=5_000,
    lane=2,
    persistent_mib=256,
    ephemeral_mib=768,
    lane_wait_percent=7,
    suspendable=True,
    suspended=True,
    ranks=(
        ObservedRank(
            rank=3,
            steps=1200,
            step_micros=52_700,
            compute_micros=9_400,
            wait_micros=25_300,
            data_wait_micros=17_800,
            throttled_percent=60,
            batch=18,
            even_batch=32,
            even_reason="NotTimed",
            even_step_micros=71_000,
        ),
    ),
    persistent_peak_mib=250,
    ephemeral_peak_mib=700,
    loader=ObservedLoader(
        state=LoaderState.TUNED,
        first_workers=2,
        workers=6,
        prefetch=2,
        first_wait_percent=31,
        wait_percent=4,
        message="as tuned",
    ),
)
LANE = ObservedLane(gpu="gpu-1", lane=2, size_mib=768, residents=3, waiting=1, suspended=2)
MPS = MpsStatus(protocol=2, state=MpsState.ACTIVE, server_pid=4100, contexts=2, context_limit=48)
DEVICE = ObservedDevice(
    uuid="gpu-1",
    model="emulated",
    product_name="Emulated",
    memory_mib=8192,
    contexts=8,
    modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
    health=Health.HEALTHY,
    backend=Backend.EMULATED,
    mps=MPS,
    index=1,
    suspends=True,
    least_percent=2,
    alone=True,
)
OBSERVATION = Observation(
    id="uid-1/main/30",
    workload_class="resnet50-amp",
    namespace="default",
    accelerator="emulated",
    percent=40,
    step_micros=900,
    at_s=1_767_607_500,
    family="resnet",
    partners=(
        ObservedPartner(workload_class="bert", percent=50),
        ObservedPartner(workload_class="gpt", percent=10),
    ),
    solo_step_micros=400,
    latency_micros=41_000,
    percentile="99.9",
    requests_milli=12_000,
    max_slowdown_percent=130,
    image="sha256:0f2c",
    frozen=True,
    probation=True,
    violated=True,
    fingerprint=Fingerprint(**{one: 5 + at for at, one in enumerate(Fingerprint.__slots__)}),
)


def test_every_field_of_a_slice_is_in_the_schema_and_comes_back() -> None:
    node = schema(GPUNode)["properties"]["spec"]["properties"]["slices"]["items"]
    wire = DESIRED.to_wire()
    assert faults(node, wire) == []
    assert wire.keys() == node["properties"].keys()
    assert DesiredSlice.from_wire(wire) == DESIRED


@pytest.mark.parametrize(
    ("field", "record"),
    [
        ("slices", OBSERVED),
        ("devices", DEVICE),
        ("lanes", LANE),
        ("observations", OBSERVATION),
    ],
)
def test_every_field_of_a_report_is_in_the_schema_and_comes_back(
    field: str, record: ObservedSlice | ObservedDevice | ObservedLane | Observation
) -> None:
    node = schema(GPUNode)["properties"]["status"]["properties"][field]["items"]
    wire = record.to_wire()
    assert faults(node, wire) == []
    assert wire.keys() == node["properties"].keys()
    assert type(record).from_wire(wire) == record


STATUS = WorkloadStatus(
    observed_generation=2,
    phase="Pending",
    restarts=1,
    retry_at=1000.0,
    spend=SpendRecord(account=Account(since=1000.0, as_of=1060.0, total="1.5")),
    efficiency=EfficiencyRecord(
        since=1000.0,
        attempt=1,
        as_of=1060.0,
        row=DeviceTime(allocated_ms=60_000, used_ms=20_000, withheld_ms=1, unmeasured_ms=2),
        earlier=DeviceTime(allocated_ms=5, used_ms=4, withheld_ms=1, unmeasured_ms=2),
        mark=UsageMark(slices=1, allocated_ms=7, used_ms=4, withheld_ms=1, unmeasured_ms=2),
        used_ratio="0.333",
        gain="0.65",
        per_device_hour="2.48",
        estimated=True,
        findings=(
            FindingRecord(
                rule=EfficiencyRule.OVERSIZED_SHARE,
                since=1000.0,
                gain="0.65",
                confidence="0.7",
                percent=35,
                memory_mib=2048,
                message="on 28 % of a device the work would have taken 2 % longer at most",
            ),
        ),
    ),
    made_room=MadeRoom(
        time=1000.0,
        percent=50,
        node="node-1",
        gpu="gpu-1",
        beneficiary="default/other",
        beneficiary_uid="uid-other",
    ),
    nodes="node-1",
    gpus=1,
    start_time=1000.0,
    completion_time=2000.0,
    placement=(
        Placement(
            key=KEY, pod="p", node="node-1", gpu="gpu-1", percent=40, memory_mib=1024, epoch=3
        ),
    ),
    decision=DecisionRecord(
        time=1000.0,
        epoch=3,
        inputs_hash="abc",
        chosen="node-1/gpu-1 at 40 %",
        runner_up="node-1/gpu-2 at 40 %",
        reason=Reason.PLACED,
        message="placed",
        refusals=(
            RefusalLine(reason=Reason.NO_CAPACITY, devices=1, nearest="gpu-3", message="held"),
        ),
        alone=True,
        identity="0123456789abcdef",
    ),
    scheduling=SchedulingState(
        exclusions=(
            Exclusion(
                reason=Reason.INTERFERING,
                node="node-1",
                gpu="gpu-1",
                since=1000.0,
                until=1300.0,
                message="it slows others down",
            ),
        ),
        preemptions=2,
        preempted_at=1000.0,
    ),
    metrics=(EpochValue(epoch=1, value=0.5),),
    progress=Progress(
        steps=1,
        resumed_at=1,
        total=10,
        percent=10,
        expected_percent=8,
        steps_per_second="1.5",
        eta=3000.0,
    ),
    allocation=AllocationRecord(since=1000.0, fractions=(("nvidia-l4", "0.5"),)),
    recommendation=(
        Recommended(
            accelerator="nvidia-l4",
            devices=2,
            reason=Reason.RECOMMENDED,
            total_s=7200,
            low_s=6000,
            high_s=8400,
            cost="3.2",
            source="Estimated",
            confidence="0.42",
            need_mib=9100,
            message="2 x nvidia-l4, 2.00 h",
        ),
    ),
    recommendation_basis="abc",
    sharing=Sharing(
        percent=40,
        memory_mib=1024,
        predicted="1.25",
        predicted_upper="1.4",
        observed="1.3",
        latency_ms=38,
        attainment="0.99",
        group="G1",
        source="prior+gp",
        z="-0.5",
        threshold="Refuse",
        risk_used="0.003",
    ),
    gpu=LaneStatus(
        lane=2,
        node="n1",
        persistent_mib=256,
        ephemeral_peak_mib=700,
        wait_fraction="0.07",
        suspended=True,
    ),
    last_failure=FailureRecord(time=1000.0, count=1, nodes=("n1", "n2")),
    template_hash="abc",
    replicas=2,
    size=SizeRecord(
        since=1000.0, reason=Reason.SHRUNK, message="one is gone", resumes=1000.0, room_since=2000.0
    ),
    tier=TierRecord(
        stage=2,
        ratio="7:1",
        epoch=12,
        observed_at=1000.0,
        last_consistent_step=18211,
        backup_lag_steps=1,
        lost_steps=3,
    ),
    scaling=ScalingRecord(
        load="18.2",
        forecast="21",
        predicted_ms=210,
        chosen=ReplicaChoice(replicas=3, percent=30, accelerator="emulated"),
        runner_up=ReplicaChoice(replicas=2, percent=30, accelerator="emulated", predicted_ms=640),
        share=ChosenShare(percent=30, accelerator="emulated", time=1000.0),
        reason=Reason.STEADY,
        message="3 replicas",
        last_scale_time=1000.0,
        launch_seconds=30,
        history=ScalingHistory(
            as_of=1060.0,
            rates_milli=(17_900, 18_200),
            needs=(NeedRecord(time=1060.0, replicas=3),),
            caution="0.8995",
            service_micros=98_000,
            spread="0.412",
            percent=30,
            accelerator="emulated",
            season_milli=(17_000, 18_000),
        ),
    ),
    ready_replicas=1,
    selector="a=b",
    endpoint="http://a",
    conditions=(
        Condition(type=ConditionType.ADMITTED, status="True", reason=Reason.PLACED, since=1000.0),
    ),
)


@pytest.mark.parametrize("kind", [TrainingJob, InferenceDeployment], ids=lambda kind: kind.__name__)
def test_whole_workload_status_is_stored_as_written(kind: type[Resource]) -> None:
    written = status_to_wire(WorkloadKind(kind.__name__), STATUS)
    node = schema(kind)["properties"]["status"]
    assert faults(node, written) == []
    assert node["properties"].keys() == written.keys()


def test_whole_node_status_is_stored_as_written() -> None:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Registered",
        "message": "",
        "lastTransitionTime": "2026-01-05T10:00:00Z",
    }
    facts = StatusFacts(
        name="node-1",
        uid="uid-1",
        generation=2,
        epoch=3,
        version="0.1.0",
        driver="580.65.06",
        devices=(DEVICE,),
        slices=(OBSERVED,),
        lanes=(LANE,),
        slots=8,
        used_slots=1,
        conditions=(condition,),
        faults=(
            DeviceFault(
                id="a",
                gpu="GPU-a",
                xid=31,
                at_s=1767326400.0,
                suspects=(Suspect(pod_uid="u", namespace="n", pod="p", workload_class="c"),),
            ),
        ),
        interruption=Interruption(
            kind=InterruptionKind.TERMINATE, deadline_s=1767326400.0, source="EC2"
        ),
        checks=(NodeCheck(name="Driver", state=CheckState.OK, message="580.65.06"),),
        traces=(ObservedTrace(id="a", pod_uid="u", state=TraceState.READY, step=7),),
        starvations=(
            ObservedStarvation(
                volume="loop1",
                pod_uid="u",
                namespace="n",
                pod="p",
                hog_uid="v",
                hog_namespace="m",
                hog="etl",
                hog_percent=78,
                cause=StarvationCause.BANDWIDTH,
                bytes_per_s=45_000_000,
                wanted_bytes_per_s=180_000_000,
                limit_bytes_per_s=90_000_000,
                windows=3,
            ),
        ),
    )
    written = body_of(facts, "2026-01-05T10:00:00Z")["status"]
    node = schema(GPUNode)["properties"]["status"]
    assert faults(node, written) == []
    assert node["properties"].keys() == written.keys() | {"observations"}


def test_defaults_of_the_schema_are_those_of_the_records() -> None:
    policy, plain = SchedulingPolicySpec(), records.PolicyRecord()
    assert policy.objective == plain.objective
    assert policy.packing.max_percent_sum == plain.max_percent_sum
    assert policy.round_seconds == plain.round_seconds
    assert policy.gang_skip_limit == plain.gang_skip_limit
    assert policy.min_service_percent == plain.min_service_percent
    assert policy.sharing.lane_policy == plain.lane_policy
    assert policy.decision_period_s == plain.spot.decision_period_s
    assert policy.min_savings_percent == plain.spot.min_savings_percent
    slo = LatencySLO(latency_ms=40)
    assert LatencyObjective.from_wire({"latencyMs": 40}) == LatencyObjective(
        latency_ms=40, percentile=str(slo.percentile), window_seconds=slo.window_seconds
    )
    bounds, held = (
        ElasticitySpec(min_replicas=1, max_replicas=2),
        Elasticity(min_replicas=1, max_replicas=2),
    )
    assert (bounds.on_notice, bounds.in_place) == (held.on_notice, held.in_place)
