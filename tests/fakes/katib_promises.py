# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What every suggestion service keeps, the fake one and Katib's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fakes.katib_search import NAME, KatibRig, katib_rig
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.ports import TUNING_JOB
from ullage_katib.bridge import Unusable

Restart = Callable[[], Awaitable[str]]
"""Start the service again; returns its address."""


async def trials_of_a_search_come_from_it(address: str, algorithm: str) -> KatibRig:
    """A search of 12 trials, four at once, ends with points of the space."""
    async with katib_rig() as rig:
        await rig.run(address, algorithm, settings=(("random_state", "7"),))
        _is_whole(rig, trials=12)
        assert rig.most_at_once == 4
        return rig


async def it_goes_on_where_it_ended(address: str, algorithm: str, restart: Restart) -> None:
    """Another process and another service finish the search; no trial is lost or comes twice."""
    async with katib_rig() as rig:
        rig.at_pause = lambda: rig.edit(suggestionsEnded=len(rig.suggestions) >= 4)
        await rig.run(address, algorithm)
        assert len(rig.suggestions) == 4
        before = rig.suggestions
        rig.end_trials()
        rig.edit(suggestionsEnded=False)
        rig.at_pause = lambda: None
        await rig.run(await restart(), algorithm)
        _is_whole(rig, trials=12)
        assert rig.suggestions[:4] == before


async def it_refuses_what_it_does_not_know(address: str) -> None:
    """No trial comes of an algorithm that it does not know."""
    async with katib_rig() as rig:
        with pytest.raises(Unusable, match=NAME):
            await rig.run(address, "no-such-algorithm")
        assert rig.suggestions == []


def _is_whole(rig: KatibRig, *, trials: int) -> None:
    record = project_tuning_job(rig.job)
    assert [one.trial for one in record.terms.stated] == list(range(trials))
    assert [one.refused for one in record.terms.stated] == [""] * trials
    points = {tuple(sorted(one.point.items())) for one in record.terms.stated}
    assert len(points) == trials, "a point comes once"
    assert rig.ended
    assert rig.api.write_count("patch", TUNING_JOB.plural) >= 2
