# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects with something outside of themselves end in order, across operators, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders_raw import (
    owner_reference,
    raw_deployment,
    raw_job,
    raw_pod,
    raw_service,
    raw_tuning_job,
)
from fakes.apiserver import FakeApiServer, make_cluster
from fakes.leading import leading, until
from ullage.api.labels import ANNOTATION_TRIAL_EPOCH, LABEL_LEAD, LABEL_TRIAL
from ullage.app.uninstall import release
from ullage.cluster.values.lives import FINALIZER
from ullage.cluster.values.names import router_name
from ullage.ports import (
    DEPLOYMENT,
    EVENT,
    INFERENCE_DEPLOYMENT,
    POD,
    TRAINING_JOB,
    TUNING_JOB,
    Kind,
)

NAME, SPACE = "web", "default"


def service(api: FakeApiServer) -> dict[str, Any] | None:
    return api.get(INFERENCE_DEPLOYMENT, NAME, SPACE)


def finalizers(api: FakeApiServer) -> list[str] | None:
    held = service(api)
    return held["metadata"].get("finalizers", []) if held is not None else None


def router(api: FakeApiServer) -> dict[str, Any] | None:
    return api.get(DEPLOYMENT, router_name(NAME), SPACE)


async def served(api: FakeApiServer) -> None:
    """The service is held back, and its router is there."""
    api.put(INFERENCE_DEPLOYMENT, with_router())
    await until(lambda: finalizers(api) == [FINALIZER])
    held = service(api)
    assert held is not None
    body = raw_deployment(router_name(NAME))
    owner = owner_reference("InferenceDeployment", NAME, held["metadata"]["uid"])
    body["metadata"] |= {"namespace": SPACE, "ownerReferences": [owner]}
    api.put(DEPLOYMENT, body)


async def delete(api: FakeApiServer, kind: Kind = INFERENCE_DEPLOYMENT, name: str = NAME) -> None:
    async with make_cluster(api.url) as cluster:
        await cluster.delete(kind, name, namespace=SPACE)


def with_router() -> dict[str, Any]:
    body = raw_service(NAME, replicas=1, batching={}, slo={"latencyMs": 100, "percentile": 99})
    body["metadata"]["namespace"] = SPACE
    return body


async def test_a_router_goes_first_and_the_object_then(api: FakeApiServer) -> None:
    async with leading(api):
        await served(api)
        await delete(api)
        await until(lambda: router(api) is None)
        await until(lambda: service(api) is None)


async def test_what_was_deleted_without_an_operator_ends_with_the_next(api: FakeApiServer) -> None:
    async with leading(api):
        await served(api)
    await delete(api)
    assert finalizers(api) == [FINALIZER]
    async with leading(api):
        await until(lambda: service(api) is None)


async def test_without_an_operator_a_release_lets_it_go(api: FakeApiServer) -> None:
    async with leading(api):
        api.put(INFERENCE_DEPLOYMENT, with_router())
        await until(lambda: finalizers(api) == [FINALIZER])
    await delete(api)
    async with make_cluster(api.url) as cluster:
        assert await release(cluster) == [f"inferencedeployments {SPACE}/{NAME}"]
    assert service(api) is None


async def test_a_service_without_a_router_is_written_no_finalizer(api: FakeApiServer) -> None:
    async with leading(api):
        plain = with_router()
        del plain["spec"]["batching"]
        plain["metadata"]["name"] = "plain"
        api.put(INFERENCE_DEPLOYMENT, plain)
        api.put(INFERENCE_DEPLOYMENT, with_router())
        await until(lambda: finalizers(api) == [FINALIZER])
        held = api.get(INFERENCE_DEPLOYMENT, "plain", SPACE)
        assert held is not None
        assert "finalizers" not in held["metadata"]
        assert api.write_count("patch", INFERENCE_DEPLOYMENT.plural) >= 1


async def test_the_owner_of_a_service_beyond_the_bound_is_told_once(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ullage.handlers.mirror.MOST_OF_NAMESPACE", 1)
    monkeypatch.setattr("ullage.handlers.ends.END_EVENT_S", 0.05)
    for name in ("first", "second"):
        body = with_router()
        body["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        api.put(INFERENCE_DEPLOYMENT, body)

    def told() -> list[dict[str, Any]]:
        return [event for event in api.objects(EVENT) if event["reason"] == "EndsUnordered"]

    async with leading(api):
        await until(told)
        await asyncio.sleep(0.5)
        (event,) = told()
    assert event["count"] == 1
    beyond = event["involvedObject"]["name"]
    held = [
        name
        for name in ("first", "second")
        if (api.get(INFERENCE_DEPLOYMENT, name, SPACE) or {})["metadata"].get("finalizers")
    ]
    assert {*held, beyond} == {"first", "second"}


# -- jobs in tiers -------------------------------------------------------------------------------

TIERS = {
    "minReplicas": 1,
    "maxReplicas": 2,
    "reliableReplicas": 1,
    "tiers": "Auto",
    "backup": {"stateBytes": "64Mi"},
}


def held(api: FakeApiServer, kind: Kind, name: str) -> list[str]:
    found = api.get(kind, name, SPACE)
    assert found is not None
    finalizers: list[str] = found["metadata"].get("finalizers", [])
    return finalizers


def in_tiers(**about: Any) -> dict[str, Any]:
    job = raw_job(elasticity=TIERS, checkpoint={"graceSeconds": 60}, **about)
    del job["spec"]["replicas"]
    return job


def trains(api: FakeApiServer) -> None:
    """A job in tiers, its two members and their lead, as another leader left them."""
    job = api.put(TRAINING_JOB, in_tiers(meta={"finalizers": [FINALIZER]}))
    controller = owner_reference("TrainingJob", "train", job["metadata"]["uid"])
    pods = [
        raw_pod(f"train-{rank}", rank=rank, gated=False, node="node-1", controller=controller)
        for rank in range(2)
    ]
    lead = raw_pod("train-lead", rank=None, gated=False, node="node-1", controller=controller)
    lead["metadata"]["labels"][LABEL_LEAD] = "true"
    for pod in (*pods, lead):
        pod["status"]["phase"] = "Running"
        api.put(POD, pod)


def leaving(api: FakeApiServer) -> set[str]:
    """Pods that were told to end."""
    return {
        pod["metadata"]["name"]
        for pod in api.objects(POD)
        if pod["metadata"].get("deletionTimestamp")
    }


async def test_members_end_before_their_lead_and_another_operator_goes_on(
    api: FakeApiServer,
) -> None:
    trains(api)
    await delete(api, TRAINING_JOB, "train")
    async with leading(api):
        await until(lambda: leaving(api) == {"train-0", "train-1"})
        api.remove(POD, "train-0", SPACE)
    assert leaving(api) == {"train-1"}, "the lead ends before a member"
    assert held(api, TRAINING_JOB, "train") == [FINALIZER]
    async with leading(api):
        api.remove(POD, "train-1", SPACE)
        await until(lambda: leaving(api) == {"train-lead"})
        assert held(api, TRAINING_JOB, "train") == [FINALIZER]
        api.remove(POD, "train-lead", SPACE)
        await until(lambda: api.get(TRAINING_JOB, "train", SPACE) is None)


async def test_members_stay_where_who_deletes_keeps_them(api: FakeApiServer) -> None:
    trains(api)
    api.edit(TRAINING_JOB, "train", {"metadata": {"finalizers": [FINALIZER, "orphan"]}}, SPACE)
    await delete(api, TRAINING_JOB, "train")
    async with leading(api):
        await until(lambda: held(api, TRAINING_JOB, "train") == ["orphan"])
    assert leaving(api) == set()


async def test_jobs_in_tiers_are_held_and_others_are_written_nothing(api: FakeApiServer) -> None:
    api.put(TRAINING_JOB, raw_job("plain"))
    over = in_tiers(status={"phase": "Succeeded"})
    over["metadata"] |= {"name": "over", "uid": "uid-over"}
    api.put(TRAINING_JOB, over)
    api.put(TRAINING_JOB, in_tiers())
    async with leading(api):
        await until(lambda: held(api, TRAINING_JOB, "train") == [FINALIZER])
    assert [held(api, TRAINING_JOB, name) for name in ("plain", "over")] == [[], []]


async def test_a_job_that_is_over_is_held_no_more(api: FakeApiServer) -> None:
    trains(api)
    api.edit(TRAINING_JOB, "train", {"status": {"phase": "Succeeded"}}, SPACE)
    async with leading(api):
        await until(lambda: held(api, TRAINING_JOB, "train") == [])


async def test_wild_objects_are_let_go_and_keep_no_one_else_waiting(api: FakeApiServer) -> None:
    others = [f"others/{number}" for number in range(40)]
    api.put(
        TRAINING_JOB,
        raw_job(
            "wild",
            elasticity={"tiers": "Auto", "minReplicas": 9, "maxReplicas": 3},
            meta={
                "finalizers": [*others, FINALIZER],
                "annotations": {"life.ullage.dev/in-order": "{" * 100_000, "note": "x" * 100_000},
                "deletionTimestamp": "9999-12-31T23:59:59Z",
            },
        ),
    )
    trains(api)
    await delete(api, TRAINING_JOB, "train")
    async with leading(api):
        await until(lambda: leaving(api) == {"train-0", "train-1"})
        await until(lambda: held(api, TRAINING_JOB, "wild") == others)


# -- searches ------------------------------------------------------------------------------------


async def test_a_search_counts_what_its_trials_brought_and_stops_the_others(
    api: FakeApiServer,
) -> None:
    body = raw_tuning_job(algorithm={"ref": "Random", "maxEpochs": 1}, parallelism=2)
    body["metadata"]["finalizers"] = [FINALIZER, "others/reads-the-results"]
    search = api.put(TUNING_JOB, body)
    owner = owner_reference("TuningJob", "digits", search["metadata"]["uid"])
    for number, status in ((0, ENDED), (1, {"phase": "Running"})):
        meta = {
            "ownerReferences": [owner],
            "labels": {LABEL_TRIAL: str(number)},
            "annotations": {ANNOTATION_TRIAL_EPOCH: "1"},
        }
        api.put(TRAINING_JOB, raw_job(f"digits-t{number:04d}-e1", meta=meta, status=status))
    await delete(api, TUNING_JOB, "digits")
    async with leading(api):
        await until(lambda: held(api, TUNING_JOB, "digits") == ["others/reads-the-results"])
    after = api.get(TUNING_JOB, "digits", SPACE)
    assert after is not None
    (result,) = after["status"]["results"]
    assert (result["trial"], result["epoch"], result["value"]) == (0, 1, "0.5")
    names = [job["metadata"]["name"] for job in api.objects(TRAINING_JOB)]
    assert names == ["digits-t0000-e1"], "the one whose result is counted, for its log"


ENDED = {
    "phase": "Succeeded",
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:01:00Z",
    "metrics": [{"epoch": 1, "value": "0.5"}],
}


async def test_a_search_under_way_is_held_and_one_that_is_over_is_not(api: FakeApiServer) -> None:
    over = raw_tuning_job("over", status={"phase": "Failed"})
    api.put(TUNING_JOB, over)
    api.put(TUNING_JOB, raw_tuning_job())
    async with leading(api):
        await until(lambda: held(api, TUNING_JOB, "digits") == [FINALIZER])
        await delete(api, TUNING_JOB, "digits")
        await until(lambda: api.get(TUNING_JOB, "digits", SPACE) is None)
    assert held(api, TUNING_JOB, "over") == []
