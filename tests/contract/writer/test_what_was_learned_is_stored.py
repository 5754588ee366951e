# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles and models on the server: created once, read back as written, paced in a flood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from builders import MODEL
from fakes.lesson_rig import START, profile, row
from fakes.mortal import Mortal
from fakes.small_world import Brain, Cluster, converge, products_decision
from ullage import ports
from ullage.api.observations import MAX_OBSERVATIONS, Observation, ObservedPartner
from ullage.api.reasons import ConditionType, Reason
from ullage.app.device_models import ModelTeller, known_devices
from ullage.app.fit_schedule import FitState
from ullage.app.fit_worker import FitTask, run_fit
from ullage.app.model_summary import Fitted, digest, restored, stored
from ullage.app.times import MODEL_WRITE_S
from ullage.cluster.projection.workload_class import profile_name
from ullage.cluster.values.streams import STREAMS
from ullage.engines.admission.judging import Risk
from ullage.engines.admission.pair_kernel import KernelShape
from ullage.kube.client import K8sCluster
from ullage.scheduling.model.plan import CreateProfile, SetProfile

World = Callable[[], AbstractAsyncContextManager[tuple[Cluster, K8sCluster]]]


def learned(wall_s: float, more: int = 0) -> FitState:
    """A course whose model holds 16 rows and more."""
    classes = ("bert", "lstm")
    held = {
        ("team", name): profile(
            name,
            [row(100 * place + n, classes[1 - place], 2.5 + 0.1 * n, gpu=MODEL) for n in range(8)]
            + [row(100 * place + 50 + n, name, 2.2, gpu=MODEL) for n in range(more)],
            MODEL,
        )
        for place, name in enumerate(classes)
    }
    after = START + 10_000.0 + wall_s  # rows of the future teach nothing
    task = FitTask(accelerator=MODEL, previous=None, fit=True, wanted=(), at_s=after)
    model = run_fit(task, held).model
    return FitState(
        accelerator=MODEL, model=model, fitted=Fitted(model=model, risk=Risk(), at_s=wall_s)
    )


async def told(brain: Brain, teller: ModelTeller, course: FitState) -> int:
    brain.look()
    now = brain.wall.now()
    writes = teller.writes(brain.state.freeze(now), {MODEL: course}, now=now, epoch=1)
    await brain.carry_out(*writes)
    brain.look()
    return len(writes)


async def test_a_model_is_stored_and_read_back_and_written_once(world: World) -> None:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        teller, course = ModelTeller(), learned(float(int(brain.wall.now())))
        assert await told(brain, teller, course) == 1
        made = cluster.server.get(ports.DEVICE_PROFILE, MODEL)
        assert made is not None
        assert made["spec"]["memory"].endswith("Mi")
        assert await told(brain, teller, course) == 1
        course = learned(float(int(brain.wall.now())), more=1)
        assert await told(brain, teller, course) == 0  # at most once a minute
        cluster.wall.seconds += MODEL_WRITE_S
        assert await told(brain, teller, course) == 1
        record = brain.state.freeze(brain.wall.now()).device_profiles[MODEL]
        assert record.model is not None
        back = restored(MODEL, record.model)
        assert back is not None
        assert course.model is not None
        assert back.model.hyper == course.model.hyper
        assert back.model.thresholds == course.model.thresholds
        assert record.model.rows == 18
        cluster.wall.seconds += MODEL_WRITE_S
        assert await told(brain, teller, course) == 0
        assert await told(brain, ModelTeller(), course) == 0  # nor does a restarted operator
        assert brain.failures == []
        await brain.stop()


@pytest.mark.parametrize("shape", list(KernelShape))
def test_the_kind_of_process_is_read_back(shape: KernelShape) -> None:
    fitted = learned(0.0).fitted
    assert fitted is not None
    kept = stored(replace(fitted, model=replace(fitted.model, shape=shape)))
    back = restored(MODEL, kept)
    assert back is not None
    assert back.model.shape is shape
    assert len(back.model.hyper) == len(fitted.model.hyper)


def test_a_model_of_before_likeness_had_shapes_is_read_as_it_was() -> None:
    fitted = learned(0.0).fitted
    assert fitted is not None
    kept = stored(replace(fitted, model=replace(fitted.model, shape=KernelShape.MATERN)))
    figures = tuple(one for one in kept.hyperparameters if one[0] != "kernel.matern")
    back = restored(MODEL, replace(kept, hyperparameters=figures))
    assert back is not None
    assert back.model.shape is KernelShape.GAUSSIAN


async def test_a_failure_to_learn_is_a_condition_and_costs_no_model(world: World) -> None:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        teller, course = ModelTeller(), learned(float(int(brain.wall.now())))
        for _ in range(2):
            await told(brain, teller, course)
            cluster.wall.seconds += MODEL_WRITE_S
        course.lessons.failed("row x of class y: slowdown is nan; drop the row", 0.0)
        assert await told(brain, teller, course) == 1
        record = brain.state.freeze(brain.wall.now()).device_profiles[MODEL]
        (shown,) = record.conditions
        assert (shown.type, shown.status) == (ConditionType.DEGRADED, "True")
        assert shown.reason == Reason.LEARNING_FAILED
        assert "drop the row" in shown.message
        assert record.model is not None
        cluster.wall.seconds += MODEL_WRITE_S
        assert await told(brain, teller, course) == 0
        course.lessons.done(0.0)
        assert await told(brain, teller, course) == 1
        record = brain.state.freeze(brain.wall.now()).device_profiles[MODEL]
        assert [one.status for one in record.conditions] == ["False"]
        await brain.stop()


async def test_a_known_type_is_stored_with_rates_and_their_sources(world: World) -> None:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        teller = ModelTeller({MODEL: known_devices()["tesla-t4"]})
        unlearned = FitState(accelerator=MODEL)
        assert await told(brain, ModelTeller(), unlearned) == 0
        assert await told(brain, teller, unlearned) == 1
        made = cluster.server.get(ports.DEVICE_PROFILE, MODEL)
        assert made is not None
        assert "T4" in made["metadata"]["annotations"]["sources.ullage.dev/peakFlops"]
        record = brain.state.freeze(brain.wall.now()).device_profiles[MODEL]
        assert dict(record.peak_flops)["FP32"] == 8.1e12
        assert record.memory_bytes_per_s == 320e9
        cluster.wall.seconds += MODEL_WRITE_S
        assert await told(brain, teller, unlearned) == 0
        assert brain.failures == []
        await brain.stop()


async def test_somebodys_spec_is_left_alone(world: World) -> None:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        theirs = {"metadata": {"name": MODEL}, "spec": {"memory": "7Gi", "contextOverheadMiB": 99}}
        cluster.server.put(ports.DEVICE_PROFILE, theirs)
        await converge(brain, cluster)
        assert await told(brain, ModelTeller(), learned(float(int(brain.wall.now())))) == 1
        held = cluster.server.get(ports.DEVICE_PROFILE, MODEL)
        assert held is not None
        assert held["spec"] == theirs["spec"]
        assert held["status"]["model"]["rows"] == 16
        await brain.stop()


def seen(number: int, at_s: int) -> dict[str, object]:
    return Observation(
        id=f"node-1/{number}",
        workload_class="bert",
        namespace="team",
        accelerator=MODEL,
        percent=50,
        partners=(ObservedPartner(workload_class="lstm", percent=50),),
        step_micros=20_000 + number % 7,
        solo_step_micros=10_000,
        at_s=at_s,
    ).to_wire()


def report(cluster: Cluster, name: str, observations: list[dict[str, object]]) -> None:
    node: dict[str, Any] | None = cluster.server.get(ports.GPU_NODE, name)
    assert node is not None
    status = node["status"] | {"observations": observations, "heartbeat": cluster.wall.stamp()}
    cluster.server.put(ports.GPU_NODE, node | {"status": status})


@pytest.mark.slow
async def test_a_flood_of_observations_costs_a_write_every_thirty_seconds(world: World) -> None:
    """A node that reports 128 new rows every two seconds for two minutes."""
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        before = len(brain.actions)
        for report_number in range(60):
            at_s = int(cluster.wall.now())
            first = report_number * MAX_OBSERVATIONS
            report(cluster, "node-1", [seen(first + n, at_s) for n in range(MAX_OBSERVATIONS)])
            await brain.cycle()
            cluster.wall.seconds += 2.0
        kinds = Counter(type(action).__name__ for action in brain.actions[before:])
        assert kinds[CreateProfile.__name__] == 1
        assert 4 <= kinds[SetProfile.__name__] <= 5
        assert set(kinds) <= {CreateProfile.__name__, SetProfile.__name__, "SetStatus"}
        stored = cluster.server.get(ports.WORKLOAD_PROFILE, profile_name("bert"), "team")
        assert stored is not None
        assert len(stored["status"]["stepTime"]) == 200
        assert brain.failures == []
        await brain.stop()


async def test_what_nodes_observe_wakes_no_one(world: World) -> None:
    async with world() as (cluster, port):
        brain = Brain(Mortal(port), cluster, 1, products_decision)
        await converge(brain, cluster)
        report(cluster, "node-1", [seen(1, int(cluster.wall.now()))])
        stream = next(one for one in STREAMS if one.kind == ports.GPU_NODE)
        node = cluster.server.get(ports.GPU_NODE, "node-1")
        assert node is not None
        version = brain.state.version
        assert not brain.state.upsert(stream, node, brain.wall.now())
        assert brain.state.version > version  # the next decision sees it all the same
        await brain.stop()


def test_two_models_of_the_same_rows_are_one() -> None:
    one, other = learned(5.0).model, learned(5.0).model
    assert one is not None
    assert other is not None
    assert digest(one) == digest(other)
    more = learned(5.0, more=1).model
    assert more is not None
    assert digest(more) != digest(one)
