# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The SchedulingPolicy in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ullage.api.dataio import IoFairness
from ullage.api.lanes import IterationPolicy
from ullage.api.profiling import Profiling
from ullage.api.schedulingpolicy import (
    FaultTerms,
    Knowledge,
    PolicyRuntime,
    ReconsiderTerms,
    RiskSettings,
    Tenant,
)
from ullage.api.spot import SpotTerms
from ullage.cluster.records.status import Condition, QuotaStatus, SolveRecord
from ullage.engines.allocation.policies import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A SchedulingPolicy; the one named ``default`` is in force, or these defaults without it."""

    name: str = "default"
    uid: str = ""
    generation: int = 0
    objective: str = "FIFO"
    """A word of ``POLICIES``."""
    max_percent_sum: int = 100
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    io_fairness: IoFairness = IoFairness.OBSERVE
    """Policy for the next step in a lane."""
    round_seconds: int = 360
    gang_skip_limit: int = 1
    min_service_percent: int = 10
    """Floor under the objectives that weigh cost, percent of a proportional part."""
    risk: RiskSettings = field(default_factory=RiskSettings)
    faults: FaultTerms = field(default_factory=FaultTerms)
    spot: SpotTerms = field(default_factory=SpotTerms)
    reconsider: ReconsiderTerms = field(default_factory=ReconsiderTerms)
    tenants: tuple[Tenant, ...] = ()
    """Parties by name; empty = jobs share the cluster directly."""
    trust_domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Namespaces that may share devices with one another, by name of the trust domain."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    """Namespaces that learn from one another."""
    runtime: PolicyRuntime = field(default_factory=PolicyRuntime)
    """Namespaces whose containers get the step hook."""
    profiling: Profiling = field(default_factory=Profiling)
    """Traces of a sample of the running jobs."""
    last_solve: SolveRecord | None = None
    """The division in force, from the status."""
    quota_status: QuotaStatus | None = None
    """Use of quota by tenants, from the status."""
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if self.objective not in POLICIES:
            raise ValueError(f"objective {self.objective!r} is none of {', '.join(POLICIES)}")

    def rules(self) -> PolicyRecord:
        """The policy without its status, which changes frequently."""
        return replace(self, last_solve=None, quota_status=None, conditions=())
