# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The books of fairness: what a job was promised, what it had, what it is owed.

They live in the job's status and are written only when the promise changes or a turn begins or
ends; in between everything follows from the clock. No one is ever owed more than a job remembers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import (
    AllocationRecord,
    DroppedDeadline,
    PairRecord,
    PartedRecord,
    Received,
)
from ullage.engines.allocation.round_records import MEMORY_ROUNDS

_LARGEST: Final = 999_999_999.0
"""What a decimal of the API can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the books of one job should say from now on.

    Attributes:
        fractions: Promise by type, as decimal strings, sorted.
        holds: Type whose devices it has; empty for none.
        began: Since when.
        effective: Steps/s that the promise amounts to.
        normalised: The same against its proportional part of the cluster.
        source: Weakest source of the speeds.
        worth: By type, seconds on an equal part that a second on it is worth; ``None`` where that
            is not counted.
        skipped: Smaller jobs pass it by.
        started_s: What the start took that just ended; 0 = no start ended.
        dropped: Why its deadline is not kept; ``None`` = it is, or there is none.
        pairs: Promises beside others, as records without time had; in order.
        beside: uid of the job that it shares its device with in this turn; empty for none.
        parted: Pairs that are left out for a while.
    """

    fractions: tuple[tuple[str, str], ...] = ()
    holds: str = ""
    began: float = 0.0
    effective: float = 0.0
    normalised: float = 0.0
    source: str = ""
    worth: Mapping[str, float] | None = None
    skipped: bool = False
    started_s: float = 0.0
    dropped: DroppedDeadline | None = None
    pairs: tuple[PairRecord, ...] = ()
    beside: str = ""
    parted: tuple[PartedRecord, ...] = ()

    @property
    def said(self) -> Said:
        """What has to be written when it changes."""
        return (
            self.holds,
            self.fractions,
            self.source,
            self.skipped,
            self.dropped,
            self.beside,
            self.pairs,
            self.parted,
        )


Said = tuple[
    str,
    tuple[tuple[str, str], ...],
    str,
    bool,
    DroppedDeadline | None,
    str,
    tuple[PairRecord, ...],
    tuple[PartedRecord, ...],
]
"""What has to be written when it changes: type, fractions, source, skipped, dropped, partner, pairs
as promised, and those that are left out."""


def number(value: float, digits: int = 4) -> str:
    """A decimal string of the API, without zeros at its end."""
    said = f"{max(-_LARGEST, min(_LARGEST, value)):.{digits}f}"
    said = said.rstrip("0").rstrip(".") if "." in said else said
    return "0" if said == "-0" else said


def promised(record: AllocationRecord | None) -> dict[str, float]:
    """Fractions in force by type."""
    return {kind: float(said) for kind, said in record.fractions} if record is not None else {}


def current(record: AllocationRecord | None) -> tuple[str, float]:
    """Type of the turn that the books say is on, and since when; empty and 0 for none."""
    if record is not None:
        for kind, had in record.received:
            if had.since:
                return kind, had.since
    return "", 0.0


def owed_s(record: AllocationRecord | None, now: float, most_s: float) -> dict[str, float]:
    """Promised less received time of each type now, seconds; bounded by ``most_s`` both ways."""
    if record is None:
        return {}
    kind, began = current(record)
    return _owed(record, now, (kind, began), most_s)


def received_s(record: AllocationRecord | None, now: float) -> dict[str, float]:
    """Time had on each type until now, seconds."""
    return {kind: had.at(now) for kind, had in record.received} if record is not None else {}


def beside(record: AllocationRecord | None) -> str:
    """Uid of the job that the turn that is on is shared with; empty for none."""
    pairs = record.pairs if record is not None else ()
    return next((pair.partner_uid for pair in pairs if pair.since), "")


def pairs_owed_s(
    record: AllocationRecord | None, now: float, most_s: float
) -> dict[tuple[str, str], float]:
    """Promised less received time beside each other job now, seconds, by its uid and the type."""
    if record is None:
        return {}
    return {pair.cell: _pair_owed(record, pair, now, most_s) for pair in record.pairs}


def says(record: AllocationRecord, said: Said) -> bool:
    """Whether the books say this already, whatever the clock says."""
    holds, fractions, source, skipped, dropped, partner, pairs, parted = said
    return (
        current(record)[0] == holds
        and record.fractions == fractions
        and record.source == source
        and bool(record.skipped_since) == skipped
        and record.dropped == dropped
        and (not (pairs or partner or record.pairs) or _pairs_stand(record, partner, pairs))
        and record.parted == parted
    )


def _pairs_stand(record: AllocationRecord, partner: str, pairs: tuple[PairRecord, ...]) -> bool:
    bare = [replace(one, deficit_seconds="", seconds=0, since=0.0) for one in record.pairs]
    return beside(record) == partner and tuple(bare) == pairs


def written(
    before: AllocationRecord | None, entry: Entry, now: float, round_s: float
) -> AllocationRecord:
    """The books of a job; the very record of before where nothing has to be said."""
    if before is not None and not entry.started_s and says(before, entry.said):
        return before
    moment = whole_second(now)
    began = whole_second(entry.began)
    kind, since = current(before)
    same_turn = kind == entry.holds
    if same_turn and since:
        began = since
    old = before or AllocationRecord(since=moment)
    most_s = MEMORY_ROUNDS * round_s
    # a turn that ended, ended now; one that began may have begun a moment ago
    turn = (kind, since) if kind else (entry.holds, began)
    owed = _owed(old, moment, turn, most_s)
    kinds = {one for one, _ in entry.fractions}
    return AllocationRecord(
        since=moment,
        fractions=entry.fractions,
        effective_throughput=number(entry.effective) if entry.fractions else "",
        normalised_share=number(entry.normalised) if entry.fractions else "",
        source=entry.source,
        deficit_seconds=tuple(
            (kind, number(owed.get(kind, 0.0), 1))
            for kind in sorted(kinds | owed.keys())
            if kind in kinds
        ),
        received=_received(old, (kind, since), (entry.holds, began), moment),
        isolated_seconds=_isolated(old, entry, moment),
        skipped_since=(old.skipped_since or moment) if entry.skipped else 0.0,
        restart_seconds=number(entry.started_s, 1) if entry.started_s else old.restart_seconds,
        dropped=entry.dropped,
        pairs=_pairs(old, entry, (turn, began), moment, most_s),
        parted=entry.parted,
    )


def _pairs(
    old: AllocationRecord,
    entry: Entry,
    turns: tuple[tuple[str, float], float],
    moment: float,
    most_s: float,
) -> tuple[PairRecord, ...]:
    """The books of each pair: a turn that ended is added, the one that is on has its beginning."""
    known, (turn, began) = {one.cell: one for one in old.pairs}, turns
    found: list[PairRecord] = []
    for pair in entry.pairs:
        had = known.get(pair.cell)
        on = entry.beside == pair.partner_uid and entry.holds == pair.accelerator
        if had is None:
            found.append(replace(pair, deficit_seconds="0", since=began if on else 0.0))
            continue
        goes_on = on and had.since and turn[0] == entry.holds
        passed = moment - had.since if had.since and not goes_on else 0.0
        found.append(
            replace(
                pair,
                deficit_seconds=number(_pair_owed(old, had, moment, most_s), 1),
                seconds=had.seconds + max(0, int(passed)),
                since=(had.since if goes_on else moment) if on else 0.0,
            )
        )
    return tuple(found)


def _pair_owed(record: AllocationRecord, pair: PairRecord, now: float, most_s: float) -> float:
    """Debt of a pair at a moment; the turn that is on is the one that the books say."""
    elapsed = max(0.0, now - record.since)
    had = max(0.0, now - max(record.since, pair.since)) if pair.since else 0.0
    promised = float(pair.fraction) if pair.fraction else 0.0
    before = float(pair.deficit_seconds) if pair.deficit_seconds else 0.0
    return max(-most_s, min(most_s, before + promised * elapsed - had))


def closed(before: AllocationRecord | None, now: float) -> AllocationRecord | None:
    """The books of a job that takes no turns now: what it had stays, debts lapse."""
    if before is None:
        return None
    kind, since = current(before)
    open_ = (kind, before.fractions, before.deficit_seconds, before.skipped_since, before.dropped)
    if not any((*open_, before.pairs)):
        return before
    moment = whole_second(now)
    return replace(
        before,
        since=moment,
        fractions=(),
        effective_throughput="",
        normalised_share="",
        source="",
        deficit_seconds=(),
        received=_received(before, (kind, since), ("", 0.0), moment),
        skipped_since=0.0,
        dropped=None,
        pairs=(),
    )


def _owed(
    record: AllocationRecord, now: float, turn: tuple[str, float], most_s: float
) -> dict[str, float]:
    """Debts of a moment when ``turn`` = (type, beginning) is the one that is on."""
    elapsed = max(0.0, now - record.since)
    kind, began = turn
    had = max(0.0, now - max(record.since, began)) if kind else 0.0
    owed = {one: float(said) for one, said in record.deficit_seconds}
    for one, said in record.fractions:
        owed[one] = owed.get(one, 0.0) + float(said) * elapsed
    if kind:
        owed[kind] = owed.get(kind, 0.0) - had
    for one, seconds in owed.items():
        if not -most_s <= seconds <= most_s:
            owed[one] = math.copysign(most_s, seconds)
    return owed


def _received(
    old: AllocationRecord,
    before: tuple[str, float],
    after: tuple[str, float],
    moment: float,
) -> tuple[tuple[str, Received], ...]:
    """Time had by type: the turn that ended is added, the one that is on has its beginning."""
    had = dict(old.received)
    if before[0] and before[0] != after[0]:
        had[before[0]] = Received(seconds=int(had[before[0]].at(moment)))
    if after[0] and before[0] != after[0]:
        earlier = had.get(after[0], Received()).seconds
        had[after[0]] = Received(seconds=earlier, since=after[1])
    return tuple(sorted(had.items()))


def _isolated(old: AllocationRecord, entry: Entry, moment: float) -> str:
    """What the steps done would have taken alone on an equal part, where that is counted."""
    if entry.worth is None:
        return old.isolated_seconds
    return number(isolated_now(old, entry.worth, moment), 1)


def isolated_now(record: AllocationRecord | None, worth: Mapping[str, float], now: float) -> float:
    """Isolated time until now, seconds; the turn that the books say is on counts by its type.

    Args:
        record: The books.
        worth: By type, seconds on an equal part that a second on it is worth.
        now: The moment, seconds since the epoch.
    """
    if record is None:
        return 0.0
    kind, began = current(record)
    ran_s = max(0.0, now - max(record.since, began)) if kind else 0.0
    before = float(record.isolated_seconds) if record.isolated_seconds else 0.0
    return before + ran_s * worth.get(kind, 0.0)


def as_text(fractions: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Fractions as the status holds them; what is rounding is left out."""
    return tuple(
        (kind, number(fractions[kind])) for kind in sorted(fractions) if fractions[kind] >= 5e-5
    )
