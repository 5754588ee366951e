# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Agent, guard and watchdog die, hang or talk nonsense: whoever stands still runs again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.real_freezer import FreezerBench, TickingPod
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.protocol import (
    SOCKET,
    GuardAnswer,
    GuardRequest,
    GuardVerb,
    decode,
    encode,
    guard_socket,
)
from ullage_node.guard.server import GuardServer
from ullage_node.guard.watchdog import watch

SPEAKS_FIRST_SECONDS = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard on a busy machine may take longer to answer than an agent waits on a node."""
    monkeypatch.setattr("ullage_node.guard.client.FREEZER_S", 60.0)


@asynccontextmanager
async def serving(bench: FreezerBench, clock: list[float] | None = None) -> AsyncIterator[Path]:
    """A guard in this process; ``clock`` replaces its monotonic clock."""
    path, (stop, told) = bench.scratch / SOCKET, socket.socketpair()
    server = GuardServer(path, bench.keeper, clock=(lambda: clock[0]) if clock else time.monotonic)
    task = asyncio.create_task(asyncio.to_thread(server.run, stop))
    while not listens(path):
        await asyncio.sleep(0.005)
    try:
        yield path
    finally:
        told.send(b".")
        await task
        stop.close()
        told.close()


def listens(path: Path) -> bool:
    """Whether a socket takes connections; its file is there a moment before."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return any(line.endswith(f" {path}") and line.split()[3] == "00010000" for line in lines)


async def runs_again(pod: TickingPod) -> None:
    await asyncio.to_thread(pod.wait_for_ticks)


async def test_agent_and_guard_over_the_socket(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    async with serving(one_bench, clock=[0.0]) as path:  # no silence, however long a word takes
        assert os.stat(path).st_mode & 0o777 == 0o600
        client = FreezerClient(path)
        assert await client.beat() == ""
        assert await client.freeze([pod.target], 5.0, "test") == ""
        assert pod.stands_still()
        assert await client.thaw([pod.target]) == ""
        await runs_again(pod)
        client.close()
    assert not path.exists()


async def test_an_agent_that_goes_away_leaves_no_one_frozen(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    async with serving(one_bench) as path:
        client = FreezerClient(path)
        assert await client.freeze([pod.target], 10.0, "test") == ""
        client.close()
        await runs_again(pod)


async def test_an_agent_that_falls_silent_leaves_no_one_frozen(one_bench: FreezerBench) -> None:
    pod, clock = one_bench.pod(), [1000.0]
    async with serving(one_bench, clock) as path:
        client = FreezerClient(path)
        assert await client.freeze([pod.target], 10.0, "test") == ""
        clock[0] += 10.1
        await runs_again(pod)
        client.close()


async def test_a_second_agent_takes_over_from_the_first(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    async with serving(one_bench) as path:
        first, second = FreezerClient(path), FreezerClient(path)
        assert await first.freeze([pod.target], 10.0, "test") == ""
        assert await second.beat() == ""
        await runs_again(pod)
        assert "cannot be reached" in await first.beat()
        second.close()


async def test_the_limit_holds_whatever_the_agent_does(one_bench: FreezerBench) -> None:
    pod, now = one_bench.pod(), [time.monotonic()]
    one_bench.keeper = replace(one_bench.keeper, clock=lambda: now[0])
    async with serving(one_bench, clock=[0.0]) as path:
        client = FreezerClient(path)
        assert await client.freeze([pod.target], 0.3, "test") == ""
        assert pod.stands_still()
        now[0] += 0.31
        await runs_again(pod)
        client.close()
        async with asyncio.timeout(10):  # it is noted after the pod runs
            while one_bench.keeper.journal.entries():
                await asyncio.sleep(0.01)


async def test_nonsense_is_refused_and_the_next_word_heard(one_bench: FreezerBench) -> None:
    async with serving(one_bench) as path:
        client = FreezerClient(path)
        assert "refused" in await client.freeze([], 5.0, "no one")
        assert "refused" in await client.freeze([one_bench.pod().target], 60.0, "too long")
        assert await client.beat() == ""
        client.close()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x" * 200_000)
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        writer.close()
        assert await client.beat() == ""
        client.close()


async def test_words_that_come_in_pieces_or_together_are_each_answered(
    one_bench: FreezerBench,
) -> None:
    words = b"".join(encode(GuardRequest(verb=GuardVerb.BEAT, number=n)) for n in range(1, 4))
    async with serving(one_bench) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        for piece in (words[:10], words[10:-5], words[-5:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        answers = [decode(GuardAnswer, await reader.readline()) for _ in range(3)]
        assert [(one.number, one.problem) for one in answers] == [(1, ""), (2, ""), (3, "")]
        writer.close()


async def test_an_agent_that_takes_no_answers_leaves_no_one_frozen(
    one_bench: FreezerBench,
) -> None:
    pod = one_bench.pod()
    freeze = GuardRequest(
        verb=GuardVerb.FREEZE, number=1, targets=(pod.target,), limit_seconds=10.0
    )
    nonsense = b"{}\n" * 20_000
    async with serving(one_bench) as path:
        reader, writer = await asyncio.open_unix_connection(path, limit=1)
        writer.write(encode(freeze))
        assert await reader.read(1)
        assert pod.stands_still()
        writer.transport.pause_reading()
        with suppress(ConnectionError):
            for _ in range(100):
                writer.write(nonsense)
                await writer.drain()
        await runs_again(pod)
        writer.close()


async def test_a_guard_that_is_away_is_a_text_and_no_error(tmp_path: Path) -> None:
    client = FreezerClient(tmp_path / "no one.sock")
    assert "cannot be reached" in await client.beat()
    assert not client.connected
    client.close()


async def test_a_guard_that_starts_thaws_what_an_earlier_one_left(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    request = GuardRequest(
        verb=GuardVerb.FREEZE, number=1, targets=(pod.target,), limit_seconds=10.0
    )
    assert one_bench.keeper.freeze(request) == ""
    async with serving(one_bench):
        await runs_again(pod)


# -- the process ---------------------------------------------------------------------------------


@pytest.fixture
def guard(one_bench: FreezerBench) -> Iterator[subprocess.Popen[bytes]]:
    """``ullage-node guard`` as the chart starts it."""
    one_bench.keeper = replace(
        one_bench.keeper,
        journal=replace(one_bench.keeper.journal, folder=one_bench.scratch / "guard" / "frozen"),
    )
    environment = os.environ | {
        "ULLAGE_NODE_NAME": "here",
        "ULLAGE_NODE_PATHS_RUN_DIR": str(one_bench.scratch),
        "ULLAGE_NODE_PATHS_CGROUP_ROOT": str(one_bench.root),
    }
    program = "from ullage_node.main import run; run(['guard'])"
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    socket, deadline = guard_socket(one_bench.scratch), time.monotonic() + SPEAKS_FIRST_SECONDS
    while not socket.exists():
        assert process.poll() is None, "the guard did not start"
        assert time.monotonic() < deadline, "the guard does not serve"
        time.sleep(0.02)
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def child_of(watchdog: subprocess.Popen[bytes]) -> int:
    """The process that freezes; the one that was started watches it."""
    children = Path(f"/proc/{watchdog.pid}/task/{watchdog.pid}/children").read_text().split()
    (child,) = map(int, children)
    return child


@asynccontextmanager
async def frozen_by(
    guard: subprocess.Popen[bytes], bench: FreezerBench
) -> AsyncIterator[TickingPod]:
    """A pod that the process stopped, with the agent still connected."""
    pod = bench.pod()
    client = FreezerClient(guard_socket(bench.scratch))
    assert await client.freeze([pod.target], 10.0, "test") == ""
    assert pod.stands_still()
    yield pod
    client.close()
    await asyncio.sleep(0)


async def test_a_killed_guard_leaves_no_one_frozen_and_its_container_ends(
    guard: subprocess.Popen[bytes], one_bench: FreezerBench
) -> None:
    async with frozen_by(guard, one_bench) as pod:
        os.kill(child_of(guard), signal.SIGKILL)
        await runs_again(pod)
        assert await asyncio.to_thread(guard.wait, 60) != 0


async def test_a_terminated_guard_leaves_no_one_frozen_and_ends_well(
    guard: subprocess.Popen[bytes], one_bench: FreezerBench
) -> None:
    async with frozen_by(guard, one_bench) as pod:
        os.kill(guard.pid, signal.SIGTERM)
        await runs_again(pod)
        assert await asyncio.to_thread(guard.wait, 60) == 0


async def test_without_its_watchdog_the_guard_thaws_and_ends(
    guard: subprocess.Popen[bytes], one_bench: FreezerBench
) -> None:
    child = child_of(guard)
    async with frozen_by(guard, one_bench) as pod:
        os.kill(guard.pid, signal.SIGKILL)
        await runs_again(pod)
        await asyncio.to_thread(gone, child)


def gone(pid: int) -> None:
    """Wait until a process that is no child of ours has ended."""
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, f"{pid} goes on"
        time.sleep(0.02)


def test_a_guard_that_hangs_is_ended_once_everyone_runs(one_bench: FreezerBench) -> None:
    pod = one_bench.pod()
    request = GuardRequest(
        verb=GuardVerb.FREEZE, number=1, targets=(pod.target,), limit_seconds=10.0
    )
    assert one_bench.keeper.freeze(request) == ""
    here, there = os.pipe()
    ended: list[bool] = []
    try:
        code = watch(
            here,
            one_bench.keeper,
            end_guard=lambda: ended.append(one_bench.keeper.journal.entries() == ()),
            silence_seconds=0.1,
        )
    finally:
        os.close(here)
        os.close(there)
    assert (code, ended) == (0, [True])
    pod.wait_for_ticks()
