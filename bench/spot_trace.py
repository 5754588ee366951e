# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An excerpt of a public preemption trace, small and short enough for one machine.

The trace says when nodes of a spot group joined and went, not how they were told: every other one
gets a notice here, the rest go without a word. It carries no licence to be copied and stays where
it is. What is changed to make it fit is counted, never hidden.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

FILE: Final = Path("spot") / "preemption_events_p3.csv"
SETTLE_S: Final = 2.0
"""Least time between a machine that comes and what happens next."""


class TraceUnreadable(ValueError):
    """The file is no such trace; the text says what is wrong."""


class Kind(StrEnum):
    """What happens to a node."""

    NOTICE = "notice"
    """Someone says that it goes; it goes a while later."""
    GONE = "gone"
    """The machine of a notice is gone."""
    KILL = "kill"
    """The machine is gone without a word."""
    ADD = "add"
    """A machine comes in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line of the trace: a node joined or went, seconds from its start."""

    at_s: float
    joined: bool
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What is done to a local node, counted from 0, so many seconds after the start."""

    at_s: float
    kind: Kind
    node: int

    @property
    def takes(self) -> bool:
        """Whether work has to leave because of it."""
        return self.kind in (Kind.NOTICE, Kind.KILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What is played.

    Attributes:
        events: By time.
        trace_minutes: How much of the trace it is.
        withheld: Losses that would have left no node at all.
    """

    events: Sequence[Event]
    trace_minutes: float
    withheld: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How an excerpt is squeezed, in seconds.

    Attributes:
        length_s: All of it.
        gap_s: Between two losses, at least.
        notice_s: From a notice to the end of the machine.
        away_s: From the end of a machine to the next one in its place, at least.
    """

    length_s: float
    gap_s: float = 30.0
    notice_s: float = 15.0
    away_s: float = 10.0


def read(path: Path) -> list[Change]:
    """The trace.

    Raises:
        TraceUnreadable: it lacks a column, or a line is none.
    """
    with path.open(encoding="utf-8", newline="") as lines:
        try:
            found = [
                Change(
                    at_s=int(row["time_ms"]) / 1000,
                    joined={"add": True, "remove": False}[row["event"]],
                    node=row["node"],
                )
                for row in csv.DictReader(lines)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise TraceUnreadable(f"{path} is no trace of joins and losses: {error}") from error
    if not found:
        raise TraceUnreadable(f"{path} holds nothing")
    return sorted(found, key=lambda one: one.at_s)


def excerpt(trace: Iterable[Change], nodes: int, pace: Pace) -> Excerpt:
    """The life of the first so many places of the group, squeezed into the time that there is.

    A node takes the lowest free place, as a group of fixed size fills itself up again.
    """
    mine = [one for one in _placed(trace) if one.node < nodes]
    first = next((at for at, one in enumerate(mine) if one.takes), len(mine))
    mine = mine[first:]
    most = max(1, int(pace.length_s // pace.gap_s))
    losses = [at for at, one in enumerate(mine) if one.takes]
    if len(losses) > most:
        mine = mine[: losses[most]]
    if not mine:
        return Excerpt(events=(), trace_minutes=0.0, withheld=0)
    lasted = max(1.0, mine[-1].at_s - mine[0].at_s)
    squeeze = min(1.0, pace.length_s / lasted)
    events, withheld = _squeezed(mine, nodes, squeeze, pace)
    return Excerpt(events=events, trace_minutes=round(lasted / 60, 1), withheld=withheld)


def _placed(trace: Iterable[Change]) -> list[Event]:
    """Joins and losses by place instead of by name."""
    places: dict[str, int] = {}
    found: list[Event] = []
    for change in trace:
        if change.joined:
            taken = set(places.values())
            place = next(at for at in range(len(taken) + 1) if at not in taken)
            places[change.node] = place
        else:
            place = places.pop(change.node, -1)
        if place >= 0:
            kind = Kind.ADD if change.joined else Kind.KILL
            found.append(Event(at_s=change.at_s, kind=kind, node=place))
    return found


def _squeezed(
    mine: Sequence[Event], nodes: int, squeeze: float, pace: Pace
) -> tuple[list[Event], int]:
    began, now = mine[0].at_s, 0.0
    last_loss = -pace.gap_s
    back: dict[int, float] = {}
    """By node that is away: when it may come back."""
    found: list[Event] = []
    withheld = losses = 0
    for one in mine:
        now = max(now, (one.at_s - began) * squeeze)
        if one.takes:
            if one.node in back or len(back) >= nodes - 1:
                withheld += one.node not in back
                continue
            now = last_loss = max(now, last_loss + pace.gap_s)
            kind = Kind.KILL if losses % 2 else Kind.NOTICE
            losses += 1
            found.append(Event(at_s=now, kind=kind, node=one.node))
            gone_s = now
            if kind is Kind.NOTICE:
                gone_s = now + pace.notice_s
                found.append(Event(at_s=gone_s, kind=Kind.GONE, node=one.node))
            back[one.node] = gone_s + pace.away_s
        elif one.node in back:
            now = max(now, back.pop(one.node))
            found.append(Event(at_s=now, kind=Kind.ADD, node=one.node))
            now += SETTLE_S
    played = [one for one in found if one.at_s <= pace.length_s]
    return sorted(played, key=lambda one: (one.at_s, one.node)), withheld
