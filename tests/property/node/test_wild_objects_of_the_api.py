# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild GPUNodes and pods: each harms itself only, and the node's book and status stay sound."""

from __future__ import annotations

import copy
import random
from typing import Any, cast

import jsonschema
import orjson
import pytest

from docs.generate.crds.definition import schema
from fakes import wild
from fakes.kubelet_backend import a_device
from ullage.api.gpunode import GPUNode
from ullage.api.readers import WireError
from ullage.api.slices import SlicePhase
from ullage_node.kubelet.registrar import Registration
from ullage_node.mirrors import NodeMirror, PodMirror
from ullage_node.model.slices import NodeDevice
from ullage_node.slices.desired import (
    read_gpu_node,
    read_interruption,
    read_observations,
    read_pod,
    read_reported,
)
from ullage_node.slices.pods import PodCache
from ullage_node.slices.table import SliceTable
from ullage_node.status import (
    NodeFacts,
    StatusFacts,
    body_of,
    judge,
    observed_slices,
    with_transitions,
)

pytestmark = pytest.mark.slow

SLICE: dict[str, Any] = {
    "podUID": "0d4a1a4e-5b4b-4b0e-8d6b-0c8a4a6e5f01",
    "container": "main",
    "index": 0,
    "podNamespace": "team-a",
    "podName": "train-0",
    "gpu": "gpu-0",
    "percent": 40,
    "memoryMiB": 1024,
    "epoch": 3,
    "priority": 0,
    "protected": True,
    "class": "resnet",
    "family": "resnet",
    "trustDomain": "team-a",
    "maxSlowdownPercent": 130,
    "soloStepMicros": 1000,
    "slo": {"latencyMs": 50, "percentile": "99.9", "windowSeconds": 5, "metric": "m"},
    "probation": False,
    "alertOnly": False,
    "contextOverheadMiB": 500,
}
NODE: dict[str, Any] = {
    "metadata": {"name": "node-a", "uid": "uid-node", "generation": 4, "resourceVersion": "9"},
    "spec": {
        "epoch": 3,
        "retire": False,
        "observationsRead": "row-1",
        "slices": [
            SLICE,
            {**SLICE, "podUID": "uid-2", "podNamespace": "team-b", "gpu": "gpu-1"},
            {**SLICE, "podUID": "uid-3", "percent": 100, "gpu": "gpu-2", "slo": None},
        ],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "t"}],
        "interruption": {"kind": "Terminate", "deadline": "2026-01-01T00:00:00Z", "source": "EC2"},
        "slices": [
            {
                **{name: SLICE[name] for name in ("podUID", "container", "index", "gpu")},
                "phase": "Attached",
                "percent": 40,
                "memoryMiB": 1024,
                "epoch": 3,
                "pids": [4711],
                "steps": 17,
            }
        ],
        "observations": [
            {
                "id": "row-1",
                "class": "resnet",
                "namespace": "team-a",
                "accelerator": "emulated",
                "percent": 40,
                "stepMicros": 1000,
                "at": 1_700_000_000,
                "partners": [{"index": 0, "class": "bert", "percent": 40}],
                "fingerprint": {"smPermille": 800},
            }
        ],
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "train-0",
        "namespace": "team-a",
        "uid": "0d4a1a4e-5b4b-4b0e-8d6b-0c8a4a6e5f01",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
        "annotations": {"prometheus.io/port": "8080", "prometheus.io/path": "/metrics"},
        "labels": {
            "ullage.dev/kind": "TrainingJob",
            "ullage.dev/owner": "t",
            "ullage.dev/rank": "1",
        },
        "ownerReferences": [{"kind": "TrainingJob", "name": "t", "uid": "u", "controller": True}],
    },
    "spec": {
        "nodeName": "node-a",
        "containers": [
            {
                "name": "main",
                "env": [
                    {"name": "WORLD_SIZE", "value": "8"},
                    {"name": "PET_NNODES", "value": "2:8"},
                ],
                "ports": [{"name": "metrics", "containerPort": 8080}],
                "livenessProbe": {"periodSeconds": 10, "failureThreshold": 3},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "containerStatuses": [{"name": "main", "imageID": "registry.example/x@sha256:abc"}],
    },
}


def test_readers_refuse_with_a_wire_error_or_read() -> None:
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        node, pod = wild.wild(dice, NODE), wild.wild(dice, POD)
        for reader, raw in (
            (read_gpu_node, node),
            (read_reported, node),
            (read_observations, node),
            (read_interruption, node),
            (read_pod, pod),
        ):
            if not isinstance(raw, dict):
                continue
            text = ""
            try:
                reader(raw)
            except WireError as error:
                text = str(error)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {reader.__name__}") from error
            assert len(text) < 2000, (seed, reader)


GOOD = {
    **SLICE,
    "podUID": "uid-good",
    "podNamespace": "team-b",
    "podName": "good-0",
    "gpu": "gpu-1",
}
STATUS_SCHEMA = schema(GPUNode)["properties"]["status"]
CHECK = jsonschema.Draft4Validator(STATUS_SCHEMA)
DEVICES = tuple(NodeDevice(uuid=f"gpu-{n}", memory_mib=16_384, contexts=8) for n in range(3))


def status_of(table: SliceTable, node: NodeMirror) -> dict[str, Any]:
    assert node.spec is not None
    said = with_transitions(
        judge(NodeFacts(registration=Registration(registered=True), problems=node.spec.problems)),
        node.conditions,
        "2026-01-01T00:00:00Z",
        node.spec.generation,
    )
    facts = StatusFacts(
        name="node-a",
        uid=node.spec.uid,
        generation=node.spec.generation,
        epoch=table.epoch,
        version="test",
        driver="",
        devices=(a_device(),),
        slices=observed_slices(table.held, {}, {}),
        slots=8,
        used_slots=0,
        conditions=said,
    )
    body = body_of(facts, "2026-01-01T00:00:00Z")
    return cast(dict[str, Any], orjson.loads(orjson.dumps(body)))


def test_a_wild_slice_harms_itself_only() -> None:
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        raw = copy.deepcopy(NODE)
        raw["status"]["slices"] = []
        raw["spec"]["slices"] = [*(wild.wild(dice, SLICE) for _ in range(3)), GOOD]
        dice.shuffle(raw["spec"]["slices"])
        node, table = NodeMirror(), SliceTable()
        table.set_devices(DEVICES)
        node.changed(raw)
        assert node.spec is not None
        table.intake(node.spec.epoch, node.spec.slices, node.spec.faulty)
        held = {part.desired.key.pod_uid: part for part in table.held}
        assert held["uid-good"].phase is SlicePhase.RESERVED, seed
        assert table.epoch == 3, seed
        assert table.violations() == [], seed
        status = status_of(table, node)["status"]
        if seed % 5 == 0:
            assert not list(CHECK.iter_errors(status)), (seed, status)


def test_wild_lists_and_changes_leave_every_other_object_alone() -> None:
    good = {**POD, "metadata": {**POD["metadata"], "uid": "uid-good", "namespace": "team-b"}}
    for seed in wild.seeds(200):
        dice = random.Random(seed)
        cache = PodCache()
        mirror, node = PodMirror(cache), NodeMirror()
        items = [one for one in (wild.wild(dice, POD) for _ in range(4)) if isinstance(one, dict)]
        mirror.replace([*items, good])
        assert "uid-good" in cache.by_uid, seed
        raw = wild.wild(dice, NODE, changes=5)
        node.replace([raw] if isinstance(raw, dict) else [])
        if node.spec is not None:
            table = SliceTable()
            table.set_devices(DEVICES)
            table.remember(node.take_earlier())
            table.intake(node.spec.epoch, node.spec.slices, node.spec.faulty)
            status = status_of(table, node)["status"]
            if seed % 5 == 0:
                assert not list(CHECK.iter_errors(status)), (seed, status)


def test_a_pod_that_can_no_longer_be_read_is_not_taken_for_gone() -> None:
    cache = PodCache()
    mirror = PodMirror(cache)
    mirror.replace([POD])
    (uid,) = cache.by_uid
    mirror.replace([{**POD, "status": "nonsense"}])
    assert uid in cache.by_uid
    assert mirror.unreadable == 1
    mirror.removed({"metadata": {"uid": uid}, "status": "nonsense"})
    assert not cache.by_uid
