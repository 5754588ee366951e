# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever one object holds, every other object stands, and it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from builders_raw import (
    Raw,
    raw_claim,
    raw_deployment,
    raw_device_profile,
    raw_foreign_pod,
    raw_gpu_node,
    raw_job,
    raw_kube_service,
    raw_meta,
    raw_namespace,
    raw_node,
    raw_pod,
    raw_pod_group,
    raw_policy,
    raw_pool,
    raw_profile,
    raw_profile_request,
    raw_service,
    raw_storage_class,
    raw_template,
    raw_tuning_job,
    raw_volume,
)
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values import streams
from ullage.cluster.values.readable import MOST_LEVELS, UNREADABLE
from ullage.cluster.values.streams import Stream

DIGITS: Final = "9" * 5000


def deep(levels: int) -> object:
    value: object = "bottom"
    for _ in range(levels):
        value = {"a": value}
    return value


class Angry(dict[str, Any]):
    """An object that fails in a way that no reader expects."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RecursionError(f"no {key}")


GOOD: Final[Mapping[Stream, Raw]] = {
    streams.NODES: raw_node(),
    streams.PODS: raw_pod(),
    streams.FOREIGN_PODS: raw_foreign_pod(),
    streams.TRAINING_JOBS: raw_job(),
    streams.INFERENCE_DEPLOYMENTS: raw_service(),
    streams.GPU_NODES: raw_gpu_node(),
    streams.WORKLOAD_PROFILES: raw_profile(),
    streams.DEVICE_PROFILES: raw_device_profile(),
    streams.SCHEDULING_POLICIES: raw_policy(roundSeconds=60),
    streams.CAPACITY_POOLS: raw_pool(),
    streams.TUNING_JOBS: raw_tuning_job(),
    streams.PROFILE_REQUESTS: raw_profile_request(),
    streams.DEPLOYMENTS: raw_deployment(),
    streams.SERVICES: raw_kube_service(),
    streams.NAMESPACES: raw_namespace(),
    streams.CLAIMS: raw_claim(),
    streams.VOLUMES: raw_volume(),
    streams.STORAGE_CLASSES: raw_storage_class(),
    streams.POD_GROUPS: raw_pod_group(),
}


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(effect_of)


PLAIN = (streams.NAMESPACES, streams.STORAGE_CLASSES)
"""Streams of kinds without a spec that is read."""


@pytest.mark.parametrize(
    "stream", [one for one in streams.STREAMS if one not in PLAIN], ids=lambda one: one.name
)
def test_an_unexpected_error_is_counted_and_the_others_stand(
    state: ClusterState, stream: Stream
) -> None:
    bad = {"metadata": raw_meta("bad"), "spec": Angry(), "status": Angry()}
    state.replace(stream, [bad, GOOD[stream]], 1.0)
    state.upsert(stream, bad, 2.0)
    assert state.projection_errors[stream.name] == 2
    assert state.projection_messages[stream.name]
    assert state.counts()[stream.name] - (1 if stream in WORKLOADS else 0) == 1


WORKLOADS: Final = (streams.TRAINING_JOBS, streams.INFERENCE_DEPLOYMENTS)
"""Of these an object that cannot be read is kept too: it is told what is wrong with it."""


@pytest.mark.parametrize("stream", streams.STREAMS, ids=lambda one: one.name)
def test_the_last_good_record_stays(state: ClusterState, stream: Stream) -> None:
    state.upsert(stream, GOOD[stream], 1.0)
    before = state.counts()
    state.upsert(stream, {**GOOD[stream], UNREADABLE: "spec: cannot be decoded"}, 2.0)
    assert state.counts() == before
    assert state.projection_messages[stream.name] == "spec: cannot be decoded"
    state.remove(stream, {**GOOD[stream], UNREADABLE: "spec: cannot be decoded"}, 3.0)
    assert state.counts()[stream.name] == 0


@pytest.mark.parametrize("stream", streams.STREAMS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "metadata",
    [None, 7, [], {}, {"name": 1, "uid": {}}, {"name": "a", "uid": "b", "labels": ["a"]}],
    ids=repr,
)
def test_odd_metadata_is_survived(state: ClusterState, stream: Stream, metadata: object) -> None:
    odd = {**GOOD[stream], "metadata": metadata}
    state.replace(stream, [odd, GOOD[stream]], 1.0)
    state.upsert(stream, odd, 2.0)
    state.remove(stream, odd, 3.0)
    assert state.counts()[stream.name] >= 1
    state.freeze(4.0)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            raw_template(overhead={"cpu": DIGITS}),
            "spec.template.spec.overhead[cpu]: ",
        ),
        (raw_template(extra=deep(MOST_LEVELS)), "spec.template: nested more than 64 levels deep"),
        (raw_template(extra=deep(900)), "spec.template: nested more than 64 levels deep"),
        (
            raw_template(priority=10**30),
            "spec.template.spec.priority: the number does not fit 64 bits",
        ),
        (raw_template(tolerations=0), "spec.template.spec.tolerations: expected a list, got int"),
    ],
    ids=["digits", "just too deep", "very deep", "huge", "zero"],
)
def test_a_wild_template_makes_its_job_invalid(
    state: ClusterState, template: Raw, said: str
) -> None:
    state.upsert(streams.TRAINING_JOBS, raw_job("bad", template=template), 1.0)
    state.upsert(streams.TRAINING_JOBS, raw_job("good"), 1.0)
    workloads = state.freeze(2.0).workloads
    assert said in workloads["uid-bad"].invalid
    assert len(workloads["uid-bad"].invalid) < 1100
    assert not workloads["uid-good"].invalid


def test_a_template_of_real_depth_is_read(state: ClusterState) -> None:
    state.upsert(streams.TRAINING_JOBS, raw_job(template=raw_template(extra=deep(50))), 1.0)
    assert not state.freeze(2.0).workloads["uid-train"].invalid


@pytest.mark.parametrize("digits", ["9" * 20, "9" * 4301, "²", "-1", ""], ids=len)
def test_numbers_that_we_cannot_have_written_into_a_pod_count_as_not_there(
    state: ClusterState, digits: str
) -> None:
    pod = raw_pod(meta={"annotations": {"ullage.dev/world-size": digits}})
    state.upsert(streams.PODS, pod, 1.0)
    assert state.freeze(2.0).pods["uid-train-0"].world_size == 0
    pod["metadata"]["labels"]["ullage.dev/rank"] = digits
    state.upsert(streams.PODS, pod, 3.0)
    assert not state.freeze(4.0).pods
    assert not state.projection_errors


def test_a_surge_of_very_many_digits_is_counted(state: ClusterState) -> None:
    bad = raw_deployment()
    bad["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": DIGITS + "%"}}
    state.upsert(streams.DEPLOYMENTS, bad, 1.0)
    assert "maxSurge" in state.projection_messages["deployments"]


@pytest.mark.parametrize("year", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"])
def test_times_at_the_ends_of_the_calendar_are_read_and_written(
    state: ClusterState, year: str
) -> None:
    bad = raw_gpu_node()
    bad["status"]["interruption"] = {"kind": "Terminate", "deadline": year}
    state.upsert(streams.GPU_NODES, bad, 1.0)
    notice = state.freeze(2.0).gpu_nodes["node-1"].interruption
    assert notice is not None
    assert len(str(notice.to_wire()["deadline"])) == len("2026-01-02T03:04:05Z")
