# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the suggested points of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.process.metric_families import counter


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionFigures:
    """Sources of the parameters of trials."""

    points: Mapping[str, int] = counter(
        "ullage_tuning_suggestions",
        "Points of trials: new (from the sampler), random (it had none or failed), repeated"
        " (another trial's, drawn again).",
        "result",
    )
    failures: Mapping[str, int] = counter(
        "ullage_tuning_suggestion_failures",
        "Requests to the sampler's process that were late, crashed it or were refused; the trials"
        " got random points.",
        "cause",
    )
    seconds: float = counter(
        "ullage_tuning_suggestion_seconds", "Time that the sampler's process worked."
    )
