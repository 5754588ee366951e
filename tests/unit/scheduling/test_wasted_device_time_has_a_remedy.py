# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that remedy wasted device time are taken by kubectl, and give a spec that is valid."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from builders import (
    NOW,
    a_gpu_node,
    a_job,
    a_policy,
    a_service,
    a_slice,
    a_snapshot,
    an_adopted,
    gpu,
)
from fakes.toy_books import on
from ullage.api.batching import Batching
from ullage.api.inferencedeployment import read_service_spec
from ullage.api.trainingjob import read_training_spec
from ullage.api.words import EfficiencyRule as Rule
from ullage.cluster.records.efficiency import FindingRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.accounting.remedies import Remedy, remedy

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example/train:1"}]}}


def found(rule: Rule, percent: int = 40, memory_mib: int = 2048) -> FindingRecord:
    return FindingRecord(rule=rule, since=NOW, percent=percent, memory_mib=memory_mib)


def help_for(
    workload: WorkloadRecord, rule: Rule, snapshot: Snapshot | None = None, **figures: int
) -> Remedy:
    return remedy(snapshot or a_snapshot(workload), workload, found(rule, **figures))


def merged(body: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(body) if isinstance(body, dict) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept


def specs_after(command: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The spec after each kubectl of a command line."""
    specs = []
    for part in command.split(" && "):
        words = shlex.split(part)
        assert words[:2] == ["kubectl", "patch"]
        assert words[4:8] == ["-n", "default", "--type", "merge"]
        assert words[8] == "-p"
        spec = merged(spec, json.loads(words[9])["spec"])
        specs.append(dict(spec))
    return specs


JOB_SPEC = {"template": TEMPLATE, "gpu": {"mode": "Exclusive", "count": 1}}
SHARE_SPEC = {
    "template": TEMPLATE,
    "gpu": {"mode": "Fractional", "share": {"minPercent": 50, "maxPercent": 90}},
}


def test_an_idle_job_is_suspended() -> None:
    command = help_for(a_job().build(), Rule.IDLE).command
    (spec,) = specs_after(command, JOB_SPEC)
    assert read_training_spec(spec).suspend
    assert shlex.split(command)[2:4] == ["trainingjob", "train"]


def test_a_job_takes_another_mode_only_while_it_is_suspended() -> None:
    command = help_for(a_job().build(), Rule.OVERSIZED_SHARE).command
    stopped, resized = specs_after(command, JOB_SPEC)
    assert stopped == {**JOB_SPEC, "suspend": True}
    read = read_training_spec(resized)
    assert not read.suspend
    assert read.gpu.share is not None
    assert (read.gpu.share.min_percent, read.gpu.share.max_percent) == (40, 40)
    assert read.gpu.memory_mib == 2048


def test_a_share_keeps_its_least_and_gets_memory_that_does_not_shrink_with_it() -> None:
    job = a_job().fractional(30, 90).build()
    resizable = replace(job, sharing=replace(job.sharing, resizable=True))
    command = help_for(resizable, Rule.OVERSIZED_SHARE).command
    (spec,) = specs_after(command, SHARE_SPEC)
    read = read_training_spec(spec)
    assert read.gpu.share is not None
    assert (read.gpu.share.min_percent, read.gpu.share.max_percent) == (30, 40)
    assert read.gpu.memory_mib == 2048
    assert len(specs_after(help_for(job, Rule.OVERSIZED_SHARE).command, SHARE_SPEC)) == 2
    kept = replace(resizable, gpu=replace(job.gpu, memory_mib=4096))
    assert "memory" not in help_for(kept, Rule.OVERSIZED_SHARE).command
    (spec,) = specs_after(help_for(kept, Rule.MEMORY_UNUSED).command, SHARE_SPEC)
    assert read_training_spec(spec).gpu.memory_mib == 2048


def test_without_the_memory_it_needs_no_command_is_given() -> None:
    assert not help_for(a_job().build(), Rule.OVERSIZED_SHARE, memory_mib=0).command


def test_a_service_restarts_replica_by_replica_or_gives_its_devices_back() -> None:
    spec = {"template": TEMPLATE, "gpu": {"mode": "Exclusive"}}
    service = a_service().build()
    (resized,) = specs_after(help_for(service, Rule.OVERSIZED_SHARE).command, spec)
    assert read_service_spec(resized).sharing.resizable
    (stopped,) = specs_after(help_for(service, Rule.IDLE).command, spec)
    assert read_service_spec(stopped).replicas == 0
    scaled = replace(
        service,
        scaling=ReplicaBounds(min_replicas=1, max_replicas=3),
        batching=Batching(hold_s=30),
    )
    bounds = {
        **spec,
        "slo": {"latencyMs": 100},
        "batching": {"holdSeconds": 30},
        "scaling": {"minReplicas": 1, "maxReplicas": 3, "policy": "SLO"},
    }
    (asleep,) = specs_after(help_for(scaled, Rule.IDLE).command, bounds)
    read = read_service_spec(asleep)
    assert read.scaling is not None
    assert read.scaling.min_replicas == 0


@pytest.mark.parametrize("rule", [Rule.HOST_BOUND, Rule.SMALL_BATCH, Rule.BETWEEN_STEPS])
def test_gaps_are_offered_to_another_job_where_jobs_take_turns(rule: Rule) -> None:
    job = a_job().checkpointed().build()
    job = replace(job, gpu=replace(job.gpu, memory_mib=2048))
    turns = a_snapshot(job, a_policy(objective="MaxMinFairness"))
    (spec,) = specs_after(
        help_for(job, rule, turns).command,
        {
            "template": TEMPLATE,
            "gpu": {"mode": "Exclusive", "memory": {"limit": "2Gi"}},
            "checkpoint": {"signal": "SIGTERM"},
        },
    )
    assert read_training_spec(spec).sharing.allow_packing
    assert help_for(job, rule).text
    assert not help_for(job, rule).command
    assert not help_for(a_job().build(), rule, turns).command


@pytest.mark.parametrize("rule", Rule)
def test_pods_of_other_controllers_are_told_what_to_change(rule: Rule) -> None:
    help_ = help_for(an_adopted().build(), rule)
    assert help_.text
    assert not help_.command


def beside(percent: int, namespace: str = "default", **fields: object) -> Snapshot:
    job = a_job().status(phase="Running", placement=(on("n1"),)).build()
    mine = a_slice("uid-train-0", device=gpu("n1"), percent=100)
    theirs = replace(
        a_slice("uid-chat-0", device=gpu("n2"), percent=percent),
        pod_namespace=namespace,
        workload_class="c7",
        trust_domain=job.trust_domain,
        **fields,  # type: ignore[arg-type]
    )
    return a_snapshot(
        job,
        a_gpu_node("n1", devices=1, desired=[mine]),
        a_gpu_node("n2", devices=1, desired=[theirs]),
    )


def place(cluster: Snapshot) -> str:
    (job,) = cluster.workloads.values()
    assert job.kind is WorkloadKind.TRAINING_JOB
    return help_for(job, Rule.OVERSIZED_SHARE, cluster).text


def test_the_place_for_the_smaller_share_is_named() -> None:
    assert place(beside(50)) == (
        "fits 40 % of a device beside class c7 on n2/GPU-n2-0: set share 40"
    )
    assert place(beside(61)) == "fits 40 % of a device: set share 40"


def test_no_place_is_named_in_another_trust_domain_and_no_work_of_another_namespace() -> None:
    assert "c7" not in place(beside(50, "other"))
    assert "other work" in place(beside(50, "other"))
    cluster = beside(50)
    node = cluster.gpu_nodes["n2"]
    strangers = tuple(replace(part, trust_domain="namespace/other") for part in node.desired)
    cluster = replace(
        cluster, gpu_nodes={**cluster.gpu_nodes, "n2": replace(node, desired=strangers)}
    )
    assert place(cluster) == "fits 40 % of a device: set share 40"
