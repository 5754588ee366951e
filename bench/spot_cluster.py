# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A replayed preemption trace against an elastic gang on the local cluster.

Every other loss comes with a notice, the rest without a word. For each: how soon the member
learned of it, how long until the gang trained on, the steps that it did again, whether others were
torn down; at the end the result, beside that of the same run that no one disturbed. Nodes are
emulated ones with real kubelets, ``python -m bench.spot_cluster``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench.local import installed
from bench.report import DATA, FOLDER, Bars, Figure, Row, judge, write
from bench.spot_judge import Ending, Loss, Outcome, ending, read_notes
from bench.spot_judge import judge as judged
from bench.spot_stage import NotPlayed, Stage, example_setting, until
from bench.spot_trace import FILE, Event, Excerpt, Kind, Pace, TraceUnreadable, excerpt, read
from demo.cluster import EmulatedDevice
from demo.images import ROOT
from demo.progress import Progress as Steps

SPEED_S: Final = 15.0
"""How long the gang's speed is measured, to give it as much work as the replay takes."""
AROUND_S: Final = 210.0
"""Of the minutes: measuring the speed, finishing, and the run that no one disturbs."""
LATE: Final = 1.5
"""How much longer than the replay the rest of the work may take."""
FULL: Final = 0.8
"""Part of the undisturbed speed that a gang is expected to keep through the replay."""
LOSS_TOLERANCE: Final = 0.001
"""Ranks add their parts in another order: the same result to the printed digits but one."""
ACCURACY_TOLERANCE: Final = 0.003
"""One held-out image of 360."""


def bars(checkpoint_every: int) -> Bars:
    """What every figure must be."""
    return {
        "lost_steps_notice": lambda steps: steps == 0,
        "lost_steps_kill_max": lambda steps: steps <= checkpoint_every,
        "reaction_max_s": lambda seconds: seconds <= 5,
        "overdue": lambda pods: pods == 0,
        "restarts_counted": lambda count: count == 0,
        "loss_equal": lambda equal: equal == 1,
    }


@dataclass(slots=True)
class Played:
    """What a replay left behind."""

    losses: list[Loss] = field(default_factory=list)
    afters: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    """Moment and members just before the next loss, or at the end."""
    unplayed: int = 0
    """Events that the job did not live to see."""


def play(stage: Stage, name: str, events: Sequence[Event], say: Callable[[str], None]) -> Played:
    """Do to the nodes what the excerpt says."""
    nodes, found, began = stage.nodes(), Played(), time.monotonic()
    open_notice: dict[str, int] = {}
    for at, event in enumerate(events):
        time.sleep(max(0.0, began + event.at_s - time.monotonic()))
        if stage.status().get("phase") in ("Succeeded", "Failed"):
            found.unplayed = len(events) - at
            break
        node = nodes[event.node]
        members = stage.members()
        if event.takes:
            if found.losses:
                found.afters.append((time.time(), stage.present()))
            loss = Loss(kind=event.kind, node=node, at_s=time.time(), members=members)
            found.losses.append(loss)
        say(f"{event.at_s:6.1f} s  {event.kind:<6} {node}  {len(members)} members run")
        match event.kind:
            case Kind.NOTICE:
                open_notice[node] = len(found.losses) - 1
                stage.notice(node)
            case Kind.KILL:
                stage.go(node, name)
            case Kind.GONE:
                left, index = stage.go(node, name), open_notice.pop(node)
                found.losses[index] = _overdue(found.losses[index], left)
            case Kind.ADD:
                stage.come(node)
    return found


def _overdue(loss: Loss, left: int) -> Loss:
    return Loss(kind=loss.kind, node=loss.node, at_s=loss.at_s, members=loss.members, overdue=left)


def speed(stage: Stage, members: int) -> float:
    """Steps a second of the whole gang, undisturbed."""
    stage.start("speed", 10_000_000, members)
    first, began = stage.reached("speed"), time.monotonic()
    time.sleep(SPEED_S)
    found = (stage.reached("speed") - first) / (time.monotonic() - began)
    stage.remove()
    if found <= 0:
        raise NotPlayed("the gang made no step while its speed was measured")
    return found


def undisturbed(steps: int) -> Ending | None:
    """The same run in one process of this machine, where nothing happens to it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "STEPS": str(steps),
            "BATCH": example_setting("BATCH"),
            "HIDDEN": example_setting("HIDDEN"),
            "CHECKPOINT_EVERY": str(steps),
            "CHECKPOINT_DIR": folder,
            "PYTHONPATH": f"{ROOT / 'examples'}:{ROOT / 'runtime'}:{ROOT / 'operator'}",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "digits.train"], env={**os.environ, **settings},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    return ending(done.stdout)


def outcomes_of(played: Played, folder: Path) -> list[Outcome]:
    """Every loss judged by the members' notes."""
    notes, hearts = read_notes(folder)
    return [
        judged(loss, after, until_s, notes, hearts)
        for loss, (until_s, after) in zip(played.losses, played.afters, strict=True)
    ]


def figures_of(
    outcomes: Sequence[Outcome], ends: tuple[Ending | None, Ending | None], counted: int
) -> dict[str, Figure]:
    """The flat figures."""
    hit = [one for one in outcomes if one.hit]
    told = [one for one in hit if one.kind is Kind.NOTICE]
    killed = [one for one in hit if one.kind is Kind.KILL]
    reactions = [one.reaction_s for one in told if one.reaction_s is not None]
    back = [one.recovery_s for one in hit if one.recovery_s is not None]
    ours, plain = ends
    equal = (
        ours is not None
        and plain is not None
        and abs(ours.loss - plain.loss) <= LOSS_TOLERANCE
        and abs(ours.accuracy - plain.accuracy) <= ACCURACY_TOLERANCE
    )
    return {
        "losses": len(outcomes),
        "losses_hit": len(hit),
        "notices_hit": len(told),
        "kills_hit": len(killed),
        "reaction_max_s": max(reactions) if len(reactions) == len(told) and told else None,
        "recovery_median_s": sorted(back)[len(back) // 2] if back else None,
        "recovery_max_s": max(back, default=None),
        "lost_steps_notice": sum(one.lost_steps for one in told),
        "lost_steps_kill": sum(one.lost_steps for one in killed),
        "lost_steps_kill_max": max((one.lost_steps for one in killed), default=0),
        "others": sum(one.others for one in hit),
        "others_restarted": sum(one.others_restarted for one in hit),
        "overdue": sum(one.overdue for one in outcomes),
        "restarts_counted": counted,
        "final_loss": ours.loss if ours else None,
        "undisturbed_loss": plain.loss if plain else None,
        "final_accuracy": ours.accuracy if ours else None,
        "undisturbed_accuracy": plain.accuracy if plain else None,
        "loss_equal": equal,
    }


def rows_of(outcomes: Sequence[Outcome], figures: Mapping[str, Figure]) -> list[Row]:
    """A line for every loss, and the sums."""
    reaction_s = figures["reaction_max_s"]
    most = "not seen" if reaction_s is None else f"{reaction_s:.2f} s"
    rows = [
        Row(
            what=f"{one.kind} {one.node}" + ("" if one.hit else ", no member there"),
            ours=_told(one) if one.hit else "",
        )
        for one in outcomes
    ]
    return [
        *rows,
        Row(what="reaction, most", ours=most, limit="5 s"),
        Row(what="steps lost with notice", ours=str(figures["lost_steps_notice"]), limit="0"),
        Row(what="steps lost without, most", ours=str(figures["lost_steps_kill_max"])),
        Row(
            what="final loss",
            ours=str(figures["final_loss"]),
            baseline=f"{figures['undisturbed_loss']} undisturbed",
            limit="equal",
        ),
    ]


def _told(one: Outcome) -> str:
    words = []
    if one.reaction_s is not None:
        words.append(f"told after {one.reaction_s:.1f} s")
    if one.recovery_s is not None:
        words.append(f"trains on after {one.recovery_s:.1f} s with {one.world}")
    words.append(f"{one.lost_steps} steps lost")
    words.append(f"{one.others_restarted} of {one.others} others restarted")
    return ", ".join(words)


def measure(stage: Stage, chosen: Excerpt, pace: Pace, say: Steps) -> dict[str, Figure]:
    """Play the excerpt against a gang and judge it.

    Raises:
        NotPlayed: the gang did not start or did not end.
    """
    members = len(stage.nodes()) - 1
    with say.step("the gang's speed", expect_s=60):
        rate = speed(stage, members)
    steps = max(400, int(rate * pace.length_s * FULL) // 20 * 20)  # its last step is printed
    say.say(f"{rate:.0f} steps/s with {members} members; {steps} steps to do")
    stage.start("replay", steps, members)
    played = play(stage, "replay", chosen.events, say.say)
    for node in stage.nodes():
        stage.come(node)
    with say.step("the rest of the work", expect_s=60):
        until(
            lambda: stage.status().get("phase") in ("Succeeded", "Failed"),
            LATE * pace.length_s,
            "the job ends",
            stage.status,
        )
    if played.losses:
        played.afters.append((time.time(), stage.present()))
    status, log = stage.status(), stage.log()
    with say.step("the same run undisturbed", expect_s=60):
        plain = undisturbed(steps)
    outcomes = outcomes_of(played, stage.folder / "replay")
    figures = figures_of(outcomes, (ending(log), plain), int(status.get("restarts", 0)))
    figures |= {
        "steps": steps,
        "nodes": len(stage.nodes()),
        "trace_minutes": chosen.trace_minutes,
        "played_minutes": round(pace.length_s / 60, 2),
        "withheld": chosen.withheld,
        "unplayed": played.unplayed,
    }
    write("spot-cluster", figures, rows_of(outcomes, figures))
    _keep(outcomes)
    return figures


def _keep(outcomes: Sequence[Outcome]) -> None:
    file = FOLDER / "spot-cluster-losses.json"
    file.write_text(json.dumps([asdict(one) for one in outcomes], indent=2) + "\n", "utf-8")


def _devices(nodes: int) -> dict[str, list[EmulatedDevice]]:
    """One device a node; nodes take turns on the machine's cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(10, min(100, 90 * len(cores) // nodes))
    return {
        f"node-{at + 1}": [EmulatedDevice(core=cores[at % len(cores)], percent=share)]
        for at in range(nodes)
    }


def _on_a_cluster(chosen: Excerpt, pace: Pace, nodes: int) -> dict[str, Figure]:
    """Measure on a cluster of its own.

    Raises:
        SystemExit: it did not start, or a step failed; the reason was told.
    """
    with (
        installed("spot-cluster", _devices(nodes), NotPlayed) as (local, steps),
        tempfile.TemporaryDirectory(prefix="ullage-spot-") as name,
    ):
        Path(name).chmod(0o777)
        stage = Stage(local, Path(name))
        stage.open()
        try:
            figures = measure(stage, chosen, pace, steps)
        finally:
            stage.close()
    return figures


def main() -> int:
    """Replay, print, write the figures.

    Returns:
        The exit status: 0, or 1 when a bar is missed.
    """
    parser = argparse.ArgumentParser(prog="make bench-spot-cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="in all, but for the cluster")
    parser.add_argument("--nodes", type=int, default=4, choices=(3, 4))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public tables")
    parser.add_argument("--dry", action="store_true", help="only say what would be played")
    options = parser.parse_args()
    pace = Pace(length_s=60 * options.minutes - AROUND_S)
    if pace.length_s < pace.gap_s:
        parser.error(f"--minutes: give at least {(AROUND_S + pace.gap_s) / 60:g}")
    path = options.data / FILE
    if not path.exists():
        print(f"skipped: {path} is not there; --data names the folder of the public tables")
        return 0
    try:
        chosen = excerpt(read(path), options.nodes, pace)
    except TraceUnreadable as error:
        raise SystemExit(str(error)) from error
    if options.dry:
        for one in chosen.events:
            print(f"{one.at_s:6.1f} s  {one.kind:<6} node-{one.node + 1}")
        return 0
    figures = _on_a_cluster(chosen, pace, options.nodes)
    return judge(figures, bars(int(example_setting("CHECKPOINT_EVERY"))))


if __name__ == "__main__":
    sys.exit(main())
