# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A suggestion service that hangs, repeats itself or lies: every failure has a bound and a text."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from fakes.katib_search import KatibRig, katib_rig
from fakes.katib_service import Misdeed, a_reply, answers, katib_service
from ullage_katib.bridge import NoMoreTries, Unusable
from ullage_katib.proto import suggestion_pb2 as messages
from ullage_katib.service import ANSWER_BYTES

GOOD = {"lr": "0.01", "width": "16", "drop": "0.1", "momentum": "0.35", "act": "relu"}


async def hangs(*_: Any) -> bytes:
    await asyncio.sleep(5)
    return b""


async def fails(_: Any, context: grpc.aio.ServicerContext) -> bytes:
    await context.abort(grpc.StatusCode.INTERNAL, "boom\n" * 1000)
    raise AssertionError("abort raises")


async def gave_up(rig: KatibRig, misdeed: Misdeed, **given: Any) -> str:
    """The text with which it gives up on a service that always does this."""
    async with katib_service(always=misdeed) as service:
        with pytest.raises(NoMoreTries) as caught:
            await rig.run(service.address, tries=3, **given)
        # one that ends at its deadline may never have reached the service; pauses count it
        assert len(service.asked) >= 3 or "DEADLINE_EXCEEDED" in str(caught.value)
    assert not rig.ended, "the search stays open"
    assert rig.suggestions == []
    return str(caught.value)


async def test_one_that_hangs_is_given_up_after_a_deadline_each() -> None:
    async with katib_rig() as rig:
        said = await gave_up(rig, hangs, deadline_s=0.05)
        assert "3 failures in a row" in said
        assert "DEADLINE_EXCEEDED" in said
        assert rig.pauses == [1.0, 2.0]


async def test_pauses_grow_up_to_a_minute() -> None:
    async with katib_rig() as rig, katib_service(always=fails) as service:
        with pytest.raises(NoMoreTries):
            await rig.run(service.address, tries=9)
        assert rig.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


async def test_one_that_hangs_for_a_while_costs_no_trial() -> None:
    async with katib_rig() as rig, katib_service(misdeeds=[hangs, fails]) as service:
        await rig.run(service.address, deadline_s=0.5)
        assert len(rig.suggestions) == 12


async def test_failures_count_in_a_row() -> None:
    async with katib_rig(parallelism=1) as rig, katib_service() as service:

        def every_other() -> None:
            if len(service.asked) % 2:
                service.misdeeds[:] = [fails]

        rig.at_pause = every_other
        await rig.run(service.address, tries=3)
        assert len(rig.suggestions) == 12


async def test_one_that_is_not_there_is_named() -> None:
    async with katib_rig() as rig:
        with pytest.raises(NoMoreTries, match="UNAVAILABLE"):
            await rig.run("127.0.0.1:1", tries=2)


@pytest.mark.parametrize(
    ("misdeed", "words"),
    [
        (fails, "INTERNAL: boom"),
        (answers(b"\xff" * 100), "100 bytes is no message"),
        (answers(b"\0" * (ANSWER_BYTES + 1)), "RESOURCE_EXHAUSTED"),
        (answers(a_reply(*[GOOD] * 5)), "suggests 5 points where 4 were asked for"),
        (answers(a_reply({**GOOD, "lr": "NaN"})), "lr: 'NaN' is not in the search space"),
        (answers(a_reply({**GOOD, "lr": "0.2"})), "lr: '0.2' is not in the search space"),
        (answers(a_reply({**GOOD, "lr": "1" * 10_000})), "10000 characters"),
        (answers(a_reply({**GOOD, "width": "17"})), "width: '17' is not"),
        (answers(a_reply({**GOOD, "width": "16.0"})), "width: '16.0' is not"),
        (answers(a_reply({**GOOD, "act": "$(HOSTNAME)"})), "is not in the search space"),
        (answers(a_reply({**GOOD, "depth": "2"})), "has no parameter 'depth'"),
        (answers(a_reply({"lr": "0.01"})), "lacks parameter 'act'"),
        (answers(a_reply({})), "lacks parameter"),
    ],
    ids=range(13),
)
async def test_answers_that_are_wrong_become_no_trials(misdeed: Misdeed, words: str) -> None:
    async with katib_rig() as rig:
        said = await gave_up(rig, misdeed)
        assert words in said
        assert len(said) < 600
        assert "\n" not in said


async def test_an_answer_with_no_points_is_no_progress() -> None:
    async with katib_rig() as rig:
        assert "no point is new (0 suggested before)" in await gave_up(rig, answers(a_reply()))


async def test_a_point_that_is_wrong_takes_no_other_with_it() -> None:
    mixed = answers(a_reply({**GOOD, "lr": "7"}, GOOD, {**GOOD, "lr": "inf"}))
    async with katib_rig() as rig, katib_service(misdeeds=[mixed]) as service:
        await rig.run(service.address)
        assert rig.suggestions[0] == {"trial": 0, "parameters": GOOD}
        assert len(rig.suggestions) == 12


async def test_one_that_repeats_itself_is_given_up_when_nothing_runs() -> None:
    async with katib_rig() as rig, katib_service(always=answers(a_reply(GOOD))) as service:
        with pytest.raises(NoMoreTries, match=r"no point is new \(1 suggested before\)"):
            await rig.run(service.address, tries=3)
        assert rig.suggestions == [{"trial": 0, "parameters": GOOD}]
        assert not rig.ended
        assert len(service.asked) < 10


async def test_one_that_waits_for_results_is_not_asked_meanwhile() -> None:
    async with katib_rig() as rig, katib_service(always=answers(a_reply(GOOD))) as service:
        rig.stuck = True

        def soon() -> None:
            if len(rig.pauses) == 20:
                assert len(service.asked) == 2, "once for the first point, once for no other"
                service.always = None
                rig.stuck = False

        rig.at_pause = soon
        await rig.run(service.address)
        assert len(rig.suggestions) == 12


async def test_points_run_again_where_that_is_asked_for() -> None:
    async with katib_rig(trials=3) as rig, katib_service(always=answers(a_reply(GOOD))) as service:
        await rig.run(service.address, allow_repeats=True)
        assert rig.suggestions == [{"trial": at, "parameters": GOOD} for at in range(3)]
        assert rig.ended


async def test_a_search_ends_when_its_space_is_used_up() -> None:
    space = [{"name": "act", "type": "Categorical", "values": ["relu", "tanh", "gelu"]}]
    async with katib_rig(searchSpace=space) as rig, katib_service() as service:
        rig.score = lambda parameters: 1.0
        await rig.run(service.address)
        assert sorted(one["parameters"]["act"] for one in rig.suggestions) == [
            "gelu",
            "relu",
            "tanh",
        ]
        assert rig.ended


async def test_a_sequence_that_begins_again_is_followed_to_its_new_points() -> None:
    """As of a grid whose service was restarted: more old answers than failures are allowed."""
    space = [{"name": "n", "type": "Int", "min": 0, "max": 29}]
    asked = {"at": 0}

    async def in_order(request: messages.GetSuggestionsRequest, _: Any) -> Any:
        first = asked["at"]
        asked["at"] += request.current_request_number
        return a_reply(*({"n": str(at)} for at in range(first, asked["at"])))

    async with katib_rig(searchSpace=space, trials=30, parallelism=2) as rig:
        rig.score = lambda parameters: 1.0
        async with katib_service(always=in_order) as service:
            rig.at_pause = lambda: rig.edit(suggestionsEnded=len(rig.suggestions) >= 20)
            await rig.run(service.address)
            rig.at_pause = lambda: None
            rig.edit(suggestionsEnded=False)
            rig.end_trials()
            asked["at"] = 0
            await rig.run(service.address, tries=2)
        assert [one["parameters"]["n"] for one in rig.suggestions] == [str(at) for at in range(30)]


def labelled() -> messages.GetSuggestionsReply:
    reply = a_reply(GOOD)
    reply.parameter_assignments[0].labels["generation"] = "1"
    return reply


def named() -> messages.GetSuggestionsReply:
    reply = a_reply(GOOD)
    reply.parameter_assignments[0].trial_name = "kube-system"
    return reply


def with_state() -> messages.GetSuggestionsReply:
    reply = a_reply(GOOD)
    reply.algorithm.algorithm_settings.add(name="evaluating_trials", value="3")
    return reply


@pytest.mark.parametrize(
    ("reply", "words"),
    [(labelled(), "labels its trials"), (named(), "names or labels"), (with_state(), "its state")],
)
async def test_algorithms_that_keep_more_than_points_are_refused_at_once(
    reply: messages.GetSuggestionsReply, words: str
) -> None:
    async with katib_rig() as rig, katib_service(always=answers(reply)) as service:
        with pytest.raises(Unusable, match=words):
            await rig.run(service.address)
        assert len(service.asked) == 1
        assert rig.suggestions == []


async def test_a_service_without_validation_takes_everything() -> None:
    async with katib_rig() as rig, katib_service() as service:

        async def unimplemented(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
            raise AssertionError(body)

        await service.stop()
        service.validates = unimplemented
        await service.start()
        await rig.run(service.address)
        assert len(rig.suggestions) == 12


async def test_one_that_repeats_a_point_within_an_answer_is_asked_again_at_once() -> None:
    """As Katib's Hyperopt does, whose draws of one answer have one seed."""

    async def alike(request: messages.GetSuggestionsRequest, _: Any) -> Any:
        (point,) = service.draw(
            messages.GetSuggestionsRequest(experiment=request.experiment, current_request_number=1)
        ).parameter_assignments
        reply = messages.GetSuggestionsReply()
        reply.parameter_assignments.extend([point] * request.current_request_number)
        return reply

    async with katib_rig() as rig, katib_service(always=alike) as service:
        await rig.run(service.address)
        assert len(rig.suggestions) == 12
        assert rig.most_at_once == 4
