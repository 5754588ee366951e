# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a loss cost is read from what the members wrote, and the members write what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.spot_judge import Heart, Loss, Note, ending, judge, read_notes
from bench.spot_stage import MEMBER, job_body
from bench.spot_trace import Kind

ROOT = Path(__file__).resolve().parents[3]
MEMBERS = {"u0": "node-1", "u1": "node-2"}


def said(what: str, at_s: float, value: int = 1, *, node: str = "node-1", world: int = 2) -> Note:
    return Note(what=what, node=node, world=world, at_s=at_s, value=value)


def a_loss(kind: Kind = Kind.KILL, node: str = "node-2") -> Loss:
    return Loss(kind=kind, node=node, at_s=100.0, members=MEMBERS)


def test_steps_that_are_done_again_are_lost() -> None:
    hearts = [
        Heart(began_s=10.0, step=830, at_s=100.1),
        Heart(began_s=10.0, step=829, at_s=100.0),
        Heart(began_s=5.0, step=9999, at_s=9.0),  # a life that ended long before
        Heart(began_s=102.0, step=1200, at_s=130.0),
    ]
    notes = [said("resumed", 102.0, 500, world=1), said("first", 102.5, 501, world=1)]
    found = judge(a_loss(), ["u2"], 130.0, notes, hearts)
    assert (found.hit, found.lost_steps, found.world) == (True, 330, 1)
    assert found.recovery_s == pytest.approx(2.5)
    assert found.reaction_s is None
    assert (found.others, found.others_restarted) == (1, 1)


def test_a_notice_that_was_heeded_loses_nothing() -> None:
    notes = [
        said("told", 100.5, 700),
        said("told", 101.0, 700, node="node-2"),
        said("first", 104.0, 701),
    ]
    hearts = [Heart(began_s=10.0, step=700, at_s=101.1)]
    found = judge(a_loss(Kind.NOTICE), ["u0", "u3"], 130.0, notes, hearts)
    assert found.reaction_s == pytest.approx(0.5), "the gang stops when its first member hears"
    assert (found.lost_steps, found.others_restarted) == (0, 0)


def test_a_loss_elsewhere_costs_no_one_anything() -> None:
    found = judge(a_loss(node="node-3"), MEMBERS, 130.0, [said("first", 131.0)], [])
    assert (found.hit, found.recovery_s, found.lost_steps, found.others_restarted) == (
        False,
        None,
        0,
        0,
    )


def test_the_end_of_a_run_is_read_only_where_there_is_one() -> None:
    log = "step 380/400 loss 0.0312\nstep 400/400 loss 0.0301\nweights sha256 ab\n"
    assert ending(log) is None
    found = ending(log + "test accuracy 0.9806\n")
    assert found is not None
    assert (found.loss, found.accuracy) == (0.0301, 0.9806)
    assert ending("step 380/400 loss 0.0312\ntest accuracy 0.9\n") is None


def start(folder: Path) -> subprocess.Popen[str]:
    settings = {
        "SPOT_NOTES": str(folder),
        "SPOT_NODE": "node-1",
        "CHECKPOINT_DIR": str(folder),
        "STEPS": "200000",
        "BATCH": "32",
        "HIDDEN": "8",
        "CHECKPOINT_EVERY": "100000",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "PYTHONPATH": str(ROOT / "examples"),
    }
    return subprocess.Popen(
        [sys.executable, "-c", MEMBER.read_text("utf-8")],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_steps(folder: Path, beyond: int, process: subprocess.Popen[str]) -> None:
    until(lambda: any(one.step > beyond for one in read_notes(folder)[1]), process)


def until_first_steps(folder: Path, starts: int, process: subprocess.Popen[str]) -> None:
    """A step is noted after its heart: a kill between the two leaves a start without a note."""
    until(lambda: sum(one.what == "first" for one in read_notes(folder)[0]) >= starts, process)


def test_a_member_writes_down_what_happens_to_it(tmp_path: Path) -> None:
    first = start(tmp_path)
    until_steps(tmp_path, 20, first)
    told_at = time.time()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode == 143
    second = start(tmp_path)
    until_first_steps(tmp_path, 2, second)
    second.kill()
    second.communicate()
    notes, hearts = read_notes(tmp_path)
    assert {"begins", "told", "ends", "resumed", "first"} <= {one.what for one in notes}
    loss = Loss(kind=Kind.NOTICE, node="node-1", at_s=told_at, members={"u0": "node-1"})
    found = judge(loss, [], time.time(), notes, hearts)
    assert found.hit
    assert found.lost_steps == 0
    assert found.reaction_s is not None
    assert found.recovery_s is not None


def test_the_job_is_the_example_with_notes(tmp_path: Path) -> None:
    body = job_body("replay", 4000, 3, tmp_path)
    spec = body["spec"]
    assert spec["elasticity"]["maxReplicas"] == 3
    assert spec["work"]["steps"] == 4000
    (container,) = spec["template"]["spec"]["containers"]
    environment = {one["name"]: one.get("value", "") for one in container["env"]}
    assert environment["STEPS"] == "4000"
    assert environment["CHECKPOINT_DIR"] == "/checkpoints/replay"
    assert len(environment) == len(container["env"])
    assert container["command"][:2] == ["python", "-c"]
    paths = [volume.get("hostPath") for volume in spec["template"]["spec"]["volumes"]]
    assert {"path": str(tmp_path), "type": "Directory"} in paths
