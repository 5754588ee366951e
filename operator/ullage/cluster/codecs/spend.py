# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``status.spend`` as JSON, both ways, with the books of what was spent.

The books live only there: what is read must equal what was written, or the operator would write for
ever, and a new leader would pay twice or forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from ullage.api.codec import Codec, derived, nested
from ullage.api.contract import Reason, flag, section, text
from ullage.api.readers import count_of, filled
from ullage.api.wire_fields import Embedded, Schema, Shape
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.account import Account
from ullage.cluster.records.spend import SpendDecision, SpendRecord
from ullage.ports import JsonObject

_LOST: Final[Mapping[str, str]] = {
    "steps": "lost_steps",
    "seconds": "lost_seconds",
    "assumedSteps": "assumed_steps",
    "assumedSeconds": "assumed_seconds",
}
"""Fields of ``lostWork`` -> attributes of the account."""
OF_JOBS: Final = (
    *("per_thousand_steps", "on_demand_seconds", "evictions"),
    *("first_step", "earlier_steps", "reached_steps"),
)
_SUMS: Final = derived(Account, (*_LOST.values(), *OF_JOBS))
_OF_JOB: Final = derived(Account, _LOST.values())
_LOST_WORK: Final = Schema(
    type="object",
    description="What losses took.",
    properties=derived(
        Account,
        [field.name for field in fields(Account) if field.name not in _LOST.values()],
        lost_steps="steps",
        lost_seconds="seconds",
    ).shape,
)


def _account_to_wire(account: Account | None) -> dict[str, object]:
    """The figures as they stand in ``status.spend``; what says nothing is left out."""
    if account is None:
        return {}
    lost = filled({name: getattr(account, attribute) for name, attribute in _LOST.items()})
    return _OF_JOB.write(account) | filled({"lostWork": lost})


def _account_from_wire(raw: JsonObject) -> Account | None:
    """The books that stand in ``status.spend``; ``None`` = there are none.

    Raises:
        WireError: a field is missing or malformed.
    """
    if raw.get("asOf") is None:
        return None
    account, stated = _OF_JOB.read(raw), section(raw, "lostWork")
    if not stated:
        return account
    with within("lostWork"):
        lost = {attribute: count_of(stated, name) for name, attribute in _LOST.items()}
        return replace(account, **lost)  # type: ignore[arg-type]  # all of them are counts


_REASONS: Final = frozenset(reason.value for reason in Reason)
_DECISION: Final = derived(SpendDecision)


def _decision(raw: JsonObject) -> SpendDecision | None:
    """A decision; one with a reason of another version counts as none and is decided again.

    A commitment is never forgotten with it: its own word stays readable.
    """
    known = text(raw, "reason") in _REASONS
    return _DECISION.read(raw) if known or flag(raw, "committed") else None


def _account(*properties: Shape | Mapping[str, Schema]) -> Embedded:
    return Embedded(_account_from_wire, _account_to_wire, Schema(properties=properties))


_SPLIT: Final = 1 + len(_SUMS.shape.fields)
SPEND: Final = derived(
    SpendRecord,
    account=_account(
        Shape(Account, _OF_JOB.shape.fields[:_SPLIT]),
        {"lostWork": _LOST_WORK},
        Shape(Account, _OF_JOB.shape.fields[_SPLIT:]),
    ),
    decision=nested(Codec[Any](_decision, _DECISION.write, _DECISION.shape), optional=True),
)
SERVICE_SPEND: Final = derived(
    SpendRecord,
    ("decision", "next_decision", "expected_savings"),
    account=_account(_SUMS.shape),
)
