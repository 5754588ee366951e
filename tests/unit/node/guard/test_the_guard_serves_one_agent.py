# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The guard's loop with a keeper that stops no one: who is served, and when all run again."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ullage_node.guard import server as guard_server
from ullage_node.guard.protocol import (
    LINE_BYTES,
    SOCKET,
    FreezeTarget,
    GuardAnswer,
    GuardRequest,
    GuardVerb,
    decode,
    encode,
)
from ullage_node.guard.server import GuardServer
from ullage_node.model.devices import ContainerKey
from ullage_node.times import AGENT_SILENCE_S

TARGET = FreezeTarget(key=ContainerKey(pod_uid="0" * 32, container="main"))


class Keeper:
    """Notes what it is asked; ``stopped`` are the entries of its journal."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.stopped: list[str] = []
        self.looks = 0
        self.journal = SimpleNamespace(entries=lambda: tuple(self.stopped))

    def freeze(self, request: GuardRequest) -> str:
        self.did.append(f"freeze {request.limit_seconds:g}")
        self.stopped.append("someone")
        return "one of them is gone" if request.why == "fail" else ""

    def thaw(self, targets: tuple[FreezeTarget, ...]) -> str:
        self.did.append(f"thaw {len(targets)}")
        self.stopped.clear()
        return ""

    def thaw_all(self, why: str) -> str:
        self.did.append(why)
        self.stopped.clear()
        return ""

    def thaw_overdue(self) -> str:
        self.looks += 1
        return ""


class Guard:
    """A guard that serves in a thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SOCKET
        self.keeper = Keeper()
        self.now = 100.0
        self.beats = 0
        self._stop, self._end = socket.socketpair()
        server = GuardServer(
            self.path,
            self.keeper,  # type: ignore[arg-type]
            beat=self._beat,
            clock=lambda: self.now,
        )
        self.thread = threading.Thread(target=server.run, args=(self._stop,))
        self.thread.start()
        self.agent = self.connected()

    def _beat(self) -> None:
        self.beats += 1

    def connected(self) -> socket.socket:
        agent = socket.socket(socket.AF_UNIX)
        until(lambda: _connects(agent, self.path))
        agent.settimeout(30.0)
        return agent

    def end(self) -> None:
        self._end.send(b".")
        self.thread.join(30.0)
        for one in (self.agent, self._stop, self._end):
            one.close()
        assert not self.thread.is_alive()


def _connects(agent: socket.socket, path: Path) -> bool:
    try:
        agent.connect(str(path))
    except OSError:
        return False
    return True


def until(holds: Callable[[], bool]) -> None:
    """Wait for it; a guard that does nothing fails."""
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def asked(agent: socket.socket, verb: GuardVerb, **said: object) -> GuardAnswer:
    agent.sendall(encode(GuardRequest(number=7, verb=verb, **said)))  # type: ignore[arg-type]
    return decode(GuardAnswer, agent.recv(LINE_BYTES))


@pytest.fixture
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setattr(guard_server, "FREEZER_TICK_S", 0.01)
    monkeypatch.setattr(guard_server, "GUARD_REST_S", 0.02)
    made = Guard(tmp_path)
    yield made
    if made.thread.is_alive():
        made.end()


def test_everyone_runs_when_it_starts_and_when_it_ends(guard: Guard) -> None:
    assert os.stat(guard.path).st_mode & 0o777 == 0o600
    guard.end()
    assert guard.keeper.did == ["the guard starts", "the guard ends"]
    assert not guard.path.exists()


def test_it_does_what_it_is_asked_and_says_what_came_of_it(guard: Guard) -> None:
    beat = asked(guard.agent, GuardVerb.BEAT)
    assert (beat.number, beat.problem) == (7, "")
    said = {"targets": (TARGET,), "limit_seconds": 5.0}
    assert asked(guard.agent, GuardVerb.FREEZE, why="fail", **said).problem == "one of them is gone"
    assert asked(guard.agent, GuardVerb.THAW, targets=(TARGET,)).problem == ""
    assert guard.keeper.did[1:] == ["freeze 5", "thaw 1"]


def test_several_lines_at_once_are_answered_each(guard: Guard) -> None:
    lines = [encode(GuardRequest(number=at, verb=GuardVerb.BEAT)) for at in (1, 2)]
    whole = b"".join(lines)
    guard.agent.sendall(whole[:-5])
    guard.agent.sendall(whole[-5:])
    answers = b""
    while answers.count(b"\n") < 2:
        answers += guard.agent.recv(LINE_BYTES)
    assert [decode(GuardAnswer, line).number for line in answers.splitlines()] == [1, 2]


@pytest.mark.parametrize("stopped", [True, False])
def test_it_looks_for_those_whose_time_is_up_while_no_one_speaks(
    guard: Guard, stopped: bool
) -> None:
    if stopped:
        guard.keeper.stopped.append("someone")
    looks, beats = guard.keeper.looks, guard.beats
    until(lambda: guard.keeper.looks >= looks + 3 and guard.beats >= beats + 3)


def test_whoever_stands_still_runs_again_when_the_agent_is_silent_for_too_long(
    guard: Guard,
) -> None:
    asked(guard.agent, GuardVerb.FREEZE, targets=(TARGET,), limit_seconds=5.0)
    guard.now += AGENT_SILENCE_S
    looks = guard.keeper.looks
    until(lambda: guard.keeper.looks >= looks + 3)
    assert guard.keeper.did[1:] == ["freeze 5"]
    guard.now += 0.5
    until(lambda: len(guard.keeper.did) > 2)
    assert guard.keeper.did[2:] == [f"no word from the agent for {AGENT_SILENCE_S:.0f} s"]


def test_every_word_of_the_agent_ends_its_silence(guard: Guard) -> None:
    asked(guard.agent, GuardVerb.FREEZE, targets=(TARGET,), limit_seconds=5.0)
    guard.now += AGENT_SILENCE_S - 1
    asked(guard.agent, GuardVerb.BEAT)
    guard.now += AGENT_SILENCE_S - 1
    looks = guard.keeper.looks
    until(lambda: guard.keeper.looks >= looks + 3)
    assert guard.keeper.did[1:] == ["freeze 5"]


def test_an_agent_that_goes_away_leaves_no_one_behind(guard: Guard) -> None:
    asked(guard.agent, GuardVerb.FREEZE, targets=(TARGET,), limit_seconds=5.0)
    guard.agent.close()
    until(lambda: "the agent went away" in guard.keeper.did)
    again = guard.connected()
    assert asked(again, GuardVerb.BEAT).problem == ""
    again.close()


def test_a_newer_agent_takes_over(guard: Guard) -> None:
    asked(guard.agent, GuardVerb.BEAT)
    newer = guard.connected()
    assert asked(newer, GuardVerb.BEAT).problem == ""
    assert guard.keeper.did[1:] == ["another agent took over"]
    assert guard.agent.recv(1) == b""
    newer.close()


def test_what_is_no_request_is_refused_and_the_next_is_served(guard: Guard) -> None:
    guard.agent.sendall(b"{}\n")
    refused = decode(GuardAnswer, guard.agent.recv(LINE_BYTES))
    assert refused.number == 0
    assert refused.problem.startswith("refused: ")
    assert asked(guard.agent, GuardVerb.BEAT).problem == ""


def flood(agent: socket.socket) -> None:
    while True:
        agent.sendall(b"x" * LINE_BYTES)


def test_an_agent_with_a_line_without_end_is_let_go(guard: Guard) -> None:
    with pytest.raises(ConnectionError):
        flood(guard.agent)
    until(lambda: "the agent went away" in guard.keeper.did)
