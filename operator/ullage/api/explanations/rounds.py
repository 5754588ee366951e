# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of taking turns mean. Standard library only; must never decide anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

ROUNDS: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITS_FOR_ROUND: say(
        "Others are owed more time on the devices that suit it; it gets its turn in a later round.",
        "Wait; the message says how much it is promised, how much it is owed and who is ahead. "
        "Raise its weight or that of its tenant, or allow more accelerators.",
    ),
    Reason.NO_FEASIBLE_ACCELERATOR: say(
        "No single accelerator type will do: none can run all members, and turns never mix types; "
        "or none keeps the bounds of spec.cost. The message says which.",
        "Lower spec.replicas or gpu.count, allow more accelerators, add nodes, loosen spec.cost, "
        "or use the objective FIFO.",
    ),
    Reason.ROUND_SCHEDULED: say(
        "It has its turn: devices are reserved for it on the type that the objective gives it.",
        "Nothing; it goes on in later rounds until someone else is owed more.",
    ),
    Reason.ESTIMATE_USED: say(
        "Its speed is not known on every type, so the division of time rests on an estimate.",
        "Nothing: what is measured replaces it. Declare stepsPerSecond in a WorkloadProfile to "
        "be divided rightly from the start.",
    ),
}
"""Reasons of objectives other than FIFO."""
