# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An action that cannot be built or sent ends alone: told, counted, held back; the rest goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import writer_rig as do
from fakes.virtual_time import run_virtual
from fakes.writer_rig import Rig, a_rig
from ullage.api.reasons import Reason
from ullage.kube.errors import Refused
from ullage.kube.requests import RequestBuilder
from ullage.ports import ApiError, JsonObject
from ullage.scheduling.model.plan import Action, SetStatus

ACTIONS = [
    do.create(),
    do.delete(),
    do.evict(),
    do.ungate(),
    do.node(),
    do.kube_service(),
    do.deployment(),
    do.finish(),
    do.status(),
    do.policy(),
]


def wild_status() -> SetStatus:
    """A status with a number that JSON for machines cannot hold."""
    status = do.status(name="wild")
    return replace(status, status=replace(status.status, replicas=10**20))


def written(*actions: Action, template: JsonObject | None = None, **limits: Any) -> Rig:
    async def main() -> Rig:
        async with a_rig(**limits) as rig:
            if template is not None:
                rig.source.template = dict(template)
            await rig.write(*actions)
            return rig

    return run_virtual(main())


def refusals(rig: Rig) -> list[Refused]:
    return [error for error in rig.errors if isinstance(error, Refused)]


def test_a_template_that_cannot_be_built_refuses_its_pod_alone() -> None:
    template = {"spec": {"containers": [{"name": "main", "env": [{"name": {"a": 1}}]}]}}
    rig = written(do.create(), do.node(), do.delete("other-0"), template=template)
    assert sorted(rig.cluster.verbs()) == [("apply", "node-1"), ("delete", "other-0")]
    (refused,) = refusals(rig)
    assert refused.verdict is Reason.CREATE_REFUSED
    assert "cannot be built or sent: TypeError" in refused.message
    assert rig.stats.writes["create", "Pod", "failed"] == 1


def test_a_number_beyond_64_bits_ends_one_write() -> None:
    rig = written(wild_status(), do.status(name="well"))
    assert ("apply", "well") in rig.cluster.verbs()
    assert ("apply", "wild") not in rig.cluster.verbs()
    (refused,) = refusals(rig)
    assert refused.verdict is Reason.WRITE_REFUSED
    assert refused.message.startswith("it cannot be built or sent: ")


def test_a_status_that_cannot_be_written_is_told_by_an_event() -> None:
    rig = written(wild_status())
    (event,) = (body for key, body in rig.cluster.objects.items() if key[0] == "Event")
    assert event["reason"] == Reason.WRITE_REFUSED
    assert event["involvedObject"]["name"] == "wild"
    assert "cannot be built or sent" in event["message"]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    "fault", [TypeError("x"), OverflowError("x"), RecursionError("x"), KeyError("x"), MemoryError()]
)
def test_any_exception_of_any_action_is_told_to_its_owner(
    action: Action, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(RequestBuilder, "request", fail)
    rig = written(action)
    ((told, error),) = rig.results
    assert told == action
    assert isinstance(error, Refused)
    assert type(fault).__name__ in error.message


def test_an_exception_while_sending_is_one_write() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            rig.cluster.fail(RecursionError("maximum depth"), name="train-0")
            await rig.write(do.create(), do.create("train-1"))
            return rig

    rig = run_virtual(main())
    assert [type(error) for _, error in rig.results] in (
        [Refused, type(None)],
        [type(None), Refused],
    )


def test_what_cannot_be_built_is_left_alone_for_longer_and_longer() -> None:
    async def main() -> list[int]:
        async with a_rig(backoff_s=10.0, backoff_most_s=300.0) as rig:
            rig.source.template = {"spec": {"containers": [{"name": "m", "env": [{"name": []}]}]}}
            tries: list[int] = []
            for _ in range(60):
                await rig.write(do.create(), seconds=1.0)
                tries.append(rig.stats.writes["create", "Pod", "failed"])
            return tries

    tries = run_virtual(main())
    assert tries[8] == 1, "held for ten seconds after the first failure"
    assert tries[-1] == 3, "after 10 and 20 s again, then not before 40 s more"


def test_an_event_that_cannot_be_written_matters_to_no_one() -> None:
    target = replace(do.job(), kind="Unheard")
    rig = written(replace(do.emit(), target=target), do.create())
    assert rig.results == [(do.create(), None)]
    assert rig.stats.writes["create", "Event", "failed"] == 1


def test_a_listener_that_raises_ends_no_other_write() -> None:
    async def main() -> Rig:
        async with a_rig() as rig:
            heard = rig.results

            def listen(action: Action, error: ApiError | None) -> None:
                heard.append((action, error))
                if len(heard) == 1:
                    raise KeyError("train")

            rig.writer._on_result = listen
            await rig.write(do.delete("a-0"), do.delete("b-0"))
            return rig

    rig = run_virtual(main())
    assert sorted(rig.cluster.verbs()) == [("delete", "a-0"), ("delete", "b-0")]
    assert rig.stats.writes["delete", "Pod", "failed"] == 1


def test_an_action_that_cannot_be_queued_is_skipped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    wild = replace(do.emit(), text=["no", "text"])  # type: ignore[arg-type]

    async def main() -> Rig:
        async with a_rig() as rig:

            def is_news(action: object) -> bool:
                raise TypeError("unhashable")

            monkeypatch.setattr(rig.writer._events, "is_news", is_news)
            await rig.write(wild, do.create())
            return rig

    rig = run_virtual(main())
    assert rig.results == [(do.create(), None)]
    assert rig.stats.writes["create", "Event", "failed"] == 1
