# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a workload and of the policy about sharing: load, rules, risk budget.

Values only, with the same defaults as the API's models; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.words import OnNotice as OnNotice
from ullage.engines.admission.predictors import DEFAULT, PREDICTORS


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """``spec.load``: requests of all replicas together, and how irregularly they come."""

    requests_per_s: float
    cv2: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """``spec.sharing``: what sharing may do to the workload and its neighbours."""

    allow: bool = True
    """False: no one else may be on its device, though it asks for a share only."""
    resizable: bool = False
    """Another share may be given by a restart at a checkpoint."""
    freeze_neighbours: bool = True
    """False (``onViolation: Alert``): a violation is reported, and no work is stopped for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAim:
    """``spec.cost``: what capacity is chosen for; ``None`` = not asked."""

    objective: str = ""
    """``CostPerWork``, ``Deadline`` or ``Makespan``; empty = the quantity that no cap names."""
    max_cost: float | None = None
    max_time_s: float | None = None
    deadline_s: float | None = None
    """Seconds after the creation of the job."""
    estimated_work_s: float | None = None
    """Seconds of undisturbed running that the whole training takes at speed 1."""
    budget_per_hour: float | None = None
    """Most dollars per hour for all of its instances."""
    allow_spot: bool = True
    on_demand_fallback: bool = True
    """On-demand and reserved capacity may be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTerms:
    """``spec.elasticity`` of a job in tiers: what its lead is started with."""

    reliable: int
    """Members, of the lowest ranks, on machines that are not taken away."""
    stage: int = 0
    """1 to 3 where the user fixed it; 0 = by the ratio of members."""
    state_bytes: int
    dirty_bytes: int = 0
    """Changed by a step; 0 = all of the state."""
    every_steps: int = 1
    max_lag_steps: int = 2
    shards: int = 64
    silence_s: int = 10
    """After so long without a word a member counts as lost."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """``SchedulingPolicy.spec``: ``spot``, ``decisionPeriod`` and ``minSavingsPercent``."""

    restart_cost_s: int = 900
    """Cost of one restart of a job, work since the last checkpoint included."""
    min_gain_percent: int = 3
    min_hold_s: float = 600.0
    hazard_half_life_s: float = 172_800.0
    """Time after which observations of a pool count half."""
    prior_hours: int = 10
    """Pool-hours that the prior of a pool's hazard counts as."""
    decision_period_s: float = 86_400.0
    min_savings_percent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSettings:
    """``SchedulingPolicy.spec.risk``."""

    predictor: str = DEFAULT
    """A word of ``PREDICTORS``."""
    eps_percent: int = 5
    confidence_percent: int = 80
    min_combined_percent: int = 100
    probation_seconds_per_class: int = 60
    conformal: bool = True
    """False (``tightSLO: Refuse``): what no certified threshold covers is refused."""

    def __post_init__(self) -> None:
        if self.predictor not in PREDICTORS:
            raise ValueError(f"predictor {self.predictor!r} is none of {', '.join(PREDICTORS)}")


EVERY_NAMESPACE: Final = "*"
"""Stands for every namespace in a list of namespaces of the SchedulingPolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """``SchedulingPolicy.spec.learning``: which namespaces learn from which.

    Attributes:
        shared: Namespaces that share what was measured in them.
        trusted: Namespaces in which declared rows count like measured ones.
    """

    shared: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()

    def scope(self, namespace: str) -> str:
        """The namespace itself, or ``*`` for all that share."""
        return EVERY_NAMESPACE if _lists(self.shared, namespace) else namespace

    def trusts(self, namespace: str) -> bool:
        """Whether what is declared there counts like what was measured."""
        return _lists(self.trusted, namespace)


def _lists(namespaces: frozenset[str], namespace: str) -> bool:
    return namespace in namespaces or EVERY_NAMESPACE in namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One of ``SchedulingPolicy.spec.tenants``."""

    name: str
    weight: int = 1
    fifo: bool = False
    """True (``inner: FIFO``): its oldest job first; else its jobs share by their weights."""
