# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Words of specs and statuses that schema, readers and engines share.

Standard library only. The order of the words is the one in which the reference lists them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ExplainedWord(StrEnum):
    """A word with what the reference says of it."""

    means: str

    def __new__(cls, word: str, means: str = "") -> Self:
        """A member is written as the word and what it means."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.means = means
        return member

    @classmethod
    def explained(cls) -> str:
        """Every word with its meaning, for the description of a field."""
        return " ".join(f"`{word.value}`: {word.means}." for word in cls)


class Inject(StrEnum):
    """Choice of the step hook of ``ullage_run`` in the device container."""

    AUTO = "Auto"
    NEVER = "Never"


class EfficiencyRule(ExplainedWord):
    """Ways in which device time is wasted, as the efficiency report finds them."""

    IDLE = "Idle", "the devices did nothing for half an hour"
    OVERSIZED_SHARE = (
        "OversizedShare",
        "on a much smaller share the work would hardly have taken longer",
    )
    HOST_BOUND = "HostBound", "steps run one after another, and the device waits between kernels"
    SMALL_BATCH = "SmallBatch", "steps run one after another and fill half of the share at most"
    BETWEEN_STEPS = "BetweenSteps", "no step is under way for a good part of the time"
    MEMORY_UNUSED = "MemoryUnused", "half of the device memory was never used"
    WAITS_FOR_DATA = "WaitsForData", "every rank waits for its next batch for a tenth of its steps"
    CPU_THROTTLED = "CpuThrottled", "a rank is stopped at its CPU limit a fifth of the time"
    SLOW_RANK = "SlowRank", "the others wait for one rank"
    EXPOSED_COMMUNICATION = (
        "ExposedCommunication",
        "a fifth of the step is communication without computation",
    )
    SHORT_KERNELS = "ShortKernels", "most kernels are so short that the device waits between them"
    SYNCHRONISES_OFTEN = "SynchronisesOften", "the program waits for the device again and again"
    ALLOCATES_IN_STEPS = "AllocatesInSteps", "each step allocates or frees memory of the device"
    PAGEABLE_COPIES = "PageableCopies", "copies from or to memory that is not pinned take time"


class Objective(ExplainedWord):
    """Objectives for dividing the cluster's time."""

    FIFO = "FIFO", "by priority, then by age, until done"
    MAX_MIN_FAIRNESS = (
        "MaxMinFairness",
        "the job that gets least of what its equal part would bring gets as much as can be",
    )
    FINISH_TIME_FAIRNESS = (
        "FinishTimeFairness",
        "no job ends later than alone on its equal part, as far as can be",
    )
    MAKESPAN = "Makespan", "the last job ends as early as can be"
    MAX_THROUGHPUT = "MaxThroughput", "the sum of speeds, each against the job's best"
    SJF = "SJF", "the shortest job first"
    MIN_COST = (
        "MinCost",
        "the most work for the money, each job's against its best speed, but every job gets at "
        "least minServicePercent",
    )
    MIN_COST_SLO = (
        "MinCostSLO",
        "as `MinCost`, and every spec.cost.deadline that can be kept is kept; the fewest are "
        "dropped and the status of each such job says so",
    )


class RiskPredictor(ExplainedWord):
    """Predictors of the slowdowns that admission goes by."""

    LEARNED = "Learned", "the model that observations certify"
    UTILISATION_SUM = "UtilisationSum", "shares and utilisations alone, without learning"


class BatchingPolicy(ExplainedWord):
    """Ways of a router to order and batch requests."""

    ORLOJ = "Orloj", "by the distribution of run times, for most answers in time"
    EDF = "EDF", "the earliest deadline first, by mean run times"
    FIFO = "FIFO", "in order of arrival, and none is refused for its deadline"


class Kernel(ExplainedWord):
    """Group of device kernels that a library picks for a convolution; each has its own speed."""

    POINTWISE = "Pointwise", "kernels of one element, which are a matrix product"
    THREE_BY_THREE = "ThreeByThree", "kernels of 3x3 elements in steps of 1"
    GROUPED = "Grouped", "channels in groups"
    DEPTHWISE = "Depthwise", "every channel a group of its own"


class Inner(StrEnum):
    """Ways of a tenant to divide its part among its jobs."""

    FAIRNESS = "Fairness"
    FIFO = "FIFO"


class ReclaimWithinCohort(StrEnum):
    """Whom a tenant may preempt in its cohort to use its own nominal quota."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class CostObjective(StrEnum):
    """Objectives for choosing capacity."""

    COST_PER_WORK = "CostPerWork"
    DEADLINE = "Deadline"
    MAKESPAN = "Makespan"


class CapacityType(StrEnum):
    """Ways to buy the instances of a pool."""

    SPOT = "Spot"
    ON_DEMAND = "OnDemand"
    RESERVED = "Reserved"


class PriceSourceType(StrEnum):
    """Types of price sources."""

    STATIC = "Static"
    CONFIG_MAP = "ConfigMap"
    FILE = "File"
    HTTP = "HTTP"
    AWS = "AWS"
    GCP = "GCP"
    AZURE = "Azure"

    @property
    def attribute(self) -> str:
        """Name of the object with the details: ``config_map`` of ConfigMap."""
        return self.name.lower()


class SpendMode(StrEnum):
    """Kinds of capacity for a gang; always one kind for all of its members."""

    IDLE = "Idle"
    SPOT = "Spot"
    ON_DEMAND = "OnDemand"


class Source(StrEnum):
    """Sources of a value; a measured one beats an estimate, an estimate a declared one."""

    DECLARED = "Declared"
    MEASURED = "Measured"
    ESTIMATED = "Estimated"


class Membership(StrEnum):
    """Consequences of another number of members for those that run."""

    RESTART = "Restart"
    IN_PLACE = "InPlace"


class OnNotice(StrEnum):
    """Reactions of the job to a warning that a machine will be taken away."""

    CHECKPOINT = "Checkpoint"
    IGNORE = "Ignore"
    FLUSH = "Flush"


class Tiers(StrEnum):
    """Tiers of members that own state and that compute."""

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
    """Ways to change the share of a running container."""

    NEVER = "Never"
    RESTART = "Restart"


class ScalingPolicy(ExplainedWord):
    """Policies for the number of replicas."""

    EXTERNAL = "External", "people, HorizontalPodAutoscaler or KEDA, through the scale subresource"
    SLO = (
        "SLO",
        "the operator, so that spec.slo is kept at the load to come with as few as can be; leave "
        "spec.replicas out of what you apply again",
    )


class Switching(StrEnum):
    """Handling of the memory of an idle container in a lane."""

    COOPERATIVE = "Cooperative"
    CHECKPOINT = "Checkpoint"


class OnViolation(StrEnum):
    """Actions of the guard when the objective is broken."""

    FREEZE_NEIGHBOURS = "FreezeNeighbours"
    ALERT = "Alert"


class TracedKind(StrEnum):
    """Kinds of jobs whose steps a ProfileRequest traces."""

    TRAINING_JOB = "TrainingJob"
    JOB = "Job"
    JOB_SET = "JobSet"
    PYTORCH_JOB = "PyTorchJob"
    TRAIN_JOB = "TrainJob"


class TuningAlgorithm(ExplainedWord):
    """Algorithms that choose parameters of trials, and the trials that go on."""

    RANDOM = "Random", "random parameters, every trial runs to maxEpochs"
    GRID = "Grid", "the points of a grid in order, every trial runs to maxEpochs"
    SYNC_HALVING = (
        "SyncHalving",
        "random parameters; when all trials of a rung have ended, the best one in reductionFactor "
        "goes on to the next (successive halving)",
    )
    HYPERBAND = (
        "Hyperband",
        "brackets of SyncHalving, from many short trials to few long ones",
    )
    ASHA = (
        "ASHA",
        "random parameters; a trial goes on as soon as it is among the best one in "
        "reductionFactor of those that reached its rung",
    )
    TPE = (
        "TPE",
        "parameters from earlier results, by a tree-structured Parzen estimator; every trial runs "
        "to maxEpochs",
    )
    EXTERNAL = (
        "External",
        "an external client, such as an Optuna study, adds trials to spec.suggestions",
    )


class Goal(StrEnum):
    """Direction in which the metric is better."""

    MINIMIZE = "Minimize"
    MAXIMIZE = "Maximize"


class ParameterType(StrEnum):
    """Type of a parameter of a search."""

    FLOAT = "Float"
    INT = "Int"
    CATEGORICAL = "Categorical"
