# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every predictor, by its word in ``SchedulingPolicy.spec.risk.predictor``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ullage.api.words import RiskPredictor
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.utilisation import Predictor, UtilisationSum

PREDICTORS: Final[Mapping[str, type[LearnedModel | Predictor]]] = MappingProxyType(
    {
        RiskPredictor.LEARNED: LearnedModel,
        RiskPredictor.UTILISATION_SUM: UtilisationSum,
    }
)
"""A ``LearnedModel`` predicts its own uncertainty, so the risk of its predictions is judged; there
is one per accelerator. Others are made without arguments, and their predictions count as certain.
"""
