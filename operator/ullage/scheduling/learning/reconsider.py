# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Test if a running job would be much better off on the currently recommended type.

Only the rest of the work counts, including the move: a job near its end stays. Bounds count against
the move, so an uncertain estimate never causes one. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import ReconsiderTerms
from ullage.cluster.records.status import Recommended
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.devicechoice.offers import ChoiceAim
from ullage.scheduling.learning.recommend import goal_of
from ullage.scheduling.model.gang_speed import left_s, restart_s

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterChoice:
    """A type that is worth a move, and the saving.

    Attributes:
        accelerator: The type.
        saved: Fraction of the remaining time or cost, 0 to 1; the move is included.
        aim: Saved quantity.
    """

    accelerator: str
    saved: float
    aim: ChoiceAim

    @property
    def text(self) -> str:
        """The text of the saving."""
        thing = "cost" if self.aim is ChoiceAim.COST else "time"
        share = f"{self.saved:.0%} of the {thing} that is left"
        return f"{self.accelerator} would save {share}, the restart counted"


@dataclass(frozen=True, slots=True)
class _Figures:
    """A row as numbers: bounds of the minimised figure, and the cost of a second."""

    low: float
    high: float
    rate: float


def better_choice(
    job: WorkloadRecord,
    held: Sequence[str],
    devices: int,
    terms: ReconsiderTerms,
    *,
    now: float,
    unsaved_s: float = 0.0,
) -> BetterChoice | None:
    """The recommended type, if a move there saves enough of the rest.

    Args:
        job: The job with the recommendation in its status.
        held: Types that it runs on.
        devices: Number of its devices.
        terms: Minimum saving of a move.
        now: The current time, seconds since the epoch.
        unsaved_s: Work since its last checkpoint, seconds; it is repeated.
    """
    aim = goal_of(job).aim()
    rows = job.status.recommendation
    if aim is None or not rows or rows[0].reason is not Reason.RECOMMENDED:
        return None
    first = rows[0]
    if not held or first.accelerator in held or first.devices != devices:
        return None
    target = _figures(first, aim)
    current = [
        _figures(row, aim) for row in rows if row.accelerator in held and row.devices == devices
    ]
    if target is None or len(current) < len(held) or None in current:
        return None
    stays = max(
        (figures for figures in current if figures is not None), key=lambda figures: figures.low
    )
    rest_s = left_s(job, now)
    if not rest_s > 0 or not stays.low > 0 or not stays.rate > 0:
        return None
    move_s = restart_s(job) + unsaved_s
    after = target.high / stays.low + move_s / rest_s * target.rate / stays.rate
    saved = 1 - after
    if saved * _PERCENT < terms.min_saving_percent:
        return None
    return BetterChoice(accelerator=first.accelerator, saved=saved, aim=aim)


def _figures(row: Recommended, aim: ChoiceAim) -> _Figures | None:
    """Figures of a row for the aim; ``None`` where one of them is unknown."""
    if not row.total_s or row.low_s is None or row.high_s is None:
        return None
    if aim is ChoiceAim.TIME:
        return _Figures(low=float(row.low_s), high=float(row.high_s), rate=1.0)
    if not row.cost:
        return None
    rate = float(row.cost) / row.total_s
    return _Figures(low=rate * row.low_s, high=rate * row.high_s, rate=rate)
