# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The text of a decision about tiers, with its figures.

It must never state more than the records contain, and names the settings that a user can change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from ullage.engines.tiers.flush import Flush
from ullage.engines.tiers.records import Loss, Situation, TierOption, TierWhy

_SAYS: Final = {
    TierWhy.STATE_LOST: (
        "{stage}, from the last checkpoint: {gone} lost, no complete copy in memory"
    ),
    TierWhy.ALL_OWNERS_LOST: (
        "{stage}: owners lost, the copy of step {cut} owns, {lost} steps redone"
    ),
    TierWhy.ROLLED_BACK: "{stage}: {gone} lost; all back to step {cut}, {lost} steps redone",
    TierWhy.FLUSHED: "{stage}: {noticed} under notice, what is pending is saved and handed over",
    TierWhy.STAGE_CHANGED: "go to {stage}",
    TierWhy.STARTED: "begin in {stage}",
    TierWhy.STATE_STORE_MOVED: "{stage}: the copy moves to other reliable replicas",
    TierWhy.MEMBERS_CHANGED: "{stage}: work is divided again",
    TierWhy.IN_BAND: "stay in {stage}: the threshold is passed by less than the band",
    TierWhy.TOO_SOON: "stay in {stage}: the last change was {since:.0f} s ago",
    TierWhy.KEPT: "stay in {stage}",
}
_LESS: Final = "a smaller backup.dirtyBytesPerStep or pools with a longer notice"


def text(
    why: TierWhy,
    seen: Situation,
    chosen: TierOption,
    other: TierOption | None,
    *,
    q: float,
    loss: Loss,
    divided: bool = True,
) -> str:
    """One sentence: decision, reason, alternative, and if a notice would be enough.

    Args:
        why: The reason.
        seen: Inputs of the decision.
        chosen: The stage.
        other: The next best.
        q: Transient machines for each reliable one.
        loss: Loss of owners.
        divided: As for :func:`shortfall`.
    """
    sentence = _SAYS[why].format(
        stage=f"Stage{chosen.stage:d}",
        gone=_names(loss.gone),
        noticed=_names(loss.noticed),
        cut=seen.committed,
        lost=loss.lost_steps,
        since=seen.since_s,
    )
    shown = f"{q:.3g}:1" if math.isfinite(q) else "no reliable replica"
    sentence += (
        f" (transient to reliable {shown}; {chosen.owners} owners, {chosen.workers} workers)"
    )
    if other is not None:
        sentence += (
            f"; next Stage{other.stage:d} with {other.owners} owners, {other.workers} workers"
        )
    if not chosen.flush.feasible:
        sentence += f"; {shortfall(chosen.flush, owners=chosen.owners, divided=divided)}"
    return sentence


def shortfall(flush: Flush, *, owners: int, divided: bool = True) -> str:
    """Cause of a notice that is too short, and the remedy; for admission and for the condition.

    Args:
        flush: A verdict that is not feasible.
        owners: Members that own shards now.
        divided: Holders divide the copy; `False` = one process has all of it, so that neither more
            holders nor more owners help.
    """
    if math.isinf(flush.flush_s):
        return "no reliable replica holds a copy: raise elasticity.reliableReplicas"
    if flush.allowed_s <= 0:
        return "the pools give no notice: a loss rolls back to the copy"
    helps = []
    if divided and flush.owners_needed is not None:
        helps.append(f"{flush.owners_needed} owners instead of {owners}")
    if flush.lag_needed is not None:
        helps.append(f"backup.maxLagSteps {flush.lag_needed}")
    if divided and flush.state_stores_needed is not None:
        helps.append(f"elasticity.reliableReplicas {flush.state_stores_needed}")
    more = "more owners and more reliableReplicas, or less state" if divided else _LESS
    needs = " or ".join(helps) or more
    return (
        f"a flush takes {flush.flush_s:.1f} s, half of the notice is {flush.allowed_s:.1f} s: "
        f"needs {needs}"
    )


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
