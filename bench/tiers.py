# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What losses cost an elastic job with a state keeper, without one, and with checkpoints.

``python -m bench.tiers [--steps N] [--step-seconds S] [--interval S]`` writes
``build/bench/tiers.json``. Real processes, a state of 50 MB and a link of 200 Mbit/s: the copy is
paced to it by the product's own limit. Every arm trains the same model on the same samples.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from bench.report import Bars, Figure, Row, judge, write
from bench.tiers_job import play
from bench.tiers_records import LINK, Event, Outcome
from ullage.engines.tiers.losses import Pace, overhead, push_s, times_less

BARS: Final[Bars] = {
    "lost_steps_notice": lambda value: value == 0,
    "lost_steps_kill": lambda value: value <= 2,
    "recovery_s": lambda value: value <= 3.0,
    "overhead": lambda value: value <= 0.10,
    "lost_vs_checkpoint": lambda value: value >= 4.0,
    "loss_equal": lambda value: value == 1,
}
PHASES: Final = (0.25, 0.5, 0.75)
"""Of a checkpoint's interval, one loss in each: half an interval on average, as at random times."""
RESTART_S: Final = 5.0
"""Left for a restart between two losses."""


def script(interval_s: float) -> tuple[Event, ...]:
    """Two owners are killed one after the other, then all transient members at once.

    The arm with checkpoints counts its intervals from its restarts. Before the second loss it has
    time for a whole one, so that it restarts from a checkpoint, not from the beginning only.
    """
    first = PHASES[0] * interval_s
    second = first + RESTART_S + (1 + PHASES[1]) * interval_s
    third = second + RESTART_S + PHASES[2] * interval_s
    return (
        Event(at_s=first, what="owner"),
        Event(at_s=second, what="owner"),
        Event(at_s=third, what="all"),
    )


def measure(
    steps: int, step_s: float, interval_s: float, rounds: int
) -> tuple[dict[str, Figure], list[Row]]:
    """All arms.

    Args:
        steps: Of the undisturbed arms.
        step_s: Of one step.
        interval_s: Between checkpoints.
        rounds: Of the undisturbed arms, in turn.
    """
    began = time.monotonic()
    events = script(interval_s)
    many = max(steps, int((events[-1].at_s + 8) / step_s))

    def arm(name: str, **how: object) -> Outcome:
        given = {"step_s": step_s, "interval_s": interval_s} | how
        found = play(**given)  # type: ignore[arg-type]
        print(f"[{time.monotonic() - began:5.0f} s] {name}", file=sys.stderr, flush=True)
        return found

    plain, copied = [], []
    for _ in range(rounds):
        plain.append(arm("undisturbed, no copy", copy="none", steps=steps))
        copied.append(arm("undisturbed, with keeper", copy="keeper", steps=steps))
    notice = arm(
        "notice", copy="keeper", steps=steps, events=[Event(at_s=3.4 * step_s, what="notice")]
    )
    killed = arm("losses, with keeper", copy="keeper", steps=many, events=events)
    saved = arm("losses, with checkpoints", copy="files", steps=many, events=events)
    # what it computes does not hang on its pace
    long = arm("undisturbed, as long, at full speed", copy="none", steps=many, step_s=0.0)
    return _figures(plain, copied, notice, killed, saved, long, step_s, interval_s)


def _figures(
    plain: Sequence[Outcome],
    copied: Sequence[Outcome],
    notice: Outcome,
    killed: Outcome,
    saved: Outcome,
    long: Outcome,
    step_s: float,
    interval_s: float,
) -> tuple[dict[str, Figure], list[Row]]:
    alone_s = statistics.median(one for run in plain for one in run.step_s)
    mean_alone_s = statistics.fmean(one for run in plain for one in run.step_s)
    mean_copied_s = statistics.fmean(one for run in copied for one in run.step_s)
    undisturbed_s = len(long.losses) * mean_alone_s
    ours_s, theirs_s = killed.wall_s - undisturbed_s, saved.wall_s - undisturbed_s
    short = [*plain[1:], *copied, notice]
    equal = all(run.losses == plain[0].losses for run in short) and (
        killed.losses == long.losses == saved.losses
    )
    travel_s = push_s(LINK, owners=2, keepers=1)
    pace = Pace(step_s=step_s, recover_s=max(killed.recovery_s, default=0.0))
    figures: dict[str, Figure] = {
        "lost_steps_notice": sum(notice.lost_steps),
        "lost_steps_kill": max(killed.lost_steps, default=None),
        "recovery_s": max(killed.recovery_s, default=None),
        "overhead": mean_copied_s / mean_alone_s - 1,
        "lost_vs_checkpoint": theirs_s / ours_s if ours_s > 0 else None,
        "loss_equal": equal,
        "kills": len(killed.lost_steps),
        "kills_checkpoint": len(saved.lost_steps),
        "lost_s": ours_s,
        "lost_s_checkpoint": theirs_s,
        "lost_steps_checkpoint": sum(saved.lost_steps),
        "restarts_s_checkpoint": sum(saved.recovery_s),
        "step_s": alone_s,
        "push_s": travel_s,
        "overhead_expected": overhead(pace, every_steps=1, travel_s=travel_s),
        "lost_vs_checkpoint_expected": times_less(
            pace, LINK, travel_s=travel_s, interval_s=interval_s, losses_per_hour=60
        ),
    }
    rows = [
        Row(what="lost steps, with notice", ours=f"{sum(notice.lost_steps)}", limit="0"),
        Row(
            what="lost steps, killed, each",
            ours=", ".join(map(str, killed.lost_steps)),
            baseline=", ".join(map(str, saved.lost_steps)),
            limit="2",
        ),
        Row(
            what="recovery, each",
            ours=", ".join(f"{one:.2f} s" for one in killed.recovery_s),
            baseline=", ".join(f"{one:.2f} s" for one in saved.recovery_s),
            limit="3 s",
        ),
        Row(
            what="mean step, undisturbed",
            ours=f"{mean_copied_s:.3f} s",
            baseline=f"{mean_alone_s:.3f} s",
            limit="+10 %",
        ),
        Row(
            what="lost time, same losses",
            ours=f"{ours_s:.1f} s",
            baseline=f"{theirs_s:.1f} s",
            limit="4 times less",
        ),
        Row(what="loss equal to the undisturbed run's", ours="yes" if equal else "no", limit="yes"),
    ]
    return figures, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything and judge it.

    Returns:
        0, or 1 when a bar is missed.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=12, help="of the undisturbed arms")
    parser.add_argument("--step-seconds", type=float, default=2.4)
    parser.add_argument("--interval", type=float, default=60.0, help="between checkpoints, seconds")
    parser.add_argument("--rounds", type=int, default=2, help="of the undisturbed arms")
    given = parser.parse_args(arguments)
    figures, rows = measure(given.steps, given.step_seconds, given.interval, given.rounds)
    write("tiers", figures, rows)
    print(
        "Local processes: a loss is seen at once, where a cluster needs its own time for that. The "
        "link is the keeper client's own rate, not a shaped network. Replacements start at once "
        "in both arms; members of the arm with checkpoints all start anew."
    )
    return judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
