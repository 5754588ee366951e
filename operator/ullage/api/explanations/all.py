# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explanations of every reason and condition, with remedies.

``docs/reference/reasons.md`` and ``kubectl ullage explain`` print these texts, so every word in a
status has an explanation. Standard library only; no code decides by these texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.conditions import CONDITIONS as CONDITIONS
from ullage.api.explanations.cost import COST, POOLS, SPENDING
from ullage.api.explanations.explained import ConditionExplanation as ConditionExplanation
from ullage.api.explanations.explained import Explanation as Explanation
from ullage.api.explanations.life import LIFE, ROUNDS, TIERS
from ullage.api.explanations.node import NODE
from ullage.api.explanations.scaling import SCALING
from ullage.api.explanations.sharing import SHARING
from ullage.api.explanations.tuning import TUNING
from ullage.api.explanations.waiting import WAITING
from ullage.api.reasons import Reason

REASON_GROUPS: Final[Mapping[str, Mapping[Reason, Explanation]]] = {
    "Waiting and refusals": WAITING,
    "Lifecycle of a workload": LIFE,
    "Jobs in tiers": TIERS,
    "Taking turns": ROUNDS,
    "Choice of an accelerator": COST,
    "Pools of capacity": POOLS,
    "Spot, on-demand and deadlines": SPENDING,
    "Scaling of services": SCALING,
    "Trials of a search": TUNING,
    "Sharing and learning": SHARING,
    "Node": NODE,
}
"""Every reason by chapter, in the order of the reference page."""

REASONS: Final[Mapping[Reason, Explanation]] = {
    reason: explanation for group in REASON_GROUPS.values() for reason, explanation in group.items()
}
"""The same table without chapters."""
