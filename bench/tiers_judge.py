# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the arms of the bench of tiers come to: figures, rows to read, and the bars.

Values in, values out; it must never leave a bad arm out of a figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.report import Bars, Figure, Row
from bench.spot_trace import Kind
from bench.tiers_losses import Pace, overhead, push_s, times_less
from bench.tiers_records import LINK, Outcome

BARS: Final[Bars] = {
    "lost_steps_notice": lambda value: value == 0,
    "lost_steps_kill": lambda value: value <= 2,
    "recovery_s": lambda value: value <= 3.0,
    "overhead": lambda value: value <= 0.10,
    "lost_vs_checkpoint": lambda value: value >= 4.0,
    "loss_equal": lambda value: value == 1,
}
STROKE_BARS: Final[Bars] = {
    "state_lost": lambda value: value == 0,
    "stroke_lost_steps": lambda value: value <= 2,
    "strokes_differing": lambda value: value == 0,
    "stroke_faults": lambda value: value == 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """What every arm did; ``replayed`` is absent where there is no trace."""

    plain: Sequence[Outcome]
    copied: Sequence[Outcome]
    notice: Outcome
    killed: Outcome
    saved: Outcome
    long: Outcome
    replayed: Outcome | None


def judged(arms: Arms, step_s: float, interval_s: float) -> tuple[dict[str, Figure], list[Row]]:
    """The flat figures and the table.

    Args:
        arms: All of them, from one run.
        step_s: Of one step.
        interval_s: Between checkpoints.
    """
    replayed = arms.replayed or Outcome()
    to_notice = [*arms.notice.lost_steps, *replayed.lost_to.get(Kind.NOTICE, ())]
    to_kill = [*arms.killed.lost_steps, *replayed.lost_to.get(Kind.KILL, ())]
    back_s = [*arms.killed.recovery_s, *replayed.recovery_s]
    alone_s = statistics.fmean(one for run in arms.plain for one in run.step_s)
    copied_s = statistics.fmean(one for run in arms.copied for one in run.step_s)
    undisturbed_s = len(arms.killed.losses) * alone_s
    ours_s, theirs_s = arms.killed.wall_s - undisturbed_s, arms.saved.wall_s - undisturbed_s
    travel_s = push_s(LINK, owners=2, state_stores=1)
    pace = Pace(step_s=step_s, recover_s=max(back_s, default=0.0))
    figures: dict[str, Figure] = {
        "lost_steps_notice": sum(to_notice),
        "lost_steps_kill": max(to_kill, default=None),
        "recovery_s": max(back_s, default=None),
        "overhead": copied_s / alone_s - 1,
        "lost_vs_checkpoint": theirs_s / ours_s if ours_s > 0 else None,
        "loss_equal": _equal(arms),
        "kills": len(arms.killed.lost_steps),
        "kills_checkpoint": len(arms.saved.lost_steps),
        "replayed_notices": replayed.told.count(Kind.NOTICE),
        "replayed_kills": replayed.told.count(Kind.KILL),
        "replayed_overdue": replayed.overdue,
        "lost_s": ours_s,
        "lost_s_checkpoint": theirs_s,
        "lost_steps_checkpoint": sum(arms.saved.lost_steps),
        "restarts_s_checkpoint": sum(arms.saved.recovery_s),
        "step_s": statistics.median(one for run in arms.plain for one in run.step_s),
        "push_s": travel_s,
        "overhead_expected": overhead(pace, every_steps=1, travel_s=travel_s),
        "lost_vs_checkpoint_expected": times_less(
            pace, LINK, travel_s=travel_s, interval_s=interval_s, losses_per_hour=60
        ),
    }
    return figures, _rows(arms, replayed, figures, (alone_s, copied_s))


def _equal(arms: Arms) -> bool:
    """Whether all arms have the losses of the undisturbed one to the last bit, step for step."""
    runs = [*arms.plain, *arms.copied, arms.notice, arms.killed, arms.saved]
    runs += [arms.replayed] if arms.replayed is not None else []
    undisturbed = arms.long.losses
    return all(
        run.losses and run.losses == {step: undisturbed[step] for step in run.losses}
        for run in runs
    )


def _rows(
    arms: Arms, replayed: Outcome, figures: dict[str, Figure], mean_s: tuple[float, float]
) -> list[Row]:
    alone_s, copied_s = mean_s
    trace = f"{figures['replayed_notices']} notices, {figures['replayed_kills']} kills"
    return [
        Row(what="lost steps, with notice", ours=f"{sum(arms.notice.lost_steps)}", limit="0"),
        Row(
            what="lost steps, killed, each",
            ours=_each(arms.killed.lost_steps),
            baseline=_each(arms.saved.lost_steps),
            limit="2",
        ),
        Row(
            what="recovery, each",
            ours=_seconds(arms.killed.recovery_s),
            baseline=_seconds(arms.saved.recovery_s),
            limit="3 s",
        ),
        Row(
            what=f"replayed trace ({trace}): lost steps with notice",
            ours=f"{sum(replayed.lost_to.get(Kind.NOTICE, ()))}",
            limit="0",
        ),
        Row(
            what="replayed trace: lost steps, killed, each",
            ours=_each(replayed.lost_to.get(Kind.KILL, ())),
            limit="2",
        ),
        Row(what="replayed trace: recovery, each", ours=_seconds(replayed.recovery_s), limit="3 s"),
        Row(
            what="mean step, undisturbed",
            ours=f"{copied_s:.3f} s",
            baseline=f"{alone_s:.3f} s",
            limit="+10 %",
        ),
        Row(
            what="lost time, same losses",
            ours=f"{figures['lost_s']:.1f} s",
            baseline=f"{figures['lost_s_checkpoint']:.1f} s",
            limit="4 times less",
        ),
        Row(
            what="loss equal to the undisturbed run's",
            ours="yes" if figures["loss_equal"] else "no",
            limit="yes",
        ),
    ]


def _each(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


def _seconds(times: Sequence[float]) -> str:
    return ", ".join(f"{one:.2f} s" for one in times)
