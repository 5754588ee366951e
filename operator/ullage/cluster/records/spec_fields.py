# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds of a workload's members and replicas, from its spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.trainingjob import TierTerms
from ullage.api.words import OnNotice as OnNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """``spec.scaling`` of a service that the operator scales: policy ``SLO``."""

    min_replicas: int
    max_replicas: int
    idle_s: int = 300
    """Time without a request after which the last replica is removed, if ``min_replicas`` is 0."""


RENDEZVOUS: Final = ("MASTER_ADDR", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
"""Variables that set the place of rendezvous; a template that sets one has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """``spec.elasticity``: bounds of the gang's members."""

    min_replicas: int
    max_replicas: int
    on_notice: OnNotice = OnNotice.CHECKPOINT
    in_place: bool = False
    """``membership: InPlace``: members may join and leave, the others are unaffected."""
    tiers: TierTerms | None = None
    """True for a job in tiers; such a job is ``in_place`` too."""
    meets_elsewhere: bool = False
    """True when the template sets the place of rendezvous, which is the first member otherwise."""

    def within(self, members: int) -> int:
        """A number of members, clamped to the bounds."""
        return min(max(members, self.min_replicas), self.max_replicas)
