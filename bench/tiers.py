# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What losses cost an elastic job with a state store, without one, and with checkpoints.

``python -m bench.tiers [--steps N] [--step-seconds S] [--interval S] [--data DIR]`` writes
``build/bench/tiers.json``. Real processes, a state of 50 MB and a link of 200 Mbit/s: the copy is
paced to it by the product's own limit. Every arm trains the same model on the same samples. The
last arm lives through an excerpt of a public preemption trace; every other loss has a notice there.
Then random strokes hit small jobs, one, two or all members at a time (``--strokes N --seed N``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.progress import Progress
from bench.report import DATA, Figure, Row, judge, write
from bench.spot_trace import FILE, TraceUnreadable, excerpt, read
from bench.spot_trace import Event as Change
from bench.tiers_job import play
from bench.tiers_judge import BARS, STROKE_BARS, Arms, judged
from bench.tiers_records import REPLAY, SPOTS, Event, Outcome
from bench.tiers_strokes import strike

PHASES: Final = (0.25, 0.5, 0.75)
"""Of a checkpoint's interval, one loss in each: half an interval on average, as at random times."""
RESTART_S: Final = 5.0
"""Left for a restart between two losses."""
LEAD_IN_S: Final = 10.0
"""Before a replayed trace begins: a job has a copy by then."""


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


def changes_of(data: Path) -> Sequence[Change]:
    """What happens to the transient machines by a public trace; nothing where it is absent.

    Raises:
        TraceUnreadable: the file is no such trace.
    """
    file = data / FILE
    if not file.is_file():
        print(f"skipped, replayed trace: {file} is not there; --data names the folder")
        return ()
    events = excerpt(read(file), len(SPOTS), REPLAY).events
    return [replace(one, at_s=one.at_s + LEAD_IN_S) for one in events]


def measure(
    steps: int, step_s: float, interval_s: float, rounds: int, changes: Sequence[Change]
) -> tuple[dict[str, Figure], list[Row]]:
    """All arms.

    Args:
        steps: Of the undisturbed arms.
        step_s: Of one step.
        interval_s: Between checkpoints.
        rounds: Of the undisturbed arms, in turn.
        changes: Of the trace that is replayed.
    """
    with Progress() as progress:
        return _arms(progress, steps, step_s, interval_s, rounds, changes)


def _arms(
    progress: Progress,
    steps: int,
    step_s: float,
    interval_s: float,
    rounds: int,
    changes: Sequence[Change],
) -> tuple[dict[str, Figure], list[Row]]:
    events = script(interval_s)
    many = max(steps, _lasting(events[-1].at_s, step_s))
    replayed = _lasting(REPLAY.length_s + LEAD_IN_S, step_s)

    task = progress.task("arms", 2 * rounds + 4 + bool(changes))

    def arm(name: str, **how: object) -> Outcome:
        progress.say(name)
        given = {"step_s": step_s, "interval_s": interval_s} | how
        found = play(**given)  # type: ignore[arg-type]
        task.advance()
        return found

    plain, copied = [], []
    for _ in range(rounds):
        plain.append(arm("undisturbed, no copy", copy="none", steps=steps))
        copied.append(arm("undisturbed, with keeper", copy="keeper", steps=steps))
    told = [Event(at_s=3.4 * step_s, what="notice")]
    arms = Arms(
        plain=plain,
        copied=copied,
        notice=arm("notice", copy="keeper", steps=steps, events=told),
        killed=arm("losses, with keeper", copy="keeper", steps=many, events=events),
        saved=arm("losses, with checkpoints", copy="files", steps=many, events=events),
        # what it computes does not hang on its pace
        long=arm(
            "undisturbed, as long, at full speed",
            copy="none",
            steps=max(many, replayed),
            step_s=0.0,
        ),
        replayed=(
            arm("replayed trace, with keeper", copy="keeper", steps=replayed, changes=changes)
            if changes
            else None
        ),
    )
    return judged(arms, step_s, interval_s)


def strokes_of(strokes: int, seed: int) -> tuple[dict[str, Figure], list[Row]]:
    """Random strokes against members of jobs, and what they cost.

    Args:
        strokes: In all.
        seed: Of the random choices.
    """
    with Progress() as progress:
        task = progress.task("strokes", strokes)
        found = strike(strokes, seed, tell=lambda so_far: task.to(so_far.strokes))
        for fault in found.faults:
            progress.say(fault)
    figures: dict[str, Figure] = {
        "strokes": found.strokes,
        "state_lost": found.state_lost,
        "stroke_lost_steps": found.lost_steps,
        "strokes_differing": found.differing,
        "stroke_faults": len(found.faults),
    }
    row = Row(
        what=f"{found.strokes} random strokes, seed {seed}: kills and stops of one, two or all",
        ours=f"{found.state_lost} jobs lost their state, at most {found.lost_steps} steps done "
        f"again, {found.differing} last states differ",
        limit="0, <= 2, 0",
    )
    return figures, [row]


def _lasting(seconds: float, step_s: float) -> int:
    """Steps of an arm in which so much time passes, and what came last is got over."""
    return int((seconds + 8) / step_s)


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
    parser.add_argument("--strokes", type=int, default=200, help="random ones; 0 = none")
    parser.add_argument("--seed", type=int, default=1, help="of the strokes")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public tables")
    given = parser.parse_args(arguments)
    try:
        changes = changes_of(given.data)
    except TraceUnreadable as error:
        raise SystemExit(str(error)) from error
    figures, rows = measure(given.steps, given.step_seconds, given.interval, given.rounds, changes)
    if given.strokes:
        struck, more = strokes_of(given.strokes, given.seed)
        figures, rows = figures | struck, [*rows, *more]
    write("tiers", figures, rows)
    print(
        "Local processes: a loss is seen at once, where a cluster needs its own time for that. The "
        "link is the state store client's own rate, not a shaped network. Replacements start at "
        "once; "
        "in the replayed trace machines come when it says so. With checkpoints all start again."
    )
    return judge(figures, {**BARS, **(STROKE_BARS if given.strokes else {})})


if __name__ == "__main__":
    sys.exit(main())
