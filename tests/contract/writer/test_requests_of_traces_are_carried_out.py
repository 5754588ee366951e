# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A ProfileRequest from its creation to its result, by an operator that is killed on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from builders_raw import raw_job, raw_template
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, Dead, products_decision
from ullage import ports
from ullage.api.labels import ANNOTATION_RESERVATION, API_VERSION
from ullage.api.profiling import Profiling
from ullage.api.rank_traces import RankTrace, StepColumns, TimeBreakdown
from ullage.app.trace_service import TraceService
from ullage.app.tuning_service import BackgroundHooks
from ullage.kube.client import K8sCluster
from ullage.scheduling.model.plan import Action
from ullage.scheduling.observation.profiling import moment_in_period

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]
STEP_S = 0.1


def a_request(name: str = "digits-1", **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ProfileRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "jobRef": {"kind": "TrainingJob", "name": "digits"},
            "ranks": "All",
            "steps": 5,
            "ttlSecondsAfterFinished": 60,
            **spec,
        },
    }


class Life:
    """One life of an operator, with agents that trace what they are ordered."""

    def __init__(self, cluster: Cluster, port: K8sCluster, epoch: int, writes: int = 10**6) -> None:
        self.cluster = cluster
        self.brain = Brain(Mortal(port, writes_left=writes), cluster, epoch, products_decision)
        self._asked: list[Action] = []
        self.traces = TraceService(
            self.brain.state,
            BackgroundHooks(synced=lambda: True, epoch=lambda: epoch, submit=self._ask),
            clock=cluster.wall,
        )

    def _ask(self, actions: Sequence[Action]) -> None:
        self._asked += actions

    async def turn(self) -> None:
        """Look, decide and write, as one turn of everyone."""
        await self.brain.cycle()
        self.traces.look()
        asked, self._asked = self._asked, []
        await self.brain.carry_out(*asked)
        self.cluster.turn()
        self.cluster.heartbeat()
        trace_orders(self.cluster)
        self.cluster.wall.seconds += 1.0


def trace_orders(cluster: Cluster) -> None:
    """Agents answer the orders in their specs."""
    step = int(cluster.wall.seconds / STEP_S)
    for node in cluster.server.objects(ports.GPU_NODE):
        orders = node["spec"].get("traces") or ()
        reports = [_report(order, step) for order in orders]
        status = dict(node.get("status") or {})
        if status.get("traces") != (reports or None):
            status["traces"] = reports
            node["status"] = status
            cluster.server.put(ports.GPU_NODE, node)


def _report(order: dict[str, Any], step: int) -> dict[str, Any]:
    report: dict[str, Any] = {"id": order["id"], "podUID": order["podUID"]}
    start = order.get("startStep")
    if not start:
        return report | {"state": "Ready", "step": step, "stepMicros": int(STEP_S * 1e6)}
    if step < start + order["steps"]:
        return report | {"state": "Armed"}
    zeros, hundreds = (0,) * 5, (100,) * 5
    trace = RankTrace(
        trace_id=order["id"],
        start_micros=1,
        first_step=start,
        step=TimeBreakdown(span_micros=500, compute_micros=500),
        steps=StepColumns(
            starts_micros=tuple(range(0, 500, 100)),
            spans_micros=hundreds,
            compute_micros=hundreds,
            communication_micros=zeros,
            copies_micros=zeros,
            data_wait_micros=zeros,
        ),
    )
    answer = {"localRank": 0, "bytes": 1000, "summary": json.dumps(trace.to_wire())}
    return report | {"state": "Done", "ranks": [answer]}


def status(cluster: Cluster, name: str = "digits-1") -> dict[str, Any]:
    stored = cluster.server.get(ports.PROFILE_REQUEST, name, "default")
    assert stored is not None
    return dict(stored.get("status") or {})


def orders(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        order
        for node in cluster.server.objects(ports.GPU_NODE)
        for order in node["spec"].get("traces") or ()
    ]


def begin(cluster: Cluster, **runtime: object) -> None:
    cluster.add_node("node-3")
    cluster.add_node("node-4")
    template = raw_template(terminationGracePeriodSeconds=1)
    job = raw_job("digits", replicas=2, template=template, runtime=runtime or {"inject": "Auto"})
    cluster.server.put(ports.TRAINING_JOB, job)


def a_policy(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def count_steps(cluster: Cluster) -> None:
    """Every program is past its first steps."""
    for node in cluster.server.objects(ports.GPU_NODE):
        seen = (node.get("status") or {}).get("slices") or ()
        status = dict(node["status"]) | {"slices": [dict(part) | {"steps": 500} for part in seen]}
        cluster.server.put(ports.GPU_NODE, dict(node) | {"status": status})


def members(cluster: Cluster) -> list[dict[str, Any]]:
    pods = cluster.server.objects(ports.POD)
    return [dict(pod) for pod in pods if pod["metadata"]["name"].startswith("digits-")]


async def until_running(life: Life, most: int = 30) -> None:
    for _ in range(most):
        await life.turn()
        pods = members(life.cluster)
        if [pod["status"].get("phase") for pod in pods] == ["Running"] * 2:
            return
    raise AssertionError("the job does not run")


async def until_over(life: Life, most: int = 60) -> dict[str, Any]:
    for _ in range(most):
        await life.turn()
        stored = status(life.cluster)
        if stored.get("phase") in ("Done", "Failed"):
            return stored
    raise AssertionError(f"the request does not end: {status(life.cluster)}")


async def test_both_ranks_are_traced_at_the_same_steps(world: World) -> None:
    async with world() as (cluster, port):
        begin(cluster)
        life = Life(cluster, port, 1)
        await until_running(life)
        cluster.server.put(ports.PROFILE_REQUEST, a_request())
        stored = await until_over(life)
        assert stored["phase"] == "Done"
        assert [(one["rank"], one["state"]) for one in stored["ranks"]] == [
            (0, "Done"),
            (1, "Done"),
        ]
        assert stored["conditions"][0]["reason"] == "TraceDone"
        assert stored["result"]["firstStep"] == stored["window"]["firstStep"]
        assert "compute 100 %" in stored["message"]
        await life.turn()
        await life.turn()
        assert not orders(cluster)
        held = {
            part["podUID"]
            for node in cluster.server.objects(ports.GPU_NODE)
            for part in node["spec"]["slices"]
        }  # another field manager, so they stay
        assert held >= {
            pod["metadata"]["annotations"][ANNOTATION_RESERVATION] for pod in members(cluster)
        }
        events = [one["reason"] for one in cluster.server.objects(ports.EVENT)]
        assert events.count("TraceDone") == 1
        await life.brain.stop()
        figures = life.traces.figures()
        assert figures.requests == {"TraceDone": 1}
        assert figures.seconds.keys() >= {"Pending", "Armed"}


async def test_a_finished_request_is_deleted_when_its_time_is_over(world: World) -> None:
    async with world() as (cluster, port):
        begin(cluster)
        life = Life(cluster, port, 1)
        await until_running(life)
        cluster.server.put(ports.PROFILE_REQUEST, a_request(ttlSecondsAfterFinished=5))
        await until_over(life)
        for _ in range(8):
            await life.turn()
        assert cluster.server.get(ports.PROFILE_REQUEST, "digits-1", "default") is None
        assert cluster.server.get(ports.TRAINING_JOB, "digits", "default") is not None
        await life.brain.stop()


async def test_a_request_that_is_deleted_leaves_no_order(world: World) -> None:
    async with world() as (cluster, port):
        begin(cluster)
        life = Life(cluster, port, 1)
        await until_running(life)
        cluster.server.put(ports.PROFILE_REQUEST, a_request())
        while not orders(cluster):
            await life.turn()
        await port.delete(ports.PROFILE_REQUEST, "digits-1", namespace="default")
        for _ in range(3):
            await life.turn()
        assert not orders(cluster)
        await life.brain.stop()


async def test_a_job_without_the_hook_is_not_restarted(world: World) -> None:
    async with world() as (cluster, port):
        begin(cluster, inject="Never")
        life = Life(cluster, port, 1)
        await until_running(life)
        pods = {pod["metadata"]["uid"] for pod in members(cluster)}
        cluster.server.put(ports.PROFILE_REQUEST, a_request())
        stored = await until_over(life)
        assert stored["conditions"][0]["reason"] == "NotInstrumented"
        assert "inject: Auto" in stored["message"]
        assert pods == {pod["metadata"]["uid"] for pod in members(cluster)}
        await life.brain.stop()


async def test_a_job_of_the_sample_is_traced_once_by_whichever_replica_leads(world: World) -> None:
    async with world() as (cluster, port):
        begin(cluster)
        profiling = {"samplePercent": 100, "everyHours": 1}
        life = Life(cluster, port, 1)
        await until_running(life)
        job = cluster.server.get(ports.TRAINING_JOB, "digits", "default")
        assert job is not None
        terms = Profiling(sample_percent=100, every_hours=1)
        moment = moment_in_period(job["metadata"]["uid"], terms, cluster.wall.seconds + 3600)
        assert moment is not None
        cluster.wall.seconds = moment + 1
        cluster.server.put(ports.SCHEDULING_POLICY, a_policy(profiling=profiling))
        for _ in range(3):
            cluster.heartbeat()
            count_steps(cluster)
            await life.turn()
        (made,) = cluster.server.objects(ports.PROFILE_REQUEST)
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("TrainingJob", job["metadata"]["uid"])
        assert made["spec"]["jobRef"] == {"kind": "TrainingJob", "name": "digits"}
        assert made["spec"]["steps"] == 5
        await life.brain.stop()
        life = Life(cluster, port, 2)
        name = made["metadata"]["name"]
        for _ in range(60):
            await life.turn()
            if status(cluster, name).get("phase") == "Done":
                break
        assert status(cluster, name)["conditions"][0]["reason"] == "TraceDone"
        assert len(cluster.server.objects(ports.PROFILE_REQUEST)) == 1
        await life.brain.stop()


@pytest.mark.slow
@pytest.mark.parametrize("writes", range(1, 9))
async def test_an_operator_that_is_killed_after_any_write_leaves_nothing_stuck(
    world: World, writes: int
) -> None:
    async with world() as (cluster, port):
        begin(cluster)
        first = Life(cluster, port, 1)
        await until_running(first)
        await first.brain.stop()
        cluster.server.put(ports.PROFILE_REQUEST, a_request())
        second = Life(cluster, port, 2, writes=writes)
        with suppress(Dead):
            await until_over(second)
        await second.brain.kill()
        life = Life(cluster, port, 3)
        stored = status(cluster)
        if stored.get("phase") not in ("Done", "Failed"):
            stored = await until_over(life)
        assert stored["phase"] == "Done"
        for _ in range(7):
            await life.turn()
        assert not orders(cluster)
        await life.brain.stop()
