# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from digits import rendezvous
from digits.allreduce import PeerLost, TcpGroup
from digits.checkpoint import read
from digits.data import Digits, Floats
from digits.parallel import membership
from digits.plan import BadSetting, Plan
from digits.rendezvous import JoinFailed, Membership, Stopped, join
from digits.training import Trainer
from ullage.api.steps import STEP_RECORD_BYTES, StepRecord

T = TypeVar("T")
Start = Callable[..., subprocess.Popen[str]]


def member(rank: int, port: int, world: int = 2, *, fingerprint: int = 1) -> Membership:
    return Membership(
        rank=rank,
        world=world,
        address="127.0.0.1",
        port=port,
        fingerprint=fingerprint,
        join_seconds=20,
    )


def never() -> bool:
    return False


def meet_and_count(who: Membership) -> Floats:
    """Join a group and count its members."""
    with contextlib.closing(join(who, stop=never)) as group:
        return group.sum(np.ones(1))


def together(port: int, world: int, work: Callable[[TcpGroup], T]) -> list[T]:
    """What each rank's work gave, ranks starting in reverse order."""
    results: dict[int, T] = {}

    def live(rank: int) -> None:
        with contextlib.closing(join(member(rank, port, world), stop=never)) as group:
            results[rank] = work(group)

    threads = [threading.Thread(target=live, args=(rank,)) for rank in reversed(range(world))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [results[rank] for rank in range(world)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE_SECONDS", 0.05)


def test_all_ranks_hold_the_same_bits_of_the_sum(port: int) -> None:
    vectors = np.random.default_rng(3).normal(size=(3, 50_000))
    sums = together(port, 3, lambda group: group.sum(vectors[group.rank]))
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    np.testing.assert_allclose(sums[0], vectors.sum(axis=0), atol=1e-12)


def test_a_broadcast_gives_everyone_what_rank_0_has(port: int) -> None:
    got = together(port, 2, lambda group: group.broadcast(np.full(4, group.rank + 7.0)))
    for vector in got:
        assert np.array_equal(vector, np.full(4, 7.0))


def test_two_ranks_end_where_one_process_does(port: int, digits: Digits) -> None:
    plan = Plan(steps=40, hidden=12, batch=64)

    def train(group: TcpGroup | None) -> Trainer:
        trainer = Trainer(plan, digits, group)
        while not trainer.finished:
            trainer.advance()
        return trainer

    alone = train(None)
    first, second = together(port, 2, train)
    assert np.array_equal(first.state.theta, second.state.theta)
    np.testing.assert_allclose(first.state.theta, alone.state.theta, atol=1e-9)


@pytest.mark.slow
def test_processes_that_start_apart_end_together(start: Start, port: int, tmp_path: Path) -> None:
    common = {"WORLD_SIZE": 2, "MASTER_PORT": port, "STEPS": 300, "HIDDEN": 32}
    weights = tmp_path / "weights.npz"
    late = start("parallel", RANK=1, **common)
    time.sleep(0.5)
    first = start("parallel", RANK=0, WEIGHTS=weights, **common)
    printed = [process.communicate(timeout=60) for process in (first, late)]
    assert [first.returncode, late.returncode] == [0, 0], printed
    ends = [text.splitlines()[-2:] for text, _ in printed]
    assert ends[0] == ends[1]
    assert ends[0][1].startswith("test accuracy 0.9")
    alone = start("train", STEPS=300, HIDDEN=32, WEIGHTS=tmp_path / "alone.npz")
    alone.communicate(timeout=60)
    np.testing.assert_allclose(
        read(weights, "theta")["theta"], read(tmp_path / "alone.npz", "theta")["theta"], atol=1e-9
    )


@pytest.mark.slow
def test_sigterm_to_one_rank_ends_all_after_the_same_step(
    start: Start, port: int, tmp_path: Path
) -> None:
    common = {"WORLD_SIZE": 2, "MASTER_PORT": port, "STEPS": 10_000}
    ranks = [start("parallel", RANK=rank, **common) for rank in (0, 1)]
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
        assert rank.stdout.readline().startswith("step 500/")
    ranks[1].send_signal(signal.SIGTERM)
    printed = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [143, 143]
    step = int(printed[0].split("checkpoint saved at step ")[1])
    assert printed[1].endswith("interrupted\n")
    records = [tmp_path / "record-0", tmp_path / "record-1"]
    for record in records:
        record.write_bytes(bytes(STEP_RECORD_BYTES))
    folders = [tmp_path, tmp_path / "b"]  # rank 1 never sees the checkpoint
    again = [
        start("parallel", RANK=n, CHECKPOINT_DIR=folders[n], ULLAGE_STEPS=records[n], **common)
        for n in (0, 1)
    ]
    for rank in again:
        assert rank.stdout is not None
        rank.stdout.readline()
        assert rank.stdout.readline() == f"resumed at step {step}\n"
        assert rank.stdout.readline().startswith("step ")
    said = [StepRecord.unpack(record.read_bytes()) for record in records]
    assert [one.resumed_at for one in said if one is not None] == [step, step]


@pytest.mark.slow
def test_a_rank_whose_peer_is_killed_says_so_and_asks_for_another_try(
    start: Start, port: int
) -> None:
    common = {"WORLD_SIZE": 2, "MASTER_PORT": port, "STEPS": 10_000}
    ranks = [start("parallel", RANK=rank, **common) for rank in (0, 1)]
    assert ranks[1].stdout is not None
    ranks[1].stdout.readline()
    ranks[1].stdout.readline()
    ranks[1].kill()
    _, complaint = ranks[0].communicate(timeout=60)
    assert ranks[0].returncode == 75
    assert complaint.startswith("lost rank 1: ")


def test_sigterm_while_waiting_for_the_others(start: Start, port: int) -> None:
    for rank in (0, 1):
        waiting = start("parallel", RANK=rank, WORLD_SIZE=2, MASTER_PORT=port)
        assert waiting.stdout is not None
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGTERM)
        printed, _ = waiting.communicate(timeout=60)
        assert (waiting.returncode, printed) == (143, "interrupted before the first step\n")


def test_a_group_that_never_comes_together_names_who_is_missing(port: int) -> None:
    with pytest.raises(JoinFailed, match=r"ranks \[1, 2\] did not come in time"):
        join(replace(member(0, port, 3), join_seconds=0.1), stop=never)
    with pytest.raises(JoinFailed, match=f"rank 0 did not answer at 127.0.0.1:{port}"):
        join(replace(member(1, port, 3), join_seconds=0.1), stop=never)


def test_strangers_and_misfits_are_sent_away_and_the_group_still_meets(port: int) -> None:
    results: list[Floats] = []
    leader = threading.Thread(target=lambda: results.append(meet_and_count(member(0, port))))
    leader.start()
    with pytest.raises(JoinFailed, match="rank 1 has other settings than rank 0"):
        join(member(1, port, fingerprint=2), stop=never)
    with pytest.raises(JoinFailed, match="rank 2 of 3 does not belong to a group of 2"):
        join(member(2, port, 3), stop=never)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: no one\r\n\r\n")
        assert stranger.recv(64).startswith(b"this is no port for you")
    with socket.create_connection(("127.0.0.1", port)):
        pass  # comes and goes
    meet_and_count(member(1, port))
    leader.join(timeout=60)
    assert np.array_equal(results[0], [2.0])


def test_a_follower_that_died_before_the_start_is_replaced(port: int) -> None:
    results: list[Floats] = []
    leader = threading.Thread(target=lambda: results.append(meet_and_count(member(0, port, 3))))
    leader.start()
    asked = threading.Event()

    def give_up_once_welcomed() -> bool:
        return asked.is_set()

    def die() -> None:
        with pytest.raises(Stopped):
            join(member(1, port, 3), stop=give_up_once_welcomed)

    dying = threading.Thread(target=die)
    dying.start()
    time.sleep(0.3)
    asked.set()
    dying.join(timeout=60)
    followers = [
        threading.Thread(target=meet_and_count, args=(member(rank, port, 3),)) for rank in (1, 2)
    ]
    followers[0].start()
    time.sleep(0.3)
    followers[1].start()
    for thread in (leader, *followers):
        thread.join(timeout=60)
    assert np.array_equal(results[0], [3.0])


def test_a_silent_peer_counts_as_lost() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(0.05)
    with ours, theirs, pytest.raises(PeerLost, match="lost rank 1"):
        TcpGroup(0, 2, {1: ours}).sum(np.ones(3))


def test_a_rank_outside_its_group_is_refused() -> None:
    with pytest.raises(BadSetting, match="RANK=2: expected less than WORLD_SIZE=2"):
        membership({"RANK": "2", "WORLD_SIZE": "2"}, Plan())
