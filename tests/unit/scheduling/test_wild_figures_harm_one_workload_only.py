# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild figures in one workload, its pods or foreign pods are decided about, and stop no other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import orjson
import pytest

from builders import (
    MODEL,
    NOW,
    Part,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_policy,
    a_profile,
    a_snapshot,
)
from docs.generate.crds.definition import schema
from fakes.deciding import SETTINGS, decided
from fakes.scenes import BAD, SCENES, others
from fakes.toy_pools import a_pool, aim
from structure import faults
from ullage.api.gpunode import GPUNode
from ullage.api.schedulingpolicy import Tenant
from ullage.app.effects import effect_of
from ullage.app.set_aside import SetAside
from ullage.app.watchdog import Watchdog
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.kube.manifests.applied import gpunode_body, status_body
from ullage.process.faults import fault_text
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, ApplyGPUNode, DecideSettings, Plan, SetStatus

WHOLE = (10**20, 2**63 - 1, -(10**20), -1, 0)
REAL = (math.nan, math.inf, -math.inf, 1e308, 5e-324, -1.0, 0.0)
SETS = (
    "waits-FIFO-learned",
    "waits-MaxMinFairness-sum",
    "runs-FIFO-sum",
    "service-deployed",
    "cost",
)


def _figures(record: Any, depth: int = 0) -> Iterator[tuple[tuple[str, ...], object]]:
    """Paths to the numbers of a record, and their values."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield (field.name,), value
        elif is_dataclass(value) and depth < 3:
            for path, inner in _figures(value, depth + 1):
                yield (field.name, *path), inner
        elif isinstance(value, tuple) and value and is_dataclass(value[0]) and depth < 3:
            for path, inner in _figures(value[0], depth + 1):
                yield (field.name, *path), inner


def _with(record: Any, path: tuple[str, ...], value: object) -> Any:
    """The record with another figure at this path; of a tuple, in its first element."""
    first, *rest = path
    before = getattr(record, first)
    if not rest:
        inner = value
    elif isinstance(before, tuple):
        inner = (_with(before[0], tuple(rest), value), *before[1:])
    else:
        inner = _with(before, tuple(rest), value)
    return replace(record, **{first: inner})


def _wild(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """The snapshot with one wild figure in the bad workload, or in one of its pods."""
    jobs = {uid: one for uid, one in snapshot.workloads.items() if uid == BAD}
    pods = {uid: one for uid, one in snapshot.pods.items() if one.owner.uid == BAD}
    tables: tuple[tuple[str, dict[str, Any]], ...] = (("workloads", jobs), ("pods", pods))
    for table, records in tables:
        for uid, record in records.items():
            for path, value in _figures(record):
                for wild in WHOLE if isinstance(value, int) else REAL:
                    changed = {**getattr(snapshot, table), uid: _with(record, path, wild)}
                    name = f"{table}.{'.'.join(path)} = {wild}"
                    yield name, replace(snapshot, **{table: changed})


def _sound(action: Action) -> None:
    """An action that the picture takes, and the API as well."""
    effect_of(action)
    if isinstance(action, SetStatus):
        orjson.dumps(status_body(action, "1"))
    if isinstance(action, ApplyGPUNode):
        spec = orjson.loads(orjson.dumps(gpunode_body(action)))["spec"]
        assert faults(schema(GPUNode)["properties"]["spec"], spec) == []


@pytest.mark.slow
@pytest.mark.parametrize("scene", SETS)
def test_a_wild_figure_stops_no_other(scene: str) -> None:
    snapshot, settings = SCENES[scene]
    for name, wild in _wild(snapshot):
        plan = _decided(wild, settings)
        assert {one.key for one in plan.faults} <= {BAD}, name
        for action in diff(plan, wild):
            owner = getattr(action, "owner", None)
            if owner is None or owner.uid != BAD:
                _sound(action)


def _decided(snapshot: Snapshot, settings: DecideSettings) -> Any:
    with Watchdog(snapshot, patience_s=0.1):
        return decide(snapshot, NOW, settings)


@pytest.mark.parametrize("amount", [2**63 * 1000, 10**30, -(10**30)])
def test_a_foreign_pod_that_asks_for_more_than_any_machine_has_fills_its_node_alone(
    amount: int,
) -> None:
    use = Resources(cpu_milli=amount, memory_bytes=amount, extended=(("example.com/a", amount),))
    nodes = (a_gpu_node("node-1"), a_gpu_node("node-2"))
    found = decided(*nodes, *others(), foreign_use={"node-1": use})
    assert found.plan.faults == ()
    (device,) = found.places()["third-0"]
    assert amount < 0 or device.startswith("GPU-node-2")


def test_a_pod_that_asks_for_more_than_any_machine_has_waits() -> None:
    job = a_job("bad", "one")
    shape = replace(job.build().shape, requests=Resources(cpu_milli=2**63 * 1000, pods=1))
    found = decided(job.shaped(shape), *job.shaped(shape).pods(), a_gpu_node(), *others())
    assert found.plan.faults == ()
    assert found.places()["third-0"]
    assert "bad-0" not in found.places()


@pytest.mark.parametrize("allowed", [1e20, 5000.0, 1.0, 0.5])
def test_an_objective_never_keeps_a_gpu_node_from_being_written(allowed: float) -> None:
    job = a_job("bad", "one").fractional(20, 50).slowdown(allowed)
    found = decided(job, *job.pods(), a_gpu_node())
    for action in found.all(ApplyGPUNode):
        _sound(action)


def _settled(snapshot: Snapshot, settings: DecideSettings) -> Plan:
    """The plan once everything that fails decisions is set aside, as the operator finds it."""
    aside = SetAside()
    for _ in range(40):
        known = replace(settings, aside=aside.of(snapshot, NOW))
        try:
            with Watchdog(snapshot, patience_s=0.1):
                plan = decide(snapshot, NOW, known)
        except Exception as error:
            if not aside.failed(snapshot, NOW, fault_text(error), answered=True):
                raise
            continue
        aside.decided(snapshot, plan.faults, NOW)
        if not aside.hurries:
            return plan
    raise AssertionError("it never rests")


def _sharing(name: str) -> tuple[Part, ...]:
    job = a_job(name, "three").fractional(10, 20).with_(workload_class="third")
    return job, *job.pods()


@pytest.mark.slow
@pytest.mark.parametrize("table", ["gpu_nodes", "profiles", "device_profiles", "pools", "policy"])
def test_a_wild_figure_of_any_other_object_sets_that_object_aside(table: str) -> None:
    solo = SoloEntry(device=MODEL, share=50, sm_util=0.5, steps_per_second=2.0)
    parts = (
        a_policy(objective="MaxMinFairness", learned=True, tenants=(Tenant(name="a"),)),
        a_pool(),
        a_device_profile(),
        replace(a_profile("third", solo, namespace="three"), uid="uid-profile"),
        a_gpu_node("node-1"),
        a_gpu_node("node-2"),
        *(a_job(f"bought-{at}", "two").with_(cost=aim(), work_steps=1000) for at in range(3)),
        *(one for at in range(3) for one in _sharing(f"more-{at}")),
        *others(),
    )
    snapshot = a_snapshot(*parts)
    records: dict[Any, Any] = (
        {"": snapshot.policy} if table == "policy" else getattr(snapshot, table)
    )
    key, record = next(iter(records.items()))
    for path, value in _figures(record):
        for wild in WHOLE if isinstance(value, int) else REAL:
            changed = _with(record, path, wild)
            held = changed if table == "policy" else {**records, key: changed}
            plan = _settled(replace(snapshot, **{table: held}), SETTINGS)  # type: ignore[arg-type]
            assert {one.table for one in plan.faults} <= {table}, (path, wild, plan.faults)
            assert "uid-three-third" in plan.statuses


def test_what_is_tried_are_the_figures_of_records() -> None:
    kinds = {type(one) for one in (a_job().build(), *a_job().pods())}
    assert kinds == {WorkloadRecord, PodRecord}
    assert len(list(_wild(SCENES["waits-FIFO-learned"][0]))) > 100
