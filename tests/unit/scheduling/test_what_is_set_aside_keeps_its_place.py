# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A record that stopped decisions is replaced by one that says who it is and nothing it asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    a_device_profile,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_profile,
    a_slice,
    gpu,
    reported,
)
from fakes.toy_pools import a_pool
from ullage.api.schedulingpolicy import Tenant
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.cycle.set_aside import plain

JOB = a_job().fractional(30, 60).slowdown(1.5).priority(7).build()


def test_work_keeps_what_it_is_and_asks_for_nothing() -> None:
    left = plain(JOB)
    assert left == replace(left, ref=JOB.ref, kind=JOB.kind, aside=True)  # type: ignore[type-var]
    assert left.ref == JOB.ref  # type: ignore[attr-defined]
    assert left.generation == JOB.generation  # type: ignore[attr-defined]
    assert left.gpu.mode is JOB.gpu.mode  # type: ignore[attr-defined]
    assert left.gpu.share is None  # type: ignore[attr-defined]
    assert left.max_slowdown is None  # type: ignore[attr-defined]
    assert left.aside  # type: ignore[attr-defined]


def test_a_pod_keeps_its_place_and_sane_amounts() -> None:
    pod = a_pod("train-0", owner=JOB, stage=PodStage.RUNNING, node="node-1")
    wild = replace(
        pod,
        priority=10**30,
        world_size=4,
        shape=replace(
            pod.shape,
            requests=replace(pod.shape.requests, cpu_milli=10**30, memory_bytes=-(10**30)),
        ),
    )
    left = plain(wild)
    assert (left.uid, left.node, left.stage) == (pod.uid, "node-1", PodStage.RUNNING)  # type: ignore[attr-defined]
    assert left.world_size == 0  # type: ignore[attr-defined]
    asked = left.shape.requests  # type: ignore[attr-defined]
    assert 0 < left.priority < 10**20  # type: ignore[attr-defined]
    assert 0 < asked.cpu_milli < 10**20
    assert -(10**20) < asked.memory_bytes < 0


def test_a_node_keeps_its_slices_and_offers_no_device() -> None:
    pod = a_pod("train-0", owner=JOB, stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=30)
    node = a_gpu_node("node-1", devices=2, desired=[wanted], observed=[reported(wanted)])
    left = plain(node)
    assert (left.name, left.desired, left.observed) == (node.name, node.desired, node.observed)  # type: ignore[attr-defined]
    assert left.devices == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("record", "same", "empty"),
    [
        (a_profile("class-a"), ("namespace", "name", "workload_class"), ()),
        (
            replace(a_device_profile("fast"), price_per_hour=9.0),
            ("name", "uid", "generation"),
            ("price_per_hour",),
        ),
        (a_pool(most=4), ("name", "uid", "accelerator"), ("most",)),
        (
            a_policy(objective="MinCost", tenants=(Tenant(name="a"),)),
            ("name", "uid", "generation"),
            ("tenants",),
        ),
    ],
)
def test_other_records_keep_their_names(
    record: object, same: tuple[str, ...], empty: tuple[str, ...]
) -> None:
    left = plain(record)
    assert type(left) is type(record)
    assert [getattr(left, name) for name in same] == [getattr(record, name) for name in same]
    assert not any(getattr(left, name) for name in empty)


def test_what_cannot_be_set_aside_is_an_error() -> None:
    with pytest.raises(TypeError, match="str cannot be set aside"):
        plain("text")
