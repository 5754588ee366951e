# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One decision of the operator on a world, executed there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Plan, SetStatus
from ullage_simulate.world import World


def carried_out(
    world: World, settings: DecideSettings, cache: CycleCache
) -> tuple[Plan, Sequence[Action]]:
    """Decide on a world as it is now, and execute the decision.

    Args:
        world: Changed by the actions.
        settings: Of the decision.
        cache: Cache of the last decision.

    Returns:
        The plan, and the executed actions.
    """
    seen = world.snapshot()
    plan = decide(seen, world.now, settings, cache=cache)
    actions = diff(plan, seen)
    world.apply(actions)
    return plan, actions


def is_at_rest(actions: Iterable[Action]) -> bool:
    """True if actions leave nothing to decide at this time."""
    return all(isinstance(action, SetStatus) and action.passing for action in actions)
