# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every reason that a condition, an Event or a refusal may carry.

The enum is the documentation: the reference table and ``kubectl ullage explain`` are made from it.
Standard library only. A reason is never removed inside an API version.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something is as it is; stable words for people, alerts and scripts."""

    # operator: waiting and refusing
    WAITING_FOR_DECISION = "WaitingForDecision"
    SUSPENDED = "Suspended"
    NO_CAPACITY = "NoCapacity"
    NO_NODE_MATCHES = "NoNodeMatches"
    NODE_AFFINITY_CONFLICT = "NodeAffinityConflict"
    UNKNOWN_ACCELERATOR = "UnknownAccelerator"
    GANG_TOO_LARGE = "GangTooLarge"
    MODE_UNSUPPORTED = "ModeUnsupported"
    PREDICTED_SLO_BREACH = "PredictedSLOBreach"
    MEMORY_WOULD_OVERFLOW = "MemoryWouldOverflow"
    CONTEXT_LIMIT = "ContextLimit"
    PERCENT_LIMIT = "PercentLimit"
    TRUST_DOMAIN = "TrustDomain"
    GANG_INCOMPLETE = "GangIncomplete"
    RESERVATION_REFUSED = "ReservationRefused"
    RESERVATION_EXPIRED = "ReservationExpired"
    NODE_UNHEALTHY = "NodeUnhealthy"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    CREATE_REFUSED = "CreateRefused"
    NAME_CONFLICT = "NameConflict"
    NO_PORT = "NoPort"
    NO_ROOM_TO_SURGE = "NoRoomToSurge"
    HELD_FOR_ANOTHER = "HeldForAnother"
    MULTI_GPU = "MultiGPU"
    ENFORCEMENT_MISSING = "EnforcementMissing"
    SLO_INFEASIBLE = "SLOInfeasible"
    LOAD_INFEASIBLE = "LoadInfeasible"
    NEED_PROFILE = "NeedProfile"
    NOT_WORTH_SHARING = "NotWorthSharing"
    # operator: life of a workload
    PLACED = "Placed"
    RESERVING = "Reserving"
    STARTING = "Starting"
    RUNNING = "Running"
    LOST_RACE = "LostRace"
    STUCK_UNSCHEDULED = "StuckUnscheduled"
    STUCK_NOT_STARTED = "StuckNotStarted"
    PREEMPTED = "Preempted"
    MEMBER_LOST = "MemberLost"
    RESTART_LIMIT = "RestartLimit"
    EXIT_CODE = "ExitCode"
    COMPLETED = "Completed"
    WITHIN_OBJECTIVE = "WithinObjective"
    ABOVE_OBJECTIVE = "AboveObjective"
    INVALID_OBJECT = "InvalidObject"
    # learning of classes of work
    MEASURED = "Measured"
    DRIFTED = "Drifted"
    IMAGE_CHANGED = "ImageChanged"
    DECLARED_DIFFERS = "DeclaredDiffers"
    # sharing, as Events tell it
    SHARING_ADMITTED = "SharingAdmitted"
    SHARING_REJECTED = "SharingRejected"
    PROBATION_STARTED = "ProbationStarted"
    PROBATION_COMMITTED = "ProbationCommitted"
    PROBATION_ROLLED_BACK = "ProbationRolledBack"
    SLICE_UNENFORCED = "SliceUnenforced"
    SOLVER_TIMEOUT = "SolverTimeout"
    SOLVER_CRASHED = "SolverCrashed"
    WRITE_REFUSED = "WriteRefused"
    # node agent
    SLOT_UNKNOWN = "SlotUnknown"
    POD_UNKNOWN = "PodUnknown"
    PLACEMENT_MISSING = "PlacementMissing"
    EPOCH_STALE = "EpochStale"
    SLOT_COUNT = "SlotCount"
    DRAINING = "Draining"
    CAPACITY_EXCEEDED = "CapacityExceeded"
    PREDICTION_REFUSED = "PredictionRefused"
    MPS_NOT_READY = "MPSNotReady"
    FOREIGN_PLUGIN = "ForeignPlugin"
    DEVICE_LOST = "DeviceLost"
    UNENFORCED = "Unenforced"
    ENFORCED = "Enforced"
    RETIRED = "Retired"
    CDI_UNAVAILABLE = "CDIUnavailable"
    DEVICE_CONFIG_MISSING = "DeviceConfigMissing"
    DRIVER_MISSING = "DriverMissing"
    REGISTERED = "Registered"
    KUBELET_AWAY = "KubeletAway"
    CPU_LIMIT_BELOW_SHARE = "CPULimitBelowShare"
    # guard
    SLO_AT_RISK = "SLOAtRisk"
    BEST_EFFORT_PAUSED = "BestEffortPaused"
    BEST_EFFORT_RESUMED = "BestEffortResumed"
    INTERFERING = "Interfering"
    SELF_VIOLATING = "SelfViolating"
    PAUSE_FAILED = "PauseFailed"


class ConditionType(StrEnum):
    """Types of the conditions in a status. The first group is good when True, the second bad."""

    ADMITTED = "Admitted"
    PLACED = "Placed"
    READY = "Ready"
    ENFORCED = "Enforced"
    SLO_MET = "SLOMet"
    FINISHED = "Finished"
    LATE_BINDING = "LateBinding"
    RETIRED = "Retired"
    FRESH = "Fresh"
    CONFLICTING = "Conflicting"
    DEGRADED = "Degraded"
    INVALID = "Invalid"
    SOLVER_DEGRADED = "SolverDegraded"
    DEVICE_LOST = "DeviceLost"
