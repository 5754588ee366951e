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
    """Without a request for so long, the last replica goes where ``min_replicas`` is 0."""


RENDEZVOUS: Final = ("MASTER_ADDR", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
"""Variables that say where members in place meet; a template that sets one has its own place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """``spec.elasticity``: between how many members the gang may have."""

    min_replicas: int
    max_replicas: int
    on_notice: OnNotice = OnNotice.CHECKPOINT
    in_place: bool = False
    """``membership: InPlace``: the program lets members come and go, the others are left alone."""
    tiers: TierTerms | None = None
    """Of a job in tiers; such a job is ``in_place`` too."""
    meets_elsewhere: bool = False
    """The template names the place where members in place meet, which is their first one else."""

    def within(self, members: int) -> int:
        """A number of members, held to the bounds."""
        return min(max(members, self.min_replicas), self.max_replicas)
