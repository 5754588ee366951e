# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rule judges in this cycle, and what it rests on: the policy's choice, models, arrivals."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.predictors import PREDICTORS
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.prediction.risk import JudgementCache, RiskRule, Usual, settings_of
from ullage.scheduling.prediction.verdicts import AdmissionRule, SumRule

_OVER: Final = (Phase.SUCCEEDED, Phase.FAILED)


def rule_of(view: View, requests: ResourceRequests, cache: JudgementCache) -> AdmissionRule:
    """The rule that the policy chooses by its predictor."""
    policy = view.snapshot.policy
    predictor = PREDICTORS[policy.risk.predictor]
    if not issubclass(predictor, LearnedModel):
        return SumRule(predictor())
    return RiskRule(
        models=view.snapshot.models,
        settings=settings_of(policy.risk),
        usual=_usual(view, requests),
        cache=cache,
    )


def _usual(view: View, requests: ResourceRequests) -> dict[str, Usual]:
    """The classes that ask for devices or shares of them, by accelerator."""
    counts: Counter[int] = Counter()
    known: dict[int, ResourceRequest] = {}
    for _, workload in sorted(view.snapshot.workloads.items()):
        if workload.status.phase in _OVER:
            continue
        request = requests.of(workload, workload.shape)
        known[request.number] = request
        counts[request.number] += 1
    found: dict[str, Usual] = {}
    for name, model in requests.occupancy.inventory.models.items():
        asked: Counter[tuple[str, int]] = Counter()
        for number, one in known.items():
            allowed = one.accelerators is None or model in one.accelerators
            if allowed and model not in one.barred:
                # whose a whole device is makes no difference: classes of it have no domain
                domain = "" if one.exclusive else one.trust_domain
                asked[domain, one.min_percent] += counts[number]
        weights = {at: 1 << (count.bit_length() - 1) for at, count in asked.items()}
        found[name] = Usual(tuple(sorted(weights.items())))
    return found
