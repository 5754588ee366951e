# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a CapacityPool as JSON, both ways.

What was written reads back equal, else the operator would write for ever, and a new process would
go on from other figures than the one before it. Numbers keep nine significant digits, the hazard,
which follows from others, four, and times whole seconds; ``pool_as_stored`` says what is left.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import floor
from typing import Final

from ullage.api.contract import WireError, flag, section, whole
from ullage.api.readers import count_of
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.objects import condition_to_wire, read_conditions, within
from ullage.cluster.records.pool import LaunchRecord, LossRecord, PoolStatus
from ullage.cluster.values.numbers import decimal
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject

LARGEST: Final = 999_999_999.0
SMALLEST: Final = 1e-12
"""Between these lies what the schema can hold; nothing real is smaller, and 0 is 0."""
HAZARD_DIGITS: Final = 4
CONDITIONS: Final = (
    ConditionType.PRICE_FRESH,
    ConditionType.HAZARD_KNOWN,
)
"""Conditions that the operator owns on a pool, in their order."""
_RANK: Final = {type_.value: rank for rank, type_ in enumerate(CONDITIONS)}


def stored(value: float, digits: int = 9) -> float:
    """A figure as the API stores it: significant digits, twelve places, never 0 of more."""
    if value <= 0:
        return 0.0
    return round(float(f"{min(max(value, SMALLEST), LARGEST):.{digits}g}"), 12)


def figure(value: float) -> str:
    """The same as a decimal text without an exponent."""
    text = f"{Decimal(repr(stored(value))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment(raw: JsonObject, field: str) -> float | None:
    return seconds(raw.get(field), field) or None


def _launches_from_wire(raw: JsonObject) -> LaunchRecord:
    return LaunchRecord(
        succeeded=decimal(raw, "succeeded") or 0.0,
        failed=decimal(raw, "failed") or 0.0,
        failed_at_s=_moment(raw, "failedAt"),
    )


def _loss_from_wire(raw: JsonObject) -> LossRecord:
    at_s = _moment(raw, "at")
    if at_s is None:
        raise WireError("at: missing")
    return LossRecord(
        at_s=at_s,
        nodes=whole(raw, "nodes"),
        lost=whole(raw, "lost"),
        open=flag(raw, "open") if "open" in raw else True,
    )


def pool_status_from_wire(raw: JsonObject) -> PoolStatus:
    """Read a status; an empty one says that no one looked yet.

    Raises:
        WireError: a field has the wrong type.
    """
    with within("launches"):
        launches = _launches_from_wire(section(raw, "launches"))
    with within("lastLoss"):
        last_loss = _loss_from_wire(section(raw, "lastLoss")) if raw.get("lastLoss") else None
    ours = (one for one in read_conditions(raw) if one.type in _RANK)
    return PoolStatus(
        price=decimal(raw, "price"),
        priced_at_s=_moment(raw, "pricedAt"),
        hazard_per_hour=decimal(raw, "hazardPerHour"),
        exposure_hours=decimal(raw, "exposureHours") or 0.0,
        loss_events=decimal(raw, "lossEvents") or 0.0,
        mean_lost_fraction=decimal(raw, "meanLostFraction"),
        launch_failures=count_of(raw, "launchFailures"),
        available=flag(raw, "available") if "available" in raw else True,
        nodes=count_of(raw, "nodes"),
        launches=launches,
        last_loss=last_loss,
        warned_at_s=_moment(raw, "warnedAt"),
        observed_at_s=seconds(raw.get("observedAt"), "observedAt"),
        observed_generation=count_of(raw, "observedGeneration"),
        conditions=tuple(sorted(ours, key=lambda one: _RANK[one.type])),
    )


def pool_status_to_wire(status: PoolStatus) -> dict[str, object]:
    """The status as the API stores it; what is not known is left out."""
    status = pool_as_stored(status)
    texts = {
        "price": status.price,
        "hazardPerHour": status.hazard_per_hour,
        "exposureHours": status.exposure_hours,
        "lossEvents": status.loss_events,
        "meanLostFraction": status.mean_lost_fraction,
    }
    times = {
        "pricedAt": status.priced_at_s,
        "warnedAt": status.warned_at_s,
        "observedAt": status.observed_at_s or None,
    }
    body: dict[str, object] = {
        "launchFailures": status.launch_failures,
        "available": status.available,
        "nodes": status.nodes,
    }
    body |= {name: figure(value) for name, value in texts.items() if value is not None}
    body |= {name: rfc3339(value) for name, value in times.items() if value is not None}
    if status.observed_generation:
        body["observedGeneration"] = status.observed_generation
    if status.launches != LaunchRecord():
        body["launches"] = _launches_to_wire(status.launches)
    if status.last_loss is not None:
        body["lastLoss"] = _loss_to_wire(status.last_loss)
    if status.conditions:
        body["conditions"] = [condition_to_wire(one) for one in status.conditions]
    return body


def _launches_to_wire(launches: LaunchRecord) -> dict[str, object]:
    body: dict[str, object] = {
        "succeeded": figure(launches.succeeded),
        "failed": figure(launches.failed),
    }
    return body | (
        {} if launches.failed_at_s is None else {"failedAt": rfc3339(launches.failed_at_s)}
    )


def _loss_to_wire(loss: LossRecord) -> dict[str, object]:
    return {"at": rfc3339(loss.at_s), "nodes": loss.nodes, "lost": loss.lost, "open": loss.open}


def pool_as_stored(status: PoolStatus) -> PoolStatus:
    """What reading the written status gives."""

    def number(value: float | None, digits: int = 9) -> float | None:
        return None if value is None else stored(value, digits)

    def moment(value: float | None) -> float | None:
        return None if value is None else float(floor(value))

    launches, loss = status.launches, status.last_loss
    return replace(
        status,
        price=number(status.price),
        priced_at_s=moment(status.priced_at_s),
        hazard_per_hour=number(status.hazard_per_hour, HAZARD_DIGITS),
        exposure_hours=stored(status.exposure_hours),
        loss_events=stored(status.loss_events),
        mean_lost_fraction=number(status.mean_lost_fraction),
        launches=LaunchRecord(
            succeeded=stored(launches.succeeded),
            failed=stored(launches.failed),
            failed_at_s=moment(launches.failed_at_s),
        ),
        last_loss=None if loss is None else replace(loss, at_s=float(floor(loss.at_s))),
        warned_at_s=moment(status.warned_at_s),
        observed_at_s=float(floor(status.observed_at_s)),
        conditions=tuple(
            replace(one, since=float(floor(one.since)))
            for one in sorted(
                (one for one in status.conditions if one.type in _RANK),
                key=lambda one: _RANK[one.type],
            )
        ),
    )
