# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``status.spend`` as JSON, both ways.

What is read must equal what was written, or the operator would write for ever.
"""

from __future__ import annotations

from typing import Final

from ullage.api.contract import Reason, flag, objects, section, text
from ullage.api.readers import count_of, decimal_text
from ullage.cluster.codecs.account import account_from_wire, account_to_wire
from ullage.cluster.codecs.objects import optional_text, within
from ullage.cluster.records.spend import Offer, PoolShare, SpendDecision, SpendRecord
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.ports import JsonObject

MESSAGE_LIMIT: Final = 32_768


def spend_to_wire(spend: SpendRecord) -> dict[str, object]:
    """``status.spend`` as the API stores it; what says nothing is left out."""
    body = account_to_wire(spend.account) if spend.account is not None else {}
    if spend.decision is not None:
        body["decision"] = _decision_to_wire(spend.decision)
    if spend.next_decision:
        body["nextDecision"] = rfc3339(spend.next_decision)
    if spend.expected_savings:
        body["expectedSavings"] = spend.expected_savings
    return body


def spend_from_wire(raw: JsonObject) -> SpendRecord:
    """``status.spend`` as it was read back.

    Raises:
        WireError: a field is missing or malformed.
    """
    with within("decision"):
        decision = _decision(section(raw, "decision")) if raw.get("decision") else None
    return SpendRecord(
        account=account_from_wire(raw),
        decision=decision,
        next_decision=seconds(raw.get("nextDecision"), "nextDecision"),
        expected_savings=decimal_text(raw, "expectedSavings"),
    )


def _decision_to_wire(decision: SpendDecision) -> dict[str, object]:
    body: dict[str, object] = {
        "time": rfc3339(decision.time),
        "epoch": decision.epoch,
        "inputsHash": decision.inputs_hash,
        "mode": decision.mode,
        "reason": decision.reason.value,
        "message": decision.message[:MESSAGE_LIMIT],
        "chosen": _offer_to_wire(decision.chosen),
    }
    if decision.runner_up is not None:
        body["runnerUp"] = _offer_to_wire(decision.runner_up)
    if decision.committed:
        body["committed"] = True
    if decision.since:
        body["since"] = rfc3339(decision.since)
    return body


def _offer_to_wire(offer: Offer) -> dict[str, object]:
    pools = [{"pool": one.pool, "replicas": one.replicas} for one in offer.pools]
    body: dict[str, object] = {
        "pools": pools,
        "costPerWork": offer.cost_per_work,
        "perHour": offer.per_hour,
    }
    return {name: value for name, value in body.items() if value not in ("", [])}


def _decision(raw: JsonObject) -> SpendDecision | None:
    """A decision; one with a reason of another version counts as none and is decided again.

    A commitment is never forgotten with it: its own word stays readable.
    """
    word = text(raw, "reason")
    reason = Reason(word) if word in _REASONS else None
    committed = flag(raw, "committed")
    if reason is None and not committed:
        return None
    return SpendDecision(
        time=seconds(raw.get("time"), "time"),
        epoch=count_of(raw, "epoch", None),
        inputs_hash=optional_text(raw, "inputsHash"),
        mode=text(raw, "mode"),
        reason=reason or Reason.WAITING_FOR_DECISION,
        message=optional_text(raw, "message"),
        chosen=_offer(section(raw, "chosen")),
        runner_up=_offer(section(raw, "runnerUp")) if raw.get("runnerUp") is not None else None,
        committed=committed,
        since=seconds(raw.get("since"), "since"),
    )


def _offer(raw: JsonObject) -> Offer:
    pools = [
        PoolShare(pool=text(one, "pool"), replicas=count_of(one, "replicas", None))
        for one in objects(raw, "pools")
    ]
    return Offer(
        pools=tuple(sorted(pools, key=lambda one: one.pool)),
        cost_per_work=decimal_text(raw, "costPerWork"),
        per_hour=decimal_text(raw, "perHour"),
    )


_REASONS: Final = frozenset(one.value for one in Reason)
