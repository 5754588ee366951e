# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rule judges in this cycle, and what it rests on: the policy's choice, models, arrivals."""

from __future__ import annotations

from collections import Counter

from ullage.decide.judging import Rule, SumRule
from ullage.decide.phases import Phase
from ullage.decide.risk import RiskRule, newcomer_of, settings_of
from ullage.decide.view import View
from ullage.decide.want import Want, Wants
from ullage.engines.admission.prediction import Predictor
from ullage.engines.admission.verdict import Arrival


def rule_of(view: View, wants: Wants, predictor: Predictor) -> Rule:
    """The rule that the policy chooses."""
    policy = view.snapshot.policy
    if not policy.risk.learned:
        return SumRule(predictor)
    return RiskRule(
        models=view.snapshot.models,
        settings=settings_of(policy.risk),
        arrivals=_arrivals(view, wants),
    )


def _arrivals(view: View, wants: Wants) -> dict[str, tuple[Arrival, ...]]:
    """The classes that ask for shares, as often as they are there now, by accelerator."""
    counts: Counter[int] = Counter()
    known: dict[int, Want] = {}
    for uid in sorted(view.snapshot.workloads):
        workload = view.snapshot.workloads[uid]
        if workload.gpu.share is None or workload.status.phase in (
            Phase.SUCCEEDED,
            Phase.FAILED,
        ):
            continue
        want = wants.of(workload, workload.shape)
        known[want.number] = want
        counts[want.number] += 1
    return {
        name: tuple(
            _arrival(one, model, counts[number])
            for number, one in known.items()
            if (one.accelerators is None or model in one.accelerators) and model not in one.barred
        )
        for name, model in wants.board.ground.models.items()
    }


def _arrival(want: Want, model: int, count: int) -> Arrival:
    tenant = want.tenant(f"class {want.number:06d}", model, want.min_percent)
    bounds = (want.min_percent, want.max_percent)
    return Arrival(newcomer=newcomer_of(tenant, bounds, str(want.domain)), weight=float(count))
