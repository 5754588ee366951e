# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An excerpt of a trace keeps its order, leaves time between losses and hides nothing."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from bench.spot_trace import Change, Event, Kind, Pace, TraceUnreadable, excerpt, read

PACE = Pace(length_s=300.0)


def a_trace(seed: int = 1, *, nodes: int = 8, hours: float = 10.0) -> list[Change]:
    """A group that fills itself up again, with losses of several nodes at once."""
    source, number, at_s = random.Random(seed), 0, 0.0
    alive: list[str] = []
    found: list[Change] = []
    while at_s < hours * 3600:
        while len(alive) < nodes:
            number += 1
            alive.append(f"node{number}")
            found.append(Change(at_s=at_s, joined=True, node=alive[-1]))
        at_s += source.expovariate(1 / 600)
        for _ in range(min(len(alive), source.randint(1, 3))):
            gone = alive.pop(source.randrange(len(alive)))
            found.append(Change(at_s=at_s, joined=False, node=gone))
        at_s += source.expovariate(1 / 300)
    return found


def losses(events: list[Event]) -> list[Event]:
    return [one for one in events if one.takes]


@pytest.mark.parametrize("seed", range(20))
def test_losses_have_time_between_them_and_a_node_is_always_left(seed: int) -> None:
    found = excerpt(a_trace(seed), 4, PACE)
    events = list(found.events)
    assert events == sorted(events, key=lambda one: (one.at_s, one.node))
    assert 0 < len(losses(events)) <= PACE.length_s // PACE.gap_s
    assert all(
        later.at_s - sooner.at_s > PACE.gap_s - 1e-6 for sooner, later in pairwise(losses(events))
    )
    away: set[int] = set()
    for one in events:
        assert one.at_s <= PACE.length_s
        match one.kind:
            case Kind.KILL | Kind.NOTICE:
                assert one.node not in away
                away.add(one.node)
                assert len(away) < 4
            case Kind.ADD:
                away.remove(one.node)


def test_every_other_loss_is_told_and_the_machine_of_a_notice_goes_later() -> None:
    events = list(excerpt(a_trace(), 4, PACE).events)
    kinds = [one.kind for one in losses(events)]
    assert kinds == [Kind.NOTICE, Kind.KILL] * (len(kinds) // 2) + [Kind.NOTICE] * (len(kinds) % 2)
    told = next(one for one in events if one.kind is Kind.NOTICE)
    gone = next(one for one in events if one.kind is Kind.GONE)
    assert (gone.node, gone.at_s - told.at_s) == (told.node, PACE.notice_s)


def test_a_loss_that_would_leave_no_one_is_withheld_and_counted() -> None:
    trace = [Change(at_s=0.0, joined=True, node=name) for name in "ab"]
    trace += [Change(at_s=60.0, joined=False, node=name) for name in "ab"]
    trace += [Change(at_s=120.0, joined=True, node=name) for name in "cd"]
    found = excerpt(trace, 2, PACE)
    assert len(losses(list(found.events))) == 1
    assert found.withheld == 1


def test_a_trace_without_losses_gives_nothing() -> None:
    found = excerpt([Change(at_s=0.0, joined=True, node="a")], 2, PACE)
    assert (list(found.events), found.withheld) == ([], 0)


def test_files_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("trace,time_ms,event,node\nx,2000,remove,a\nx,1000,add,a\n", "utf-8")
    assert [(one.at_s, one.joined) for one in read(path)] == [(1.0, True), (2.0, False)]
    for text in ("", "time_ms,event\n1,add\n", "time_ms,event,node\n1,joined,a\n"):
        path.write_text(text, "utf-8")
        with pytest.raises(TraceUnreadable):
            read(path)
