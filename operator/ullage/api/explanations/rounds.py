# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of time slicing. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

ROUNDS: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITS_FOR_ROUND: say(
        "Other jobs are owed more time on its devices; this job gets its turn in a later round.",
        "Wait. The message says how much time the job is promised and owed, and which jobs are "
        "ahead. Raise its weight or that of its tenant, or allow more accelerators.",
    ),
    Reason.NO_FEASIBLE_ACCELERATOR: say(
        "No single accelerator type is feasible: none can run all members (a turn never mixes "
        "types), or none keeps the bounds of spec.cost. The message says which.",
        "Lower spec.replicas or gpu.count, allow more accelerators, add nodes, loosen spec.cost, "
        "or use the objective FIFO.",
    ),
    Reason.ROUND_SCHEDULED: say(
        "The job has its turn, with devices of the type that the objective assigns to it.",
        "Nothing; it continues in later rounds until another job is owed more.",
    ),
    Reason.ESTIMATE_USED: say(
        "The job's speed is not known on every type, so time slicing uses an estimate.",
        "Nothing: a measurement replaces it. Declare stepsPerSecond in a WorkloadProfile to get "
        "the right time from the start.",
    ),
}
"""Reasons of objectives other than FIFO."""
