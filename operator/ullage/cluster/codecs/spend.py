# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``status.spend`` as JSON, both ways, with the books of what was spent.

The books live only there: what is read must equal what was written, or the operator would write for
ever, and a new leader would pay twice or forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ullage.api.codec import derived, nested
from ullage.api.contract import Reason, flag, section, text
from ullage.api.readers import count_of, filled
from ullage.api.wire_fields import Embedded
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
_read_account, _write_account = derived(Account, _LOST.values())


def _account_to_wire(account: Account | None) -> dict[str, object]:
    """The figures as they stand in ``status.spend``; what says nothing is left out."""
    if account is None:
        return {}
    lost = filled({name: getattr(account, attribute) for name, attribute in _LOST.items()})
    return _write_account(account) | filled({"lostWork": lost})


def _account_from_wire(raw: JsonObject) -> Account | None:
    """The books that stand in ``status.spend``; ``None`` = there are none.

    Raises:
        WireError: a field is missing or malformed.
    """
    if raw.get("asOf") is None:
        return None
    account, stated = _read_account(raw), section(raw, "lostWork")
    if not stated:
        return account
    with within("lostWork"):
        lost = {attribute: count_of(stated, name) for name, attribute in _LOST.items()}
        return replace(account, **lost)  # type: ignore[arg-type]  # all of them are counts


_REASONS: Final = frozenset(reason.value for reason in Reason)
_read, _write = derived(SpendDecision)


def _decision(raw: JsonObject) -> SpendDecision | None:
    """A decision; one with a reason of another version counts as none and is decided again.

    A commitment is never forgotten with it: its own word stays readable.
    """
    known = text(raw, "reason") in _REASONS
    return _read(raw) if known or flag(raw, "committed") else None


spend_from_wire, spend_to_wire = derived(
    SpendRecord,
    account=Embedded(_account_from_wire, _account_to_wire),
    decision=nested(_decision, _write, optional=True),
)
