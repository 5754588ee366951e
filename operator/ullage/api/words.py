# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Words of specs and statuses that schema, readers and engines share.

Standard library only. The order of the words is the one in which the reference lists them.
"""

from __future__ import annotations

from enum import StrEnum


class Objective(StrEnum):
    """What the cluster's time is divided by."""

    FIFO = "FIFO"
    MAX_MIN_FAIRNESS = "MaxMinFairness"
    FINISH_TIME_FAIRNESS = "FinishTimeFairness"
    MAKESPAN = "Makespan"
    MAX_THROUGHPUT = "MaxThroughput"
    SJF = "SJF"
    MIN_COST = "MinCost"
    MIN_COST_SLO = "MinCostSLO"


class Inner(StrEnum):
    """How a tenant divides what it gets among its jobs."""

    FAIRNESS = "Fairness"
    FIFO = "FIFO"


class TightSLO(StrEnum):
    """What happens to objectives so tight that too few observations back a risk threshold."""

    CONFORMAL = "Conformal"
    REFUSE = "Refuse"


class CostObjective(StrEnum):
    """What the choice of capacity goes by."""

    COST_PER_WORK = "CostPerWork"
    DEADLINE = "Deadline"
    MAKESPAN = "Makespan"


class CapacityType(StrEnum):
    """How instances of a pool are bought."""

    SPOT = "Spot"
    ON_DEMAND = "OnDemand"
    RESERVED = "Reserved"


class SpendMode(StrEnum):
    """What kind of capacity a gang runs on; always one kind for all of its members."""

    IDLE = "Idle"
    SPOT = "Spot"
    ON_DEMAND = "OnDemand"


class Source(StrEnum):
    """Where a value comes from; a measured one beats an estimate, an estimate what was declared."""

    DECLARED = "Declared"
    MEASURED = "Measured"
    ESTIMATED = "Estimated"


class Membership(StrEnum):
    """What another number of members means for those that run."""

    RESTART = "Restart"
    IN_PLACE = "InPlace"


class OnNotice(StrEnum):
    """What a warning that a machine will be taken away does to the job."""

    CHECKPOINT = "Checkpoint"
    IGNORE = "Ignore"
    FLUSH = "Flush"


class Tiers(StrEnum):
    """Who owns state and who computes."""

    AUTO = "Auto"
    STAGE_1 = "Stage1"
    STAGE_2 = "Stage2"
    STAGE_3 = "Stage3"
    DISABLED = "Disabled"

    @property
    def stage(self) -> int:
        """The stage that is fixed; 0 = none."""
        return int(self[-1]) if self[-1].isdigit() else 0


class Resizable(StrEnum):
    """Whether the share of a running container may become another one."""

    NEVER = "Never"
    RESTART = "Restart"


class OnViolation(StrEnum):
    """What the guard does when the objective is broken."""

    FREEZE_NEIGHBOURS = "FreezeNeighbours"
    ALERT = "Alert"
