# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job's part of the cluster's time, and the division it comes from, as JSON both ways.

The counters of fairness live only here: what is read must equal what was written, or a restart of
the operator would forget what it owes.
"""

from __future__ import annotations

from ullage.api.contract import flag, section, text
from ullage.api.readers import count_of, decimal_text
from ullage.cluster.codecs.objects import optional_text, within
from ullage.cluster.records.status import AllocationRecord, DroppedDeadline, Received, SolveRecord
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject


def allocation_to_wire(allocation: AllocationRecord) -> dict[str, object]:
    """``status.allocation`` as the API stores it; what says nothing is left out."""
    return _filled(
        {
            "since": rfc3339(allocation.since),
            "fractions": dict(allocation.fractions),
            "effectiveThroughput": allocation.effective_throughput,
            "normalisedShare": allocation.normalised_share,
            "source": allocation.source,
            "deficitSeconds": dict(allocation.deficit_seconds),
            "receivedSeconds": {
                kind: {"seconds": one.seconds}
                | ({"since": rfc3339(one.since)} if one.since else {})
                for kind, one in allocation.received
            },
            "isolatedSeconds": allocation.isolated_seconds,
            "skippedSince": rfc3339(allocation.skipped_since) if allocation.skipped_since else "",
            "restartSeconds": allocation.restart_seconds,
            "droppedDeadline": _dropped_to_wire(allocation.dropped) if allocation.dropped else {},
        }
    )


def allocation_from_wire(raw: JsonObject) -> AllocationRecord:
    """``status.allocation`` as it was read back.

    Raises:
        WireError: a field is missing or malformed.
    """
    received = section(raw, "receivedSeconds")
    return AllocationRecord(
        since=seconds(raw.get("since"), "since"),
        fractions=_decimals(raw, "fractions"),
        effective_throughput=decimal_text(raw, "effectiveThroughput"),
        normalised_share=decimal_text(raw, "normalisedShare"),
        source=optional_text(raw, "source"),
        deficit_seconds=_decimals(raw, "deficitSeconds"),
        received=tuple((kind, _received(section(received, kind))) for kind in sorted(received)),
        isolated_seconds=decimal_text(raw, "isolatedSeconds"),
        skipped_since=seconds(raw.get("skippedSince"), "skippedSince"),
        restart_seconds=decimal_text(raw, "restartSeconds"),
        dropped=_dropped(section(raw, "droppedDeadline")) if raw.get("droppedDeadline") else None,
    )


def solve_to_wire(solve: SolveRecord) -> dict[str, object]:
    """``SchedulingPolicy.status.lastSolve`` as the API stores it."""
    return _filled(
        {
            "time": rfc3339(solve.time),
            "result": solve.result,
            "jobs": solve.jobs,
            "objectiveValue": solve.objective_value,
            "inputsHash": solve.inputs_hash,
            "fractionsHash": solve.fractions_hash,
            "prices": dict(solve.prices),
            "droppedDeadlines": solve.dropped,
        }
    )


def solve_from_wire(raw: JsonObject) -> SolveRecord:
    """``SchedulingPolicy.status.lastSolve`` as it was read back.

    Raises:
        WireError: a field is missing or malformed.
    """
    return SolveRecord(
        time=seconds(raw.get("time"), "time"),
        result=text(raw, "result"),
        jobs=count_of(raw, "jobs"),
        objective_value=decimal_text(raw, "objectiveValue"),
        inputs_hash=text(raw, "inputsHash"),
        fractions_hash=text(raw, "fractionsHash"),
        prices=_decimals(raw, "prices"),
        dropped=count_of(raw, "droppedDeadlines"),
    )


def _dropped_to_wire(dropped: DroppedDeadline) -> dict[str, object]:
    return _filled(
        {
            "cause": dropped.cause,
            "neededStepsPerSecond": dropped.needed,
            "bestStepsPerSecond": dropped.best,
        }
    ) | ({"approximate": True} if dropped.approximate else {})


def _dropped(raw: JsonObject) -> DroppedDeadline:
    return DroppedDeadline(
        cause=text(raw, "cause"),
        needed=decimal_text(raw, "neededStepsPerSecond"),
        best=decimal_text(raw, "bestStepsPerSecond"),
        approximate=flag(raw, "approximate"),
    )


def _filled(body: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if value not in ("", 0, None, {})}


def _received(raw: JsonObject) -> Received:
    return Received(seconds=count_of(raw, "seconds"), since=seconds(raw.get("since"), "since"))


def _decimals(raw: JsonObject, field: str) -> tuple[tuple[str, str], ...]:
    """A map of decimal strings, in order of its keys."""
    with within(field):
        stated = section(raw, field)
        return tuple((kind, decimal_text(stated, kind)) for kind in sorted(stated))
