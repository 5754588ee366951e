# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which rule judges in this cycle, and what it rests on: the policy's choice, models, arrivals."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.predictors import PREDICTORS
from ullage.scheduling.prediction.risk import JudgementCache, RiskRule, Usual, settings_of
from ullage.scheduling.prediction.verdicts import AdmissionRule, SumRule


def rule_of(snapshot: Snapshot, usual: Mapping[str, Usual], cache: JudgementCache) -> AdmissionRule:
    """The rule that the policy chooses by its predictor.

    Args:
        snapshot: the policy, and the models of accelerators.
        usual: what asks for each accelerator, by its name.
        cache: judgements of earlier cycles.
    """
    policy = snapshot.policy
    predictor = PREDICTORS[policy.risk.predictor]
    if not issubclass(predictor, LearnedModel):
        return SumRule(predictor())
    return RiskRule(
        models=snapshot.models, settings=settings_of(policy.risk), usual=usual, cache=cache
    )
