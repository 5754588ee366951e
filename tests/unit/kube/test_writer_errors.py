# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What each answer of the API makes the writer do and tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from builders import a_slice
from builders_raw import owner_reference, raw_meta
from fakes import writer_rig as do
from fakes.virtual_time import START, run_virtual
from fakes.writer_rig import Rig, a_rig
from ullage import ports
from ullage.api.reasons import Reason
from ullage.cluster.records.pod_shape import NodeAffinity, SelectorTerm
from ullage.kube.errors import Refused
from ullage.ports import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
)
from ullage.scheduling.model.plan import Action


def one(action: Action, error: ApiError, *, times: int = 1, seconds: float = 5.0) -> Rig:
    """One action, one kind of failure."""

    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(error, times=times)
            await rig.write(action, seconds=seconds)
            return rig

    return run_virtual(main())


@pytest.mark.parametrize(
    "error",
    [NotFound(404, "gone"), Conflict(409, "changed", "Conflict"), Invalid(422, "test failed")],
)
@pytest.mark.parametrize("action", [do.ungate(), do.delete(), do.node(), do.status()])
def test_the_world_moved_on_is_told_once_and_not_retried(action: Action, error: ApiError) -> None:
    rig = one(action, error)
    assert rig.results == [(action, error)]
    assert len(rig.cluster.calls) == 1


@pytest.mark.parametrize("action", [do.create(), do.kube_service()])
def test_a_webhook_that_does_not_answer_is_the_users_to_see_and_no_hot_loop(action: Action) -> None:
    text = 'Internal error occurred: failed calling webhook "mpod.kb.io": connection refused'
    rig = one(action, Unavailable(500, text), times=9)
    ((_, error),) = rig.results
    assert isinstance(error, Refused)
    assert (error.verdict, len(rig.cluster.calls)) == (Reason.CREATE_REFUSED, 1)
    assert "mpod.kb.io" in error.message


def test_an_object_that_changed_is_left_alone_for_a_moment() -> None:
    async def main() -> list[float]:
        async with a_rig() as rig:
            rig.cluster.fail(Conflict(409, "changed"), name="n1")
            await rig.write(do.node("n1"), seconds=0.1)
            await rig.write(do.node("n1"), do.node("n2"))
            return [round(call.at - START, 2) for call in rig.cluster.calls]

    assert run_virtual(main()) == [0.0, 0.1, 0.5]


def test_a_gpu_node_whose_node_is_gone_is_not_written() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(replace(do.node("n1"), node_uid=""))
            return rig

    rig = run_virtual(main())
    assert rig.cluster.calls == []
    assert [type(error) for error in rig.errors] == [Conflict]


def test_success_is_told() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.create())
            return rig

    rig = run_virtual(main())
    assert rig.results == [(do.create(), None)]
    assert rig.stats.writes == {("create", "Pod", "ok"): 1}


@pytest.mark.parametrize("action", [do.create(), do.delete(), do.node(), do.status(), do.evict()])
def test_a_server_error_is_tried_three_times(action: Action) -> None:
    rig = one(action, Unavailable(503, "away"), times=99)
    assert len(rig.cluster.calls) == 3
    assert isinstance(rig.errors[0], Unavailable)
    pauses = [
        round(b.at - a.at, 3)
        for a, b in zip(rig.cluster.calls, rig.cluster.calls[1:], strict=False)
    ]
    assert 0.1 <= pauses[0] <= 0.3
    assert 0.2 <= pauses[1] <= 0.6


def test_a_passing_server_error_is_no_failure() -> None:
    rig = one(do.create(), Unavailable(0, "no answer"), times=2)
    assert rig.results == [(do.create(), None)]
    assert rig.stats.writes["create", "Pod", "unavailable"] == 2


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "exceeded quota: gpu", "Forbidden"),
        Invalid(422, "spec.containers[0].image: Required value", "Invalid"),
        BadRequest(400, "json: cannot unmarshal number", "BadRequest"),
    ],
)
@pytest.mark.parametrize("action", [do.create(), do.kube_service(), do.deployment()])
def test_a_refused_create_is_the_users_to_see_in_the_apis_words(
    action: Action, error: ApiError
) -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            verb = "create" if isinstance(action, type(do.create())) else "apply"
            rig.cluster.fail(error, verb=verb)
            await rig.write(action)
            return rig

    (refused,) = run_virtual(main()).errors
    assert isinstance(refused, Refused)
    assert refused.verdict is Reason.CREATE_REFUSED
    assert refused.message == error.message
    assert refused.namespace == "default"
    assert (refused.kind, refused.name) in {
        ("Pod", "train-0"),
        ("Service", "train-workers"),
        ("Deployment", "serve"),
    }


def test_a_template_that_cannot_be_read_is_a_refused_create() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.source.template = {"metadata": {"labels": {"n": 1}}, "spec": {"containers": [{}]}}
            await rig.write(do.create())
            return rig

    rig = run_virtual(main())
    (refused,) = rig.errors
    assert isinstance(refused, Refused)
    assert "spec.template: labels[n]: expected a string" in refused.message
    assert rig.cluster.calls == []


def held(kind: str, owner: str, uid: str, **meta: Any) -> dict[str, Any]:
    references = [owner_reference(kind, owner, uid)] if kind else []
    return {"metadata": raw_meta("train-0", ownerReferences=references, **meta)}


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (held("TrainingJob", "train", "uid-train"), None),
        (held("TrainingJob", "train", "uid-train", deletionTimestamp="now"), Conflict),
        (held("TrainingJob", "train", "an-earlier-one"), Conflict),
        (held("TrainingJob", "other", "uid-other"), Refused),
        (held("ReplicaSet", "web-1", "uid-web"), Refused),
        (held("", "", ""), Refused),
    ],
    ids=["ours", "ours-but-leaving", "namesake-before", "other-job", "replica-set", "no one"],
)
def test_a_taken_name(holder: dict[str, Any], expected: type[ApiError] | None) -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.put(ports.POD, holder)
            await rig.write(do.create())
            return rig

    rig = run_virtual(main())
    assert [type(error) for error in rig.errors] == ([expected] if expected else [])
    assert rig.cluster.verbs() == [("create", "train-0"), ("get", "train-0")]


def test_a_name_conflict_says_who_holds_the_name_and_what_to_do() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.put(ports.POD, held("ReplicaSet", "web-1", "uid-web"))
            await rig.write(do.create())
            return rig

    (refused,) = run_virtual(main()).errors
    assert isinstance(refused, Refused)
    assert refused.verdict is Reason.NAME_CONFLICT
    assert refused.message == (
        "Pod default/train-0 exists and belongs to ReplicaSet web-1; delete or "
        "rename it, or give the workload another name"
    )


@pytest.mark.parametrize("action", [do.kube_service(), do.deployment()])
def test_someone_elses_child_is_not_taken_over(action: Action) -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            for kind, name in ((ports.SERVICE, "train-workers"), (ports.DEPLOYMENT, "serve")):
                rig.cluster.put(kind, {"metadata": raw_meta(name), "spec": {"theirs": True}})
            await rig.write(action)
            return rig

    rig = run_virtual(main())
    (refused,) = rig.errors
    assert isinstance(refused, Refused)
    assert refused.verdict is Reason.NAME_CONFLICT
    assert all(stored["spec"] == {"theirs": True} for stored in rig.cluster.objects.values())


def test_an_answer_lost_on_the_way_does_not_create_twice() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Unavailable(0, "connection reset"), verb="create", after=True)
            await rig.write(do.create())
            return rig

    rig = run_virtual(main())
    assert rig.errors == []
    assert [verb for verb, _ in rig.cluster.verbs()] == ["create", "create", "get"]


def test_a_changed_template_ends_the_create() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            await rig.write(do.create(template_hash="another"))
            rig.source.gone.add("uid-train")
            await rig.write(do.create())
            return rig

    rig = run_virtual(main())
    assert rig.cluster.calls == []
    assert [type(error) for error in rig.errors] == [Conflict, Conflict]


def test_a_pin_that_cannot_narrow_is_told() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            affinity = NodeAffinity(
                has_affinity=True, has_node_affinity=True, required=(SelectorTerm(),)
            )
            await rig.write(do.ungate(affinity=affinity))
            return rig

    rig = run_virtual(main())
    (refused,) = rig.errors
    assert isinstance(refused, Refused)
    assert refused.verdict is Reason.NODE_AFFINITY_CONFLICT
    assert refused.message.startswith("node selector term 0 is empty")
    assert rig.cluster.calls == []


def test_a_missing_right_is_shown_and_not_asked_for_in_a_hot_loop() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Forbidden(403, "cannot patch gpunodes"), times=99)
            for number in range(100):
                rig.writer.submit([do.node("n1", a_slice(percent=number + 1))])
                await asyncio.sleep(0.5)
            return rig

    rig = run_virtual(main())
    times = [round(call.at - START) for call in rig.cluster.calls]
    assert times == [0, 10, 30]
    refused = rig.errors[0]
    assert isinstance(refused, Refused)
    assert refused.verdict is Reason.WRITE_REFUSED
    assert refused.message == "cannot patch gpunodes"
    assert (refused.kind, refused.namespace, refused.name) == ("GPUNode", "", "n1")


def test_the_same_refusal_three_times_backs_off_and_is_shown() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Invalid(422, "spec.slices: too many"), times=99)
            for number in range(20):
                await rig.write(do.node("n1", a_slice(percent=number + 1)), seconds=1)
            return rig

    rig = run_virtual(main())
    assert [type(error) for error in rig.errors] == [Invalid, Invalid, Refused, Refused]
    assert [round(call.at - START) for call in rig.cluster.calls] == [0, 1, 2, 12]


def test_different_refusals_do_not_add_up() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            for number in range(6):
                rig.cluster.fail(Invalid(422, f"text {number % 2}"))
                await rig.write(do.node("n1", a_slice(percent=number + 1)), seconds=1)
            return rig

    assert {type(error) for error in run_virtual(main()).errors} == {Invalid}


def test_a_success_clears_the_strikes() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            for number in range(6):
                if number != 2:
                    rig.cluster.fail(Invalid(422, "same"))
                await rig.write(do.node("n1", a_slice(percent=number + 1)), seconds=1)
            return rig

    assert [type(e) for e in run_virtual(main()).errors] == [Invalid] * 4 + [Refused]


def test_a_re_created_object_is_no_reason_to_complain() -> None:
    error = Invalid(422, "metadata.uid: Invalid value: field is immutable")
    rig = one(do.deployment(), error, times=1)
    assert type(rig.errors[0]) is Invalid


def test_a_disruption_budget_holds_that_eviction_back_and_nothing_else() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            budget = Throttled(429, "would violate the pod's disruption budget", retry_after_s=20)
            rig.cluster.fail(budget, verb="evict")
            await rig.write(do.evict("p-0"))
            await rig.write(do.evict("p-0"), do.evict("q-0"), seconds=60)
            return rig

    rig = run_virtual(main())
    assert [(call.name, round(call.at - START)) for call in rig.cluster.calls] == [
        ("p-0", 0),
        ("q-0", 5),
        ("p-0", 20),
    ]
    assert rig.stats.per_second == 1000.0
    assert isinstance(rig.errors[0], Throttled)


def test_too_many_requests_end_after_three_tries() -> None:
    rig = one(do.evict(), Throttled(429, "too many requests"), times=99, seconds=60)
    assert len(rig.cluster.calls) == 3
    assert isinstance(rig.errors[0], Throttled)


def test_a_status_that_stays_invalid_is_shown_by_an_event() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(Invalid(422, "status.size: Invalid value"), name="train", times=3)
            for number in range(3):
                await rig.write(do.status(f"phase {number}"), seconds=1)
            return rig

    rig = run_virtual(main())
    assert [type(error) for error in rig.errors] == [Invalid, Invalid, Refused]
    (event,) = [call.body for call in rig.cluster.calls if call.verb == "create"]
    assert event["reason"] == "WriteRefused"
    assert "status.size: Invalid value" in event["message"]
    assert rig.stats.writes["apply", "TrainingJob/status", "invalid"] == 3
