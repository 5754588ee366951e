# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``status.spend`` as JSON, both ways.

What is read must equal what was written, or the operator would write for ever.
"""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived, nested
from ullage.api.contract import Reason, flag, text
from ullage.api.wire_fields import Embedded
from ullage.cluster.codecs.account import account_from_wire, account_to_wire
from ullage.cluster.records.spend import SpendDecision, SpendRecord
from ullage.ports import JsonObject

_REASONS: Final = frozenset(one.value for one in Reason)
_read, _write = derived(SpendDecision)


def _decision(raw: JsonObject) -> SpendDecision | None:
    """A decision; one with a reason of another version counts as none and is decided again.

    A commitment is never forgotten with it: its own word stays readable.
    """
    known = text(raw, "reason") in _REASONS
    return _read(raw) if known or flag(raw, "committed") else None


spend_from_wire, spend_to_wire = derived(
    SpendRecord,
    account=Embedded(account_from_wire, account_to_wire),
    decision=nested(_decision, _write, optional=True),
)
