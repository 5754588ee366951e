# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of cost in ``status.spend`` as JSON, both ways.

The books live only there: what is read must equal what was written, or a new leader would pay twice
or forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ullage.api.codec import derived
from ullage.api.contract import section
from ullage.api.readers import count_of, filled
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.account import Account
from ullage.ports import JsonObject

_LOST: Final[Mapping[str, str]] = {
    "steps": "lost_steps",
    "seconds": "lost_seconds",
    "assumedSteps": "assumed_steps",
    "assumedSeconds": "assumed_seconds",
}
"""Fields of ``lostWork`` -> attributes of the account."""
_read, _write = derived(Account, _LOST.values())


def account_to_wire(account: Account | None) -> dict[str, object]:
    """The figures as they stand in ``status.spend``; what says nothing is left out."""
    if account is None:
        return {}
    lost = filled({name: getattr(account, attribute) for name, attribute in _LOST.items()})
    return _write(account) | filled({"lostWork": lost})


def account_from_wire(raw: JsonObject) -> Account | None:
    """The books that stand in ``status.spend``; ``None`` = there are none.

    Raises:
        WireError: a field is missing or malformed.
    """
    if raw.get("asOf") is None:
        return None
    account, stated = _read(raw), section(raw, "lostWork")
    if not stated:
        return account
    with within("lostWork"):
        return replace(
            account,
            lost_steps=count_of(stated, "steps"),
            lost_seconds=count_of(stated, "seconds"),
            assumed_steps=count_of(stated, "assumedSteps"),
            assumed_seconds=count_of(stated, "assumedSeconds"),
        )
