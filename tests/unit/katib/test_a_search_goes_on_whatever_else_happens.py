# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Restarts, other clients, faults of the API server, and the end of a search."""

from __future__ import annotations

import pytest

from fakes.katib_search import NAME, NAMESPACE, katib_rig
from fakes.katib_service import katib_service
from ullage.ports import TUNING_JOB
from ullage_katib.bridge import NoMoreTries, SearchGone, Unusable

POINT = {"lr": "0.01", "width": "16", "drop": "0.1", "momentum": "0.35", "act": "relu"}


async def test_a_service_hears_of_every_result() -> None:
    async with katib_rig() as rig, katib_service() as service:
        await rig.run(service.address)
        ended = {
            f"{NAME}-t{one['trial']:04d}": one["value"] for one in rig.job["status"]["results"]
        }
        assert len(service.values) == 8, "those of the last four come to no request"
        told = {name: repr(value) for name, value in service.values.items()}
        assert told.items() <= ended.items()
        assert [one.current_request_number for one in service.asked] == [4, 4, 4]
        assert [one.total_request_number for one in service.asked] == [4, 8, 12]
        assert len(service.validated) == 1


async def test_a_service_that_was_restarted_is_asked_without_what_it_forgot() -> None:
    async with katib_rig() as rig, katib_service() as service:

        def forget_once() -> None:
            if len(rig.suggestions) == 4 and len(service.asked) == 1:
                service.forget()

        rig.at_pause = forget_once
        await rig.run(service.address)
        assert [len(one.trials) for one in service.asked] == [0, 4, 4, 4, 0, 4]
        assert len(rig.suggestions) == 12


async def test_trials_of_another_client_are_left_out_where_the_service_does_not_know_them() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.edit(suggestions=[{"trial": 5, "parameters": POINT}])
        await rig.run(service.address)
        assert [one["trial"] for one in rig.suggestions] == [5, *range(6, 17)]
        told = [[one.name for one in request.trials] for request in service.asked]
        assert told[0] == ["digits-t0005"]
        assert "digits-t0005" not in told[-1]
        assert len(told[-1]) > 4, "those that it suggested itself stay known"


async def test_another_client_that_writes_at_once_takes_no_room_from_it() -> None:
    """The spec changed since it was read: what still has room is written, with other numbers."""
    async with katib_rig(trials=5, parallelism=4) as rig, katib_service() as service:

        async def meanwhile(request: object, context: object) -> object:
            points = [{**POINT, "lr": f"0.0{at + 1}"} for at in range(3)]
            stated = [{"trial": 500 + at, "parameters": point} for at, point in enumerate(points)]
            rig.edit(suggestions=stated)
            return service.draw(request)  # type: ignore[arg-type]

        service.misdeeds.append(meanwhile)
        rig.stuck = True
        rig.at_pause = lambda: rig.edit(suggestionsEnded=True)
        await rig.run(service.address)
        assert [one["trial"] for one in rig.suggestions] == [500, 501, 502, 503]


async def test_faults_of_the_api_server_cost_no_trial() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.api.fail(500, verb="patch", times=2)
        await rig.run(service.address)
        assert len(rig.suggestions) == 12


async def test_a_write_whose_answer_is_lost_is_not_written_twice() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.api.fail(0, verb="patch", after_write=True)
        await rig.run(service.address)
        points = [tuple(sorted(one["parameters"].items())) for one in rig.suggestions]
        assert len(set(points)) == len(points) == 12
        assert rig.most_at_once == 4


async def test_an_api_server_that_stays_away_is_named() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.api.fail(503, times=None)
        with pytest.raises(NoMoreTries, match="503"):
            await rig.run(service.address, tries=3)


async def test_a_missing_right_is_said_at_once() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.api.fail(403, verb="patch")
        with pytest.raises(Unusable, match="403"):
            await rig.run(service.address)
        assert len(rig.pauses) == 0


async def test_a_search_that_is_deleted_or_made_again_ends_it() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.at_pause = lambda: rig.api.remove(TUNING_JOB, NAME, NAMESPACE)
        with pytest.raises(SearchGone):
            await rig.run(service.address)
    async with katib_rig() as rig, katib_service() as service:
        rig.at_pause = lambda: rig.api.edit(
            TUNING_JOB, NAME, {"metadata": {"uid": "another"}}, NAMESPACE
        )
        with pytest.raises(SearchGone, match="made again"):
            await rig.run(service.address)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_search_that_is_over_gets_no_trials(phase: str) -> None:
    async with katib_rig(status={"phase": phase}) as rig, katib_service() as service:
        await rig.run(service.address)
        assert service.asked == []
        assert not rig.ended


async def test_trials_that_fail_make_room_for_others() -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.score = lambda parameters: None
        await rig.run(service.address)
        assert len(rig.suggestions) == 12
        assert service.values == {}


async def test_a_search_that_cannot_be_read_is_said_at_once() -> None:
    async with katib_rig(searchSpace=[]) as rig, katib_service() as service:
        with pytest.raises(Unusable, match="searchSpace"):
            await rig.run(service.address)


async def test_it_asks_for_nothing_but_its_own_tuning_job() -> None:
    async with katib_rig() as rig, katib_service() as service:
        await rig.run(service.address)
        asked = {(one.ask.verb, one.ask.resource, one.ask.name) for one in rig.api.requests}
        assert asked == {("get", "tuningjobs", NAME), ("patch", "tuningjobs", NAME)}
