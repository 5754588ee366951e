# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from builders import a_slice, an_owner
from builders_children import fleet_body
from builders_raw import raw_template
from docs.generate.crds.definition import schema
from structure import faults
from ullage.api.gpunode import GPUNode
from ullage.api.labels import GATE, SLOT_RESOURCE
from ullage.api.podtemplate import Runtime
from ullage.api.reasons import Reason
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.status import Condition, SolveRecord, WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind
from ullage.kube.manifests.applied import conditions_body, gpunode_body, status_body
from ullage.kube.manifests.children import service_body
from ullage.scheduling.model.plan import ApplyGPUNode, ApplyService, SetConditions, SetStatus

SERVE = an_owner("serve", kind=WorkloadKind.INFERENCE_DEPLOYMENT)
LABELS = {
    "ullage.dev/managed": "true",
    "ullage.dev/kind": "InferenceDeployment",
    "ullage.dev/owner": "serve",
}


def deployment(template: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "owner": SERVE,
        "replicas": 3,
        "max_surge": 1,
        "max_unavailable": 0,
        "slots": 1,
        "template_hash": "0123456789ab",
        "pre_stop_sleep_s": 5,
    }
    uid = changes.pop("uid", "")
    return fleet_body(template or raw_template(), uid=uid, **fields | changes)


def _service(owner: ObjectRef, name: str, *, headless: bool = False) -> ApplyService:
    return ApplyService(
        owner=owner, name=name, headless=headless, epoch=1, reason=Reason.STARTING, text=""
    )


def test_a_deployment_is_gated_and_selects_its_own_pods() -> None:
    body = deployment(raw_template(labels={"app": "x"}))
    assert body["metadata"]["labels"] == LABELS
    assert "uid" not in body["metadata"]
    assert body["metadata"]["annotations"] == {"ullage.dev/template-hash": "0123456789ab"}
    spec = body["spec"]
    assert spec["selector"] == {"matchLabels": LABELS}
    assert spec["template"]["metadata"]["labels"] == {"app": "x", **LABELS}
    assert spec["template"]["metadata"]["annotations"] == body["metadata"]["annotations"]
    assert spec["template"]["spec"]["schedulingGates"] == [{"name": GATE}]
    container = spec["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {SLOT_RESOURCE: "1"}
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert spec["replicas"] == 3
    assert deployment(uid="u")["metadata"]["uid"] == "u"


@pytest.mark.parametrize(
    ("lifecycle", "grace", "sleep", "expected"),
    [
        (None, None, 5, {"preStop": {"sleep": {"seconds": 5}}}),
        (None, None, 0, None),
        (None, 3, 5, {"preStop": {"sleep": {"seconds": 3}}}),
        (None, 0, 5, None),
        (
            {"postStart": {"exec": {}}},
            None,
            5,
            {"postStart": {"exec": {}}, "preStop": {"sleep": {"seconds": 5}}},
        ),
        ({"preStop": {"exec": {}}}, None, 5, {"preStop": {"exec": {}}}),
    ],
)
def test_serving_pods_sleep_before_they_stop_unless_they_say_what_to_do(
    lifecycle: object, grace: int | None, sleep: int, expected: object
) -> None:
    template = raw_template()
    if lifecycle is not None:
        template["spec"]["containers"][0]["lifecycle"] = lifecycle
    if grace is not None:
        template["spec"]["terminationGracePeriodSeconds"] = grace
    body = deployment(template, pre_stop_sleep_s=sleep)
    assert body["spec"]["template"]["spec"]["containers"][0].get("lifecycle") == expected


def _device_env(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    container = body["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry for entry in container.get("env", [])}


def test_without_injection_the_environment_is_the_templates() -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [{"name": "PYTHONPATH", "value": "/mine"}]
    assert _device_env(deployment(template)) == {
        "PYTHONPATH": {"name": "PYTHONPATH", "value": "/mine"}
    }


def test_an_injected_hook_comes_first_on_the_path() -> None:
    path = _device_env(deployment(runtime=Runtime(inject=True)))["PYTHONPATH"]["value"]
    assert path == "/run/ullage/python/ullage_run/autostep"


@pytest.mark.parametrize(
    "source",
    [
        {"value": "/mine:/also"},
        {"valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}}},
    ],
)
def test_the_templates_own_path_follows_the_library_whatever_its_source(
    source: dict[str, Any],
) -> None:
    template = raw_template()
    template["spec"]["containers"][0]["env"] = [{"name": "PYTHONPATH", **source}]
    body = deployment(template, runtime=Runtime(inject=True))
    env = _device_env(body)
    assert env["ULLAGE_TEMPLATE_PYTHONPATH"] == {"name": "ULLAGE_TEMPLATE_PYTHONPATH", **source}
    assert env["PYTHONPATH"]["value"].endswith(":$(ULLAGE_TEMPLATE_PYTHONPATH)")
    names = list(env)
    assert names.index("ULLAGE_TEMPLATE_PYTHONPATH") < names.index("PYTHONPATH"), "or no expansion"
    assert template["spec"]["containers"][0]["env"][0]["name"] == "PYTHONPATH", "a copy is changed"


def test_a_gangs_service_is_headless_and_names_members_before_they_are_ready() -> None:
    job = an_owner("train")
    body = service_body(_service(job, "train-workers", headless=True), raw_template())
    assert body["metadata"]["name"] == "train-workers"
    assert body["spec"]["clusterIP"] == "None"
    assert body["spec"]["publishNotReadyAddresses"] is True
    assert body["spec"]["selector"]["ullage.dev/owner"] == "train"


def test_a_serving_service_offers_the_device_containers_ports() -> None:
    template = raw_template(ports=(8080,))
    named = {"containerPort": 9090, "name": "metrics", "protocol": "UDP"}
    template["spec"]["containers"][0]["ports"].append(named)
    body = service_body(_service(SERVE, "serve"), template, "u")
    assert body["metadata"]["uid"] == "u"
    assert body["spec"] == {
        "selector": LABELS,
        "ports": [
            {"name": "port-8080", "port": 8080, "targetPort": 8080, "protocol": "TCP"},
            {"name": "metrics", "port": 9090, "targetPort": 9090, "protocol": "UDP"},
        ],
    }


def apply(uid: str = "") -> ApplyGPUNode:
    return ApplyGPUNode(
        name="node-1",
        uid=uid,
        node_uid="uid-node",
        epoch=7,
        slices=(a_slice("uid-b"), a_slice("uid-a")),
        retire=True,
        reason=Reason.PLACED,
        text="",
    )


def test_a_gpu_nodes_body_is_its_slices_and_its_owner() -> None:
    body = gpunode_body(apply())
    assert body["metadata"] == {
        "name": "node-1",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node"}
        ],
    }
    spec = body["spec"]
    assert isinstance(spec, dict)
    assert [piece["podUID"] for piece in spec["slices"]] == ["uid-a", "uid-b"]
    assert faults(schema(GPUNode)["properties"]["spec"], spec) == []
    assert "retire" not in spec, "who retires a node owns the field"


def test_an_existing_gpu_node_is_named_by_uid_so_that_a_namesake_is_refused() -> None:
    metadata = gpunode_body(apply("uid-gn"))["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["uid"] == "uid-gn"


def test_a_status_body_is_tied_to_uid_and_version() -> None:
    action = SetStatus(
        owner=SERVE,
        resource_version="ignored",
        status=WorkloadStatus(phase="Ready", replicas=1),
        epoch=1,
        reason=Reason.RUNNING,
        text="",
    )
    assert status_body(action, "12") == {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {
            "name": "serve",
            "namespace": "default",
            "uid": SERVE.uid,
            "resourceVersion": "12",
        },
        "status": {"phase": "Ready", "replicas": 1, "readyReplicas": 0},
    }


def test_conditions_of_the_policy_carry_its_generation() -> None:
    action = SetConditions(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name="default", uid="u"),
        generation=3,
        conditions=(Condition(type="SolverDegraded", status="True", reason="SolverTimeout"),),
        epoch=1,
        reason=Reason.SOLVER_TIMEOUT,
        text="",
    )
    body = conditions_body(action)
    assert body["metadata"] == {"name": "default", "uid": "u"}
    assert body["status"] == {
        "observedGeneration": 3,
        "conditions": [
            {
                "type": "SolverDegraded",
                "status": "True",
                "reason": "SolverTimeout",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
        ],
    }


def test_the_division_in_force_stands_in_every_apply_of_the_policy() -> None:
    solve = SolveRecord(time=0.0, result="Optimal", inputs_hash="in", fractions_hash="out")
    action = SetConditions(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name="default", uid="u"),
        generation=3,
        conditions=(),
        last_solve=solve,
        epoch=1,
        reason=Reason.ROUND_SCHEDULED,
        text="",
    )
    assert conditions_body(action)["status"]["lastSolve"] == {
        "time": "1970-01-01T00:00:00Z",
        "result": "Optimal",
        "inputsHash": "in",
        "fractionsHash": "out",
    }
