# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from builders_raw import raw_job, raw_meta, raw_service, raw_template
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.pod_template import canonical_json, template_hash
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord

JOB = WorkloadKind.TRAINING_JOB
SERVICE = WorkloadKind.INFERENCE_DEPLOYMENT


def job(**fields: Any) -> WorkloadRecord:
    return project_workload(JOB, raw_job(**fields), None, Sharer())[0]


def test_a_full_training_job_is_read() -> None:
    record = job(
        replicas=4,
        suspend=True,
        gpu={
            "mode": "Fractional",
            "count": 1,
            "share": {"minPercent": 20, "maxPercent": 60},
            "memory": {"limit": "6Gi"},
        },
        accelerators=["a", "b"],
        slo={"maxSlowdown": "1.3"},
        work={"steps": 1000},
        checkpoint={"signal": "SIGTERM", "graceSeconds": 90},
        failurePolicy={"maxRestarts": 5, "retryExitCodes": [1, 137]},
        ttlSecondsAfterFinished=0,
        trustDomain="team",
        profileRef="resnet",
        template=raw_template(priority=7),
    )
    assert not record.invalid
    assert record.replicas == 4
    assert record.suspend
    assert record.gpu == GPURequest(
        mode=GPUMode.FRACTIONAL,
        share=Share(min_percent=20, max_percent=60),
        memory_mib=6144,
    )
    assert record.accelerators == ("a", "b")
    assert record.max_slowdown == 1.3
    assert record.work_steps == 1000
    assert record.checkpoint
    assert record.failure.max_restarts == 5
    assert record.failure.retry_exit_codes == {1, 137}
    assert record.ttl_seconds_after_finished == 0
    assert record.trust_domain == "team"
    assert record.profile_ref == "resnet"
    assert record.priority == 7


def lane(**more: Any) -> dict[str, Any]:
    """``spec.gpu`` of a job that shares a lane."""
    memory = {"persistent": "512Mi", "ephemeral": "2Gi", **more.pop("lane", {})}
    return {"mode": "Fractional", "share": {"minPercent": 20}, "lane": memory, **more}


def test_a_job_that_shares_a_lane_may_allocate_both_parts() -> None:
    record = job(gpu=lane(lane={"switching": "Cooperative"}))
    assert not record.invalid
    assert record.gpu.lane is not None
    assert (record.gpu.lane.persistent_mib, record.gpu.lane.ephemeral_mib) == (512, 2048)
    assert record.gpu.memory_mib == 2560


def test_a_job_that_may_be_suspended_keeps_nothing_for_good() -> None:
    memory = job(gpu=lane(lane={"switching": "Checkpoint"})).gpu.lane
    assert memory is not None
    assert (memory.kept_mib, memory.shared_mib) == (0, 2560)


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (lane(lane={"switching": "Suspend"}), "switching"),
        (lane(lane={"persistent": None}), "persistent"),
        (lane(lane={"ephemeral": 0}), "ephemeral"),
        (lane(memory={"limit": "4Gi"}), "leave memory out"),
        ({"lane": {"persistent": "1Gi", "ephemeral": "1Gi"}}, "mode Fractional"),
    ],
)
def test_a_lane_that_does_not_fit_the_rest_is_refused(gpu: dict[str, Any], says: str) -> None:
    assert says in job(gpu=gpu).invalid


def test_absent_fields_have_the_documented_defaults() -> None:
    record = job()
    assert record.trust_domain == "namespace/default"
    assert record.max_slowdown is None
    assert record.ttl_seconds_after_finished is None
    assert record.failure.max_restarts == 3
    assert record.gpu == GPURequest()
    assert not record.checkpoint


@pytest.mark.parametrize(
    ("variable", "elsewhere"),
    [
        ("MASTER_ADDR", True),
        ("PET_RDZV_BACKEND", True),
        ("PET_RDZV_ENDPOINT", True),
        ("MINE", False),
    ],
)
def test_a_template_may_say_where_members_in_place_meet(variable: str, elsewhere: bool) -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [{"name": variable, "value": "x"}]
    bounds = {"minReplicas": 1, "maxReplicas": 2, "membership": "InPlace"}
    found = job(
        template=template, elasticity=bounds, replicas=None, checkpoint={"graceSeconds": 30}
    ).elasticity
    assert found is not None
    assert found.meets_elsewhere is elsewhere


def test_the_shape_counts_the_slots_that_will_be_added() -> None:
    record = job(gpu={"mode": "Exclusive", "count": 4})
    assert record.shape.requests.extended == ((SLOT_RESOURCE, 4),)


def test_pods_with_the_step_hook_are_another_version() -> None:
    versions = {}
    for runtime in ({}, {"inject": "Never"}, {"inject": "Auto"}):
        record, blueprint = project_workload(JOB, raw_job(runtime=runtime), None, Sharer())
        assert blueprint is not None
        assert blueprint.template_hash == record.template_hash
        versions[runtime.get("inject", "")] = (record.template_hash, blueprint.runtime.inject)
    assert versions[""] == versions["Never"]
    assert versions["Auto"][0] != versions["Never"][0]
    assert [inject for _, inject in versions.values()] == [False, False, True]


def test_pods_that_divide_batches_are_another_version() -> None:
    versions = {}
    for policy in ("", "Disabled", "Observe", "Rebalance"):
        rules = {"stragglers": {"policy": policy}} if policy else {}
        record, blueprint = project_workload(JOB, raw_job(**rules), None, Sharer())
        assert blueprint is not None
        assert blueprint.rebalances is (policy == "Rebalance")
        assert record.stragglers == (policy or "Observe")
        versions[policy] = record.template_hash
    assert versions[""] == versions["Disabled"] == versions["Observe"] != versions["Rebalance"]


def test_the_time_until_a_slow_member_is_replaced_changes_no_pod() -> None:
    never, _ = project_workload(JOB, raw_job(), None, Sharer())
    record, _ = project_workload(JOB, raw_job(stragglers={"replaceAfter": "10m"}), None, Sharer())
    assert (never.replace_after_s, record.replace_after_s) == (None, 600.0)
    assert record.template_hash == never.template_hash


@pytest.mark.parametrize(
    "text",
    ["59s", "0.5m", "-10m", "10", "1d", "nan", "inf", "9" * 40 + "h", "", 600, None, ["10m"]],
)
def test_a_time_that_is_none_is_refused(text: object) -> None:
    record, _ = project_workload(JOB, raw_job(stragglers={"replaceAfter": text}), None, Sharer())
    assert text is None or record.invalid.startswith("spec.stragglers.replaceAfter"), record.invalid
    assert record.replace_after_s is None


@pytest.mark.parametrize(
    "runtime", ["Auto", {"inject": "auto"}, {"inject": 1}, {"inject": ["Auto"]}]
)
def test_an_unknown_way_to_inject_is_an_error_and_no_default(runtime: object) -> None:
    record, _ = project_workload(JOB, raw_job(runtime=runtime), None, Sharer())
    assert record.invalid.startswith("spec.runtime"), record.invalid


@pytest.mark.parametrize(("stated", "seconds"), [(None, 10), (2, 2), (600, 600)])
def test_the_silence_limit_is_the_jobs_own(stated: int | None, seconds: int) -> None:
    terms = _in_tiers(silenceSeconds=stated)
    assert terms.elasticity is not None
    assert terms.elasticity.tiers is not None
    assert terms.elasticity.tiers.silence_s == seconds


@pytest.mark.parametrize("stated", [0, 1, 601, "10", 2.5, [10]])
def test_a_silence_limit_out_of_bounds_is_an_error(stated: object) -> None:
    assert "backup.silenceSeconds" in _in_tiers(silenceSeconds=stated).invalid


def _in_tiers(**backup: object) -> WorkloadRecord:
    elasticity = {
        "minReplicas": 2,
        "maxReplicas": 4,
        "membership": "InPlace",
        "tiers": "Auto",
        "reliableReplicas": 1,
        "backup": {"stateBytes": "1Mi", **backup},
    }
    raw = raw_job(elasticity=elasticity, checkpoint={})
    del raw["spec"]["replicas"]
    return project_workload(JOB, raw, None, Sharer())[0]


def test_the_blueprint_holds_the_raw_template() -> None:
    raw = raw_job(
        replicas=2, gpu={"mode": "Exclusive", "count": 2}, checkpoint={"graceSeconds": 90}
    )
    record, blueprint = project_workload(JOB, raw, None, Sharer())
    assert blueprint is not None
    assert blueprint.template() == raw["spec"]["template"]
    assert (blueprint.replicas, blueprint.slots, blueprint.grace_s) == (2, 2, 90)
    assert blueprint.template_hash == record.template_hash
    blueprint.template()["spec"] = None
    assert blueprint.template()["spec"] is not None, "every caller gets its own copy"


def test_the_template_hash_ignores_order_and_sees_every_change() -> None:
    def named(value: object, slots: int = 1) -> str:
        return template_hash(canonical_json(value), slots)

    one = named({"a": 1, "b": {"c": [1, 2]}})
    assert one == named({"b": {"c": [1, 2]}, "a": 1})
    assert len(one) == 12
    assert one != named({"a": 1, "b": {"c": [1, 2]}}, slots=2)
    assert one != named({"a": 1, "b": {"c": [2, 1]}})


def test_an_inference_deployment_knows_whether_it_names_a_port() -> None:
    record, _ = project_workload(SERVICE, raw_service(), None, Sharer())
    assert record.has_port
    portless = raw_service(template=raw_template())
    assert not project_workload(SERVICE, portless, None, Sharer())[0].has_port
    assert record.gpu.share == Share(min_percent=20, max_percent=100)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"template": None}, r"spec\.template: missing"),
        (
            {"template": {"spec": {"containers": []}}},
            r"spec\.template\.spec\.containers: 0 entries, at least 1",
        ),
        ({"gpu": {"mode": "Half"}}, r"spec\.gpu\.mode: 'Half' is none of Exclusive, Fractional"),
        ({"gpu": {"mode": "Fractional"}}, r"spec\.gpu: gpu.share belongs only to mode Fractional"),
        ({"gpu": {"count": "two"}}, r"spec\.gpu\.count: expected a whole number, got str"),
        (
            {"trustDomain": "namespace/other"},
            r"spec\.trustDomain: '.*' is no name of a trust domain, which holds no slash",
        ),
        ({"slo": {"maxSlowdown": "fast"}}, r"spec\.slo\.maxSlowdown: 'fast' is no decimal"),
        ({"slo": {"maxSlowdown": "nan"}}, r"maxSlowdown: 'nan' is no decimal number"),
        ({"failurePolicy": {"retryExitCodes": ["x"]}}, r"spec\.failurePolicy\.retryExitCodes"),
        ({"accelerators": "h100"}, r"spec\.accelerators: expected a list"),
        (
            {"template": raw_template(cpu="lots")},
            r"spec\.template\.spec\..*'lots' is no amount such as 500m or 4Gi",
        ),
    ],
)
def test_an_unreadable_spec_says_where_and_what(spec: dict[str, Any], message: str) -> None:
    first = job(**spec)
    assert first.ref.uid == "uid-train"
    assert first.shape.device_container == ""
    with pytest.raises(WireError, match=message):
        raise WireError(first.invalid)


def test_the_last_good_record_stays_while_the_newest_version_is_unreadable() -> None:
    share = Sharer()
    good, _ = project_workload(JOB, raw_job(replicas=4), None, share)
    bad = raw_job(
        gpu={"mode": "Half"},
        meta={"generation": 2, "resourceVersion": "20"},
        status={"phase": "Running"},
    )
    kept, blueprint = project_workload(JOB, bad, good, share)
    assert blueprint is None
    assert kept.replicas == 4
    assert kept.shape is good.shape
    assert (kept.generation, kept.resource_version) == (2, "20")
    assert kept.status.phase == "Running"
    assert "Half" in kept.invalid
    mended, _ = project_workload(JOB, raw_job(replicas=2), kept, share)
    assert mended.invalid == ""
    assert mended.replicas == 2


def test_a_malformed_status_is_reported_and_changes_nothing_else() -> None:
    share = Sharer()
    good, _ = project_workload(JOB, raw_job(), None, share)
    kept, _ = project_workload(JOB, raw_job(status={"restarts": "many"}), good, share)
    assert kept.invalid == "status.restarts: expected a whole number, got str"


def test_without_a_name_nothing_can_be_said() -> None:
    with pytest.raises(WireError, match=r"metadata\.name"):
        project_workload(JOB, {"metadata": {"uid": "u"}}, None, Sharer())


def test_reasons_of_another_version_count_as_no_decision() -> None:
    decision = {"time": "2026-01-02T03:04:05Z", "epoch": 1, "inputsHash": "x", "reason": "NewWord"}
    record = job(status={"phase": "Pending", "decision": decision})
    assert not record.invalid
    assert record.status.decision is None
    known = job(status={"decision": decision | {"reason": "NoCapacity"}})
    assert known.status.decision is not None
    assert known.status.decision.reason is Reason.NO_CAPACITY


def test_conditions_of_other_managers_are_not_ours() -> None:
    conditions = [
        {"type": kind, "status": "True", "reason": "R", "lastTransitionTime": None}
        for kind in ("Admitted", "SomebodyElses")
    ]
    record = job(status={"conditions": conditions})
    assert [c.type for c in record.status.conditions] == ["Admitted"]


def test_a_deleted_object_is_deleting() -> None:
    assert job(meta={"deletionTimestamp": "2026-01-02T03:04:05Z"}).deleting
    assert raw_meta("x")["uid"] == "uid-x"


def test_lists_have_one_order_whatever_the_api_makes_of_them() -> None:
    def piece(pod: str) -> dict[str, object]:
        body = {"container": "c", "node": "n", "gpu": "g", "percent": 1, "memoryMiB": 1, "epoch": 1}
        return body | {"podUID": f"uid-{pod}", "pod": pod}

    conditions = [
        {"type": kind, "status": "True", "reason": "R"}
        for kind in ("Enforced", "Ready", "Placed", "Admitted")
    ]
    record = job(
        status={
            "conditions": conditions,
            "placement": [piece(name) for name in ("train-10", "train-9", "train-1")],
        }
    )
    assert [c.type for c in record.status.conditions] == ["Admitted", "Placed", "Ready", "Enforced"]
    assert [p.pod for p in record.status.placement] == ["train-1", "train-9", "train-10"]


def test_a_port_for_grpc_is_not_that_for_http() -> None:
    def service(port: int) -> WorkloadRecord:
        spec = {"slo": {"latencyMs": 50}, "batching": {"grpcPort": port}}
        return project_workload(SERVICE, raw_service(**spec), None, Sharer())[0]

    assert not service(9000).invalid
    assert "batching.grpcPort: 8080 is the first port" in service(8080).invalid


def test_a_service_may_have_no_replica_where_requests_are_held() -> None:
    def service(batching: dict[str, int] | None) -> WorkloadRecord:
        scaling = {"minReplicas": 0, "maxReplicas": 4, "policy": "SLO", "idleSeconds": 60}
        spec = {"slo": {"latencyMs": 50}, "scaling": scaling}
        spec |= {"batching": batching} if batching is not None else {}
        return project_workload(SERVICE, raw_service(**spec), None, Sharer())[0]

    found = service({})
    assert found.may_sleep
    assert found.scaling is not None
    assert found.scaling.idle_s == 60
    for held in (None, {"holdSeconds": 0}):
        assert (
            "spec.scaling.minReplicas: scaling.policy SLO needs scaling.minReplicas of at least 1"
            in service(held).invalid
        )
