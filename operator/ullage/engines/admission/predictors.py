# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every predictor, by its word in ``SchedulingPolicy.spec.risk.predictor``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ullage.api.words import RiskPredictor
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.prediction import Predictor
from ullage.engines.admission.utilisation import UtilisationSum

DEFAULT: Final = RiskPredictor.LEARNED.value
PREDICTORS: Final[Mapping[str, type[LearnedModel | Predictor]]] = MappingProxyType(
    {
        RiskPredictor.LEARNED: LearnedModel,
        RiskPredictor.UTILISATION_SUM: UtilisationSum,
    }
)
"""What predicts. A ``LearnedModel`` knows its own uncertainty: the risk of its predictions is
judged, one model for each accelerator. Any other is made without arguments, and its predictions are
taken at their word."""
