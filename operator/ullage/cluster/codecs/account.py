# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of cost in ``status.spend`` as JSON, both ways.

The books live only there: what is read must equal what was written, or a new leader would pay twice
or forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.contract import WireError, section
from ullage.api.readers import MOST_COUNTED, count_of, decimal_text
from ullage.cluster.codecs.objects import optional_text
from ullage.cluster.records.account import Account
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject

MESSAGE_LIMIT: Final = 1024
INT32_MAX: Final = 2**31 - 1

_TEXTS: Final[Mapping[str, str]] = {
    "total": "total",
    "onDemandTotal": "on_demand_total",
    "perHour": "per_hour",
    "onDemandPerHour": "on_demand_per_hour",
    "perWorkUnit": "per_thousand_steps",
    "vsOnDemand": "vs_on_demand",
}
_COUNTS: Final[Mapping[str, str]] = {
    "firstStep": "first_step",
    "earlierSteps": "earlier_steps",
    "reachedStep": "reached_steps",
    "evictions": "evictions",
    "onDemandSeconds": "on_demand_seconds",
    "unpricedSeconds": "unpriced_seconds",
}
_LOST: Final[Mapping[str, str]] = {
    "steps": "lost_steps",
    "seconds": "lost_seconds",
    "assumedSteps": "assumed_steps",
    "assumedSeconds": "assumed_seconds",
}


def account_to_wire(account: Account) -> dict[str, object]:
    """The figures as they stand in ``status.spend``; what says nothing is left out."""
    body: dict[str, object] = {name: getattr(account, field) for name, field in _TEXTS.items()}
    body |= {name: _most(name, getattr(account, field)) for name, field in _COUNTS.items()}
    lost = {name: _most(name, getattr(account, field)) for name, field in _LOST.items()}
    body["lostWork"] = {name: value for name, value in lost.items() if value}
    body["message"] = account.message[:MESSAGE_LIMIT]
    body = {name: value for name, value in body.items() if value not in ("", 0, {})}
    return body | {"since": rfc3339(account.since), "asOf": rfc3339(account.as_of)}


def _most(name: str, count: int) -> int:
    """A count as the schema holds it."""
    return min(count, INT32_MAX if name == "evictions" else MOST_COUNTED)


def account_from_wire(raw: JsonObject) -> Account | None:
    """The books that stand in ``status.spend``; ``None`` = there are none.

    Raises:
        WireError: a field is missing or malformed.
    """
    if raw.get("asOf") is None:
        return None
    lost = section(raw, "lostWork")
    return Account(
        since=seconds(raw.get("since"), "since"),
        as_of=seconds(raw.get("asOf"), "asOf"),
        total=_decimal(raw, "total"),
        on_demand_total=_decimal(raw, "onDemandTotal"),
        per_hour=_decimal(raw, "perHour"),
        on_demand_per_hour=_decimal(raw, "onDemandPerHour"),
        per_thousand_steps=_decimal(raw, "perWorkUnit"),
        vs_on_demand=_decimal(raw, "vsOnDemand"),
        **{field: count_of(raw, name) for name, field in _COUNTS.items()},
        **{field: count_of(lost, name) for name, field in _LOST.items()},
        message=optional_text(raw, "message"),
    )


def _decimal(raw: JsonObject, field: str) -> str:
    """A decimal string of 0 or more, checked here once so that booking may rely on it."""
    stated = decimal_text(raw, field)
    if stated.startswith("-"):
        raise WireError(f"{field}: {stated!r} is below 0")
    return stated
