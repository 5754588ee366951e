# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The account of a job: promised, received and owed time.

It is in the job's status and is written only when a promise changes or a turn begins or ends; in
between it follows from the clock. Debts are bounded.
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
"""Largest value of a decimal in the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """New content of the account of a job.

    Attributes:
        fractions: Promise by type, as decimal strings, sorted.
        holds: Type of its devices; empty for none.
        began: Time at which it got them.
        effective: Steps/s that the promise amounts to.
        normalised: ``effective`` relative to a proportional part of the cluster.
        source: Weakest source of the speeds.
        worth: By type, seconds on an equal part that a second on it is worth; ``None`` when that
            is not counted.
        skipped: True when smaller jobs pass it over.
        started_s: Duration of the start that just ended, seconds; 0 = no start ended.
        dropped: Its deadline if that is missed.
        pairs: Promises beside others, as records without received time; in order.
        beside: uid of the job that shares its device in this turn; empty for none.
        parted: Pairs that are excluded for a while.
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
    def content(self) -> Content:
        """The fields whose change has to be written."""
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


Content = tuple[
    str,
    tuple[tuple[str, str], ...],
    str,
    bool,
    DroppedDeadline | None,
    str,
    tuple[PairRecord, ...],
    tuple[PartedRecord, ...],
]
"""Fields whose change has to be written: type, fractions, source, skipped, dropped, partner, pairs
as promised, and excluded pairs."""


def number(value: float, digits: int = 4) -> str:
    """A decimal string of the API, without trailing zeros."""
    text = f"{max(-_LARGEST, min(_LARGEST, value)):.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def promised(record: AllocationRecord | None) -> dict[str, float]:
    """Fractions in force by type."""
    return (
        {kind: float(fraction) for kind, fraction in record.fractions} if record is not None else {}
    )


def current(record: AllocationRecord | None) -> tuple[str, float]:
    """Type and start of the current turn in the account; empty and 0 for none."""
    if record is not None:
        for kind, had in record.received:
            if had.since:
                return kind, had.since
    return "", 0.0


def owed_s(record: AllocationRecord | None, now: float, most_s: float) -> dict[str, float]:
    """Promised minus received time of each type now, seconds; bounded by ``most_s`` both ways."""
    if record is None:
        return {}
    kind, began = current(record)
    return _owed(record, now, (kind, began), most_s)


def received_s(record: AllocationRecord | None, now: float) -> dict[str, float]:
    """Time received on each type until now, seconds."""
    return {kind: had.at(now) for kind, had in record.received} if record is not None else {}


def beside(record: AllocationRecord | None) -> str:
    """Uid of the partner in the current turn; empty for none."""
    pairs = record.pairs if record is not None else ()
    return next((pair.partner_uid for pair in pairs if pair.since), "")


def pairs_owed_s(
    record: AllocationRecord | None, now: float, most_s: float
) -> dict[tuple[str, str], float]:
    """Promised minus received time beside each other job now, seconds, by its uid and the type."""
    if record is None:
        return {}
    return {pair.cell: _pair_owed(record, pair, now, most_s) for pair in record.pairs}


def has_content(record: AllocationRecord, content: Content) -> bool:
    """True when the account already has this content, at any time."""
    holds, fractions, source, skipped, dropped, partner, pairs, parted = content
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
    bare = [replace(pair, deficit_seconds="", seconds=0, since=0.0) for pair in record.pairs]
    return beside(record) == partner and tuple(bare) == pairs


def written(
    before: AllocationRecord | None, entry: Entry, now: float, round_s: float
) -> AllocationRecord:
    """The new account of a job; the previous object if its content did not change."""
    if before is not None and not entry.started_s and has_content(before, entry.content):
        return before
    moment = whole_second(now)
    began = whole_second(entry.began)
    kind, since = current(before)
    same_turn = kind == entry.holds
    if same_turn and since:
        began = since
    old = before or AllocationRecord(since=moment)
    most_s = MEMORY_ROUNDS * round_s
    # a turn that is over ended now; a new turn may have begun a moment ago
    turn = (kind, since) if kind else (entry.holds, began)
    owed = _owed(old, moment, turn, most_s)
    kinds = {entry_kind for entry_kind, _ in entry.fractions}
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
        isolated_seconds=(
            number(isolated_now(old, entry.worth, moment), 1)
            if entry.worth is not None
            else old.isolated_seconds
        ),
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
    """The account of each pair: an ended turn is added, the current one keeps its start."""
    before, (turn, began) = {pair.cell: pair for pair in old.pairs}, turns
    pairs: list[PairRecord] = []
    for pair in entry.pairs:
        had = before.get(pair.cell)
        on = entry.beside == pair.partner_uid and entry.holds == pair.accelerator
        if had is None:
            pairs.append(replace(pair, deficit_seconds="0", since=began if on else 0.0))
            continue
        goes_on = on and had.since and turn[0] == entry.holds
        passed = moment - had.since if had.since and not goes_on else 0.0
        pairs.append(
            replace(
                pair,
                deficit_seconds=number(_pair_owed(old, had, moment, most_s), 1),
                seconds=had.seconds + max(0, int(passed)),
                since=(had.since if goes_on else moment) if on else 0.0,
            )
        )
    return tuple(pairs)


def _pair_owed(record: AllocationRecord, pair: PairRecord, now: float, most_s: float) -> float:
    """Debt to a pair at a time, by the current turn in the account."""
    elapsed = max(0.0, now - record.since)
    had = max(0.0, now - max(record.since, pair.since)) if pair.since else 0.0
    promised = float(pair.fraction) if pair.fraction else 0.0
    before = float(pair.deficit_seconds) if pair.deficit_seconds else 0.0
    return max(-most_s, min(most_s, before + promised * elapsed - had))


def closed(before: AllocationRecord | None, now: float) -> AllocationRecord | None:
    """The account of a job outside of rounds: received time stays, debts expire."""
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
    """Debts at a time by type; ``turn`` = type and start of the current turn."""
    elapsed = max(0.0, now - record.since)
    kind, began = turn
    had = max(0.0, now - max(record.since, began)) if kind else 0.0
    owed = {type_: float(seconds) for type_, seconds in record.deficit_seconds}
    for type_, fraction in record.fractions:
        owed[type_] = owed.get(type_, 0.0) + float(fraction) * elapsed
    if kind:
        owed[kind] = owed.get(kind, 0.0) - had
    for type_, seconds in owed.items():
        if not -most_s <= seconds <= most_s:
            owed[type_] = math.copysign(most_s, seconds)
    return owed


def _received(
    old: AllocationRecord,
    before: tuple[str, float],
    after: tuple[str, float],
    moment: float,
) -> tuple[tuple[str, Received], ...]:
    """Received time by type: an ended turn is added, the current one keeps its start."""
    had = dict(old.received)
    if before[0] and before[0] != after[0]:
        had[before[0]] = Received(seconds=int(had[before[0]].at(moment)))
    if after[0] and before[0] != after[0]:
        earlier = had.get(after[0], Received()).seconds
        had[after[0]] = Received(seconds=earlier, since=after[1])
    return tuple(sorted(had.items()))


def isolated_now(record: AllocationRecord | None, worth: Mapping[str, float], now: float) -> float:
    """Isolated time until now, seconds; the current turn counts by its type.

    Args:
        record: The account.
        worth: By type, seconds on an equal part that a second on it is worth.
        now: The current time, seconds since the epoch.
    """
    if record is None:
        return 0.0
    kind, began = current(record)
    ran_s = max(0.0, now - max(record.since, began)) if kind else 0.0
    before = float(record.isolated_seconds) if record.isolated_seconds else 0.0
    return before + ran_s * worth.get(kind, 0.0)


def as_text(fractions: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Fractions as the status holds them, without those that round to 0."""
    return tuple(
        (kind, number(fractions[kind])) for kind in sorted(fractions) if fractions[kind] >= 5e-5
    )
