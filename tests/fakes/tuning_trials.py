# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials of tuning tests: the speed curves and the pool that several tests share."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.engines.tuning.records import PlannedTrial, PlanRules, TrialDevice
from ullage.engines.tuning.simulator import TrialFacts
from ullage.engines.tuning.speed_curves import SpeedCurve, Widths

WIDTHS = Widths(per_device=4, devices=4)
RULES = PlanRules(widths=WIDTHS)


def curve(below: float = 0.6, above: float = 0.85, widths: Widths = WIDTHS) -> SpeedCurve:
    """Speeds that grow by one power of the width below 1 and by another above."""
    return SpeedCurve(speeds=tuple(w**below if w < 1 else w**above for w in widths.widths))


def pool(count: int, per_node: int = 4) -> tuple[TrialDevice, ...]:
    """Devices on nodes of equal size."""
    return tuple(TrialDevice(number=at, node=f"node-{at // per_node}") for at in range(count))


def trials(works_s: Sequence[float], speeds: SpeedCurve | None = None) -> list[PlannedTrial]:
    """Trials that wait."""
    shape = speeds or curve()
    return [PlannedTrial(number=at, work_s=work, curve=shape) for at, work in enumerate(works_s)]


def facts(works_s: Sequence[float], **more: object) -> list[TrialFacts]:
    """The same for the simulator; ``more`` are fields of each."""
    given: dict[str, object] = {"curve": curve(), **more}
    return [
        TrialFacts(number=at, epoch_s=work, **given)  # type: ignore[arg-type]
        for at, work in enumerate(works_s)
    ]
