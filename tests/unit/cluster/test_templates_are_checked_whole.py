# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the operator reads or changes of a template is found wrong with its path, or built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builders_children import fleet_body, member_body
from builders_raw import Raw, raw_job, raw_service, raw_template
from fakes.node_affinity import REQUIRED
from fakes.spec_numbers import spec_schemas
from ullage.api.labels import (
    ANNOTATION_WORLD_SIZE,
    LABEL_CLASS,
    LABEL_FAMILY,
    LABEL_LEAD,
    LABEL_ORDER,
)
from ullage.api.reasons import Reason
from ullage.api.template_bounds import (
    MOST_AMOUNTS,
    MOST_GATES,
    MOST_MOUNTS,
    MOST_NODE_TERMS,
    MOST_PORTS,
    MOST_SECRETS,
    MOST_SELECTED,
    MOST_TOLERATIONS,
    MOST_VARIABLES,
    MOST_VOLUMES,
)
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.template import MOST_BYTES
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.readable import MOST_PARTS
from ullage.kube.manifests.children import service_body
from ullage.scheduling.model.plan import ApplyService

JOB, SERVICE = WorkloadKind.TRAINING_JOB, WorkloadKind.INFERENCE_DEPLOYMENT
FIRST = "spec.template.spec.containers[0]"


def said(template: Raw, kind: WorkloadKind = JOB) -> str:
    """What is wrong with a template; where nothing is, what is made from it can be built."""
    raw = raw_job(template=template) if kind is JOB else raw_service(template=template)
    record, blueprint = project_workload(kind, raw, None, Sharer())
    if blueprint is not None:
        owner, made = record.ref, blueprint.template()
        member_body(made, owner=owner, name="a-0", replicas=2, grace_s=60)
        fleet_body(made, owner=owner, pre_stop_sleep_s=5)
        step = ApplyService(
            owner=owner, name="a", headless=False, epoch=1, reason=Reason.STARTING, text=""
        )
        service_body(step, made)
    return record.invalid


def container(**fields: Any) -> Raw:
    template = raw_template()
    template["spec"]["containers"][0] |= fields
    return template


@pytest.mark.parametrize("kind", [JOB, SERVICE])
@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("labels", LABEL_LEAD),
        ("labels", LABEL_ORDER),
        ("labels", "ullage.dev/of-a-later-version"),
        ("annotations", ANNOTATION_WORLD_SIZE),
    ],
)
def test_keys_of_the_operator_are_not_the_users_to_set(
    kind: WorkloadKind, field: str, key: str
) -> None:
    template = raw_template(ports=(80,)) | {"metadata": {field: {key: "true"}}}
    fault = said(template, kind)
    assert f"template.metadata.{field}" in fault
    assert "the operator sets" in fault
    assert repr(key) in fault


def test_class_and_family_are_the_users_to_set() -> None:
    labels = {LABEL_CLASS: "resnet", LABEL_FAMILY: "cnn", "app": "train", "example.com/x": "y"}
    assert not said(raw_template() | {"metadata": {"labels": labels, "annotations": {"a/b": "c"}}})


@pytest.mark.parametrize(
    ("template", "where"),
    [
        (container(env=[{"name": {"a": 1}}]), f"{FIRST}.env[0].name: expected a string"),
        (container(env=[{"name": "A"}, {"name": ""}]), f"{FIRST}.env[1].name: must not be empty"),
        (container(env=[{"name": "A", "value": 7}]), f"{FIRST}.env[0].value: expected a string"),
        (container(env={"name": "A"}), f"{FIRST}.env: expected a list, got"),
        (container(env=0), f"{FIRST}.env: expected a list, got"),
        (container(ports=[{"containerPort": "80"}]), f"{FIRST}.ports[0].containerPort: expected"),
        (container(ports=[{"containerPort": 70_000}]), f"{FIRST}.ports[0].containerPort: 70000"),
        (container(ports=[{"containerPort": 80, "name": []}]), f"{FIRST}.ports[0].name: expected"),
        (
            container(ports=[{"containerPort": 80, "protocol": "IP"}]),
            f"{FIRST}.ports[0].protocol: 'IP' is none of TCP",
        ),
        (container(volumeMounts="x"), f"{FIRST}.volumeMounts: expected a list, got str"),
        (container(lifecycle=[]), f"{FIRST}.lifecycle: expected an object"),
        (container(lifecycle={"preStop": 1}), f"{FIRST}.lifecycle.preStop: expected an object"),
        (container(resources={"limits": {"cpu": []}}), f"{FIRST}.resources.limits.cpu: expected"),
        (
            container(resources={"limits": {"nvidia.com/gpu": 1}}),
            f"{FIRST}: a container must not request nvidia.com/gpu: a device has one owner",
        ),
        (container(image=3), f"{FIRST}.image: expected a string"),
        (container(args=[1]), f"{FIRST}.args: expected a list of strings"),
        (container(name=""), f"{FIRST}.name: must not be empty"),
        (raw_template(schedulingGates=[{}]), "spec.template.spec.schedulingGates[0].name"),
        (raw_template(volumes=[{"name": 1}]), "spec.template.spec.volumes[0].name: expected"),
        (raw_template(tolerations=[{"key": 1}]), "spec.template.spec.tolerations[0].key: expected"),
        (
            raw_template(imagePullSecrets="x"),
            "spec.template.spec.imagePullSecrets: expected a list",
        ),
        (
            raw_template(terminationGracePeriodSeconds=True),
            "spec.template.spec.terminationGracePeriodSeconds: expected a whole number",
        ),
        (raw_template(affinity={"nodeAffinity": 1}), "spec.template.spec.affinity.nodeAffinity:"),
        (raw_template(nodeSelector={"a": 1}), "spec.template.spec.nodeSelector: 'a': expected"),
        (raw_template(priorityClassName=[]), "spec.template.spec.priorityClassName: expected"),
        (
            raw_template(restartPolicy="Always"),
            "spec.template.spec.restartPolicy: restartPolicy of a TrainingJob must be Never or",
        ),
        (container(name="x" * 64), "must have at most 63 characters"),
        (
            raw_template(initContainers=[{"name": "main"}]),
            "spec.template.spec.containers: two are called 'main'",
        ),
        ({"metadata": {"labels": {"a": 1}}, **raw_template()}, ""),
        (
            raw_template() | {"metadata": {"annotations": {"a": 1}}},
            "spec.template.metadata.annotations[a]: expected a string",
        ),
        (
            raw_template(other="x" * MOST_BYTES),
            f"at most {MOST_BYTES}: put large texts into a ConfigMap",
        ),
    ],
)
def test_a_wild_field_is_named_with_its_path(template: Raw, where: str) -> None:
    assert where in said(template)
    assert bool(where) is bool(said(template))


def in_pod(field: str, entry: Raw) -> Callable[[int], Raw]:
    return lambda most: raw_template(**{field: [dict(entry, name=f"n{at}") for at in range(most)]})


def in_container(field: str, entry: Raw) -> Callable[[int], Raw]:
    return lambda most: container(**{field: [dict(entry, name=f"n{at}") for at in range(most)]})


def with_terms(*terms: Raw) -> Raw:
    return raw_template(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})


REQUIREMENT: Raw = {"key": "zone", "operator": "Exists"}
IN_AFFINITY = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
LENGTHS: dict[str, tuple[int, Callable[[int], Raw]]] = {
    "spec.tolerations": (MOST_TOLERATIONS, in_pod("tolerations", {"operator": "Exists"})),
    "spec.volumes": (MOST_VOLUMES, in_pod("volumes", {"emptyDir": {}})),
    "spec.imagePullSecrets": (MOST_SECRETS, in_pod("imagePullSecrets", {})),
    "spec.schedulingGates": (MOST_GATES, in_pod("schedulingGates", {})),
    "spec.containers": (16, in_pod("containers", {"image": "a"})),
    "spec.nodeSelector": (
        MOST_SELECTED,
        lambda most: raw_template(nodeSelector={f"k{at}": "v" for at in range(most)}),
    ),
    "spec.containers[0].env": (MOST_VARIABLES, in_container("env", {})),
    "spec.containers[0].ports": (MOST_PORTS, in_container("ports", {"containerPort": 1})),
    "spec.containers[0].volumeMounts": (MOST_MOUNTS, in_container("volumeMounts", {})),
    "spec.containers[0].resources.limits": (
        MOST_AMOUNTS,
        lambda most: container(resources={"limits": {f"a.b/r{at}": "1" for at in range(most)}}),
    ),
    IN_AFFINITY: (
        MOST_NODE_TERMS,
        lambda most: with_terms(*[{"matchExpressions": [REQUIREMENT]}] * most),
    ),
    f"{IN_AFFINITY}[1].matchFields": (
        MOST_NODE_TERMS,
        lambda most: with_terms({}, {"matchFields": [REQUIREMENT] * most}),
    ),
}


@pytest.mark.parametrize("field", LENGTHS)
def test_a_list_has_as_many_entries_as_the_schema_takes(field: str) -> None:
    most, template = LENGTHS[field]
    assert not said(template(most))
    assert f"template.{field}: {most + 1} entries, at most {most}" in said(template(most + 1))


@pytest.mark.parametrize("field", LENGTHS)
def test_the_schema_has_the_same_bounds(field: str) -> None:
    """The API server refuses what would be found invalid."""
    schema: Any = spec_schemas()["TrainingJob"]["properties"]["template"]
    for step in field.split("."):
        schema = schema["properties"][step.partition("[")[0]]
        schema = schema["items"] if "[" in step else schema
    assert LENGTHS[field][0] == schema.get("maxItems", schema.get("maxProperties"))


def test_lists_that_no_one_reads_are_bounded_together() -> None:
    assert not said(raw_template(other=[{}] * (MOST_PARTS - 100)))
    assert f"template: more than {MOST_PARTS} objects" in said(
        raw_template(other=[[]] * MOST_PARTS)
    )


@pytest.mark.parametrize("kind", [JOB, SERVICE])
def test_what_pods_really_hold_is_taken(kind: WorkloadKind) -> None:
    template = raw_template(
        ports=(80,),
        terminationGracePeriodSeconds=0,
        priorityClassName="high",
        imagePullSecrets=[{"name": "registry"}],
        volumes=[{"name": "data", "emptyDir": {}}],
        tolerations=[{"operator": "Exists"}],
        affinity={"podAffinity": {}, "nodeAffinity": {}},
        schedulingGates=[{"name": "other"}],
        initContainers=[{"name": "first", "image": "a"}],
        topologySpreadConstraints=[{"maxSkew": 1}],
    )
    template["spec"]["containers"][0] |= {
        "env": [{"name": "A"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "command": ["python"],
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
    }
    assert said(template, kind) == ""
