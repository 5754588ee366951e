# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search from its creation to its best trial, by an operator that is killed on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from builders_raw import raw_template, raw_tuning_job
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, Dead, products_decision
from ullage import ports
from ullage.api.environment import TRIAL_REPORT_HEADER
from ullage.api.labels import ANNOTATION_TRIAL_PARAMETERS, LABEL_CLASS, LABEL_TRIAL, LABEL_TUNING
from ullage.app.tuning_service import BackgroundHooks, TuningService
from ullage.kube.client import K8sCluster
from ullage.scheduling.model.plan import Action

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]
GPU = {"mode": "Fractional", "count": 1, "share": {"minPercent": 20, "maxPercent": 20}}


def search(**spec: object) -> dict[str, Any]:
    template = {"template": raw_template(terminationGracePeriodSeconds=1), "gpu": GPU}
    return raw_tuning_job(trialTemplate=template, **spec)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0].get("env") or ()}


def finish_trials(cluster: Cluster) -> None:
    """Programs of trials that run report and end: the higher the number, the better."""
    for pod in cluster.server.objects(ports.POD):
        said = environment(pod)
        if "ULLAGE_TRIAL" not in said or (pod.get("status") or {}).get("phase") != "Running":
            continue
        until, trial = said["ULLAGE_TRIAL_EPOCHS"], int(said["ULLAGE_TRIAL"][-4:])
        message = f"{TRIAL_REPORT_HEADER}\n{until} 0.{trial}\n"
        ended = {"exitCode": 0, "message": message}
        pod["status"] = {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }
        cluster.server.put(ports.POD, pod)


class Life:
    """One life of an operator that runs searches as well."""

    def __init__(self, cluster: Cluster, port: K8sCluster, epoch: int, writes: int = 10**6) -> None:
        self.cluster = cluster
        self.brain = Brain(Mortal(port, writes_left=writes), cluster, epoch, products_decision)
        self._asked: list[Action] = []
        self.tunings = TuningService(
            self.brain.state,
            BackgroundHooks(synced=lambda: True, epoch=lambda: epoch, submit=self._ask),
            clock=cluster.wall,
        )

    def _ask(self, actions: Sequence[Action]) -> None:
        self._asked += actions

    async def turn(self) -> None:
        """Look, decide and write, as one turn of everyone."""
        await self.brain.cycle()
        self.tunings.look()
        asked, self._asked = self._asked, []
        await self.brain.carry_out(*asked)
        self.cluster.turn()
        self.cluster.heartbeat()
        self.cluster.wall.seconds += 1.0


def status(cluster: Cluster) -> dict[str, Any]:
    stored = cluster.server.get(ports.TUNING_JOB, "digits", "default")
    assert stored is not None
    return dict(stored.get("status") or {})


async def run(cluster: Cluster, life: Life, most: int = 80) -> None:
    """Until the search is over.

    Raises:
        Dead: the operator was killed.
    """
    for _ in range(most):
        await life.turn()
        finish_trials(cluster)
        if status(cluster).get("phase") in ("Succeeded", "Failed"):
            return
    raise AssertionError(f"the search does not end: {status(cluster)}")


@pytest.mark.slow
async def test_a_search_finds_its_best_trial(world: World) -> None:
    async with world() as (cluster, port):
        cluster.add_node("node-3")
        cluster.server.put(ports.TUNING_JOB, search(parallelism=3))
        life = Life(cluster, port, 1)
        await life.turn()
        await life.turn()
        jobs = {one["metadata"]["name"]: one for one in cluster.server.objects(ports.TRAINING_JOB)}
        first = jobs["digits-t0000-e1"]
        labels, notes = first["metadata"]["labels"], first["metadata"]["annotations"]
        assert (labels[LABEL_TUNING], labels[LABEL_TRIAL]) == ("digits", "0")
        assert labels[LABEL_CLASS] == "tuning-digits"
        assert '"lr":' in notes[ANNOTATION_TRIAL_PARAMETERS]
        (owner,) = first["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("TuningJob", "digits", True)
        assert first["spec"]["gpu"] == GPU
        said = environment({"spec": first["spec"]["template"]["spec"]})
        assert {"ULLAGE_TRIAL", "ULLAGE_TRIAL_EPOCHS", "ULLAGE_PARAMETER_lr"} <= said.keys()
        assert said["ULLAGE_TRIAL_REPORT"] == "/dev/termination-log"
        assert sum(name.startswith("digits-") for name in jobs) == 3
        await run(cluster, life)
        stored = status(cluster)
        assert stored["phase"] == "Succeeded"
        assert stored["bestTrial"]["name"] == "digits-t0008"
        assert stored["bestTrial"]["value"] == "0.8"
        assert stored["bestTrial"]["parameters"].keys() == {"lr", "width"}
        assert [one["trials"] for one in stored["groups"]] == [9, 3, 1]
        ended = cluster.server.get(ports.TRAINING_JOB, "digits-t0008-e9", "default")
        assert ended is not None
        assert ended["status"]["metrics"] == [{"epoch": 9, "value": "0.8"}]
        for _ in range(3):
            await life.turn()
        version = cluster.server.version
        life.tunings.end_term()
        await life.brain.cycle()
        life.tunings.look()
        assert cluster.server.version == version, "once it is over nothing is written"
        assert life.brain.failures == []
        await life.brain.stop()


@pytest.mark.slow
@pytest.mark.parametrize("writes", [3, 7, 20])
async def test_an_operator_killed_at_every_so_many_writes_counts_each_result_once(
    world: World, writes: int
) -> None:
    async with world() as (cluster, port):
        cluster.add_node("node-3")  # devices of the others' trust domain are not for trials
        cluster.server.put(ports.TUNING_JOB, search(parallelism=9))
        for epoch in range(1, 200):
            life = Life(cluster, port, epoch, writes + epoch % 3)
            try:
                await run(cluster, life)
            except Dead:
                continue
            await life.brain.stop()
            break
        stored = status(cluster)
        assert stored["phase"] == "Succeeded"
        counts = Counter((one["trial"], one["epoch"]) for one in stored["results"])
        assert set(counts.values()) == {1}
        assert len(counts) == 13
        assert {trial for trial, epoch in counts if epoch == 3} == {6, 7, 8}


async def test_a_name_that_is_taken_is_told(world: World) -> None:
    async with world() as (cluster, port):
        held = {"metadata": {"name": "digits-t0000-e1", "namespace": "default"}}
        template = {"template": raw_template(), "replicas": 1}
        cluster.server.put(ports.TRAINING_JOB, {**held, "spec": template})
        cluster.server.put(ports.TUNING_JOB, search(trials=1))
        life = Life(cluster, port, 1)
        for _ in range(3):
            await life.turn()
        stored = status(cluster)
        assert stored["conditions"][0]["reason"] == "NameConflict"
        assert "exists and belongs to" in stored["message"]
        await life.brain.stop()
