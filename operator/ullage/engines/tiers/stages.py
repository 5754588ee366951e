# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Stage of a job: transient against reliable machines, with a band against flapping.

The three stages are AgileML's (Proteus, EuroSys 2017). Thresholds are defaults to sweep, not the
paper's numbers. It must never hold a job in a stage whose owners are all gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum


class TierStage(IntEnum):
    """Stage: the owners of the state and the members that compute."""

    RELIABLE = 1
    """Reliable members own; all members compute; no copy is needed."""
    BACKED = 2
    """Transient members own, reliable ones hold the copy; all members compute."""
    TRANSIENT = 3
    """As 2, and reliable members compute nothing."""


class Hold(IntEnum):
    """Reason to keep a stage against the ratio."""

    FREE = 0
    BAND = 1
    REST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRule:
    """Thresholds between stages, and the minimum time between changes.

    Attributes:
        backed_above: Ratio above which transient members own.
        transient_above: Ratio above which reliable members stop computing.
        band: Fraction of a threshold by which the ratio must exceed it.
        rest_s: Seconds between two changes, unless an owner was lost.
    """

    backed_above: float = 1.0
    transient_above: float = 15.0
    band: float = 0.2
    rest_s: float = 300.0

    def __post_init__(self) -> None:
        """Reject thresholds that no ratio can pass in order.

        Raises:
            ValueError: thresholds not rising, a band outside 0..1, or a negative minimum time.
        """
        if not 0 <= self.backed_above < self.transient_above:
            raise ValueError("thresholds of the stages must rise from 0 on")
        if not 0 <= self.band < 1 or not self.rest_s >= 0:
            raise ValueError("the band of the stages lies in 0..1, their rest is not negative")


def ratio(transient: int, reliable: int) -> float:
    """q: transient machines per reliable one; infinite without reliable ones.

    Args:
        transient: Transient machines.
        reliable: Reliable machines.
    """
    return transient / reliable if reliable else math.inf if transient else 0.0


def target(q: float, rule: StageRule) -> TierStage:
    """The stage of a ratio, regardless of the present one.

    Stages are AgileML's (Proteus, EuroSys 2017); the thresholds are defaults.

    Args:
        q: Transient machines per reliable one.
        rule: Thresholds.
    """
    if q <= rule.backed_above:
        return TierStage.RELIABLE
    return TierStage.BACKED if q <= rule.transient_above else TierStage.TRANSIENT


def settle(
    q: float, current: TierStage, *, since_s: float, owner_lost: bool, rule: StageRule
) -> tuple[TierStage, Hold]:
    """The next stage, and the reason if it differs from that of the ratio.

    A jump over two thresholds goes as far as they are exceeded by the band (derived).

    Args:
        q: Transient machines per reliable one.
        current: The present stage.
        since_s: Seconds since it began.
        owner_lost: An owner of shards was lost: no minimum time, maps change anyway.
        rule: Thresholds.
    """
    wanted = target(q, rule)
    if wanted == current:
        return current, Hold.FREE
    if since_s < rule.rest_s and not owner_lost:
        return current, Hold.REST
    reached = current
    while reached != wanted and _clear(q, reached, up=wanted > reached, rule=rule):
        reached = TierStage(reached + (1 if wanted > reached else -1))
    return reached, Hold.FREE if reached == wanted else Hold.BAND


def nearest_other(q: float, chosen: TierStage, rule: StageRule) -> TierStage:
    """The neighbouring stage whose threshold is nearest, by its logarithm; for the runner-up.

    Args:
        q: Transient machines per reliable one.
        chosen: The stage in force.
        rule: Thresholds.
    """
    if chosen is not TierStage.BACKED:
        return TierStage.BACKED
    low, high = rule.backed_above, rule.transient_above
    return TierStage.TRANSIENT if q * q > low * high else TierStage.RELIABLE


def _clear(q: float, stage: TierStage, *, up: bool, rule: StageRule) -> bool:
    """True if q lies beyond the next threshold by more than the band."""
    lower = stage if up else stage - 1
    edge = rule.backed_above if lower == TierStage.RELIABLE else rule.transient_above
    return q > edge * (1 + rule.band) if up else q < edge * (1 - rule.band)
