# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The program's side of a lane, against a node that a test plays line by line."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ullage.api.lanes import (
    Acquire,
    Done,
    Empty,
    Grant,
    Hello,
    InLane,
    InQueue,
    LaneRefusal,
    Message,
    Refused,
    Release,
    decode,
    encode,
)
from ullage_run import lanes
from ullage_run.times import LANE_RETRY_LEAST_S

LANE = InLane(lane=3, size_mib=300, limit_mib=400, epoch=1)


class Cache(lanes.Plain):
    """A framework that keeps memory, and notes what it is told."""

    caches = True

    def __init__(self) -> None:
        super().__init__()
        self.did: list[str] = []

    def limit(self, limit_mib: int) -> None:
        self.did.append(f"limit {limit_mib}")

    def finish(self) -> None:
        self.did.append("finish")

    def empty(self) -> None:
        self.did.append("empty")


class Node:
    """Answers in another thread: what it hears, and what it says to each message."""

    def __init__(self, path: Path, answer: Callable[[Message], list[Message] | None]) -> None:
        self.heard: list[Message] = []
        self._answer = answer
        self._path = path
        self._listener = self._listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen()
        return listener

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file:
                for line in file:
                    message = decode(line)
                    self.heard.append(message)
                    said = self._answer(message)
                    if said is None:
                        break
                    connection.sendall(b"".join(map(encode, said)))
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


Play = Callable[[Callable[[Message], list[Message] | None]], Node]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Begin a node."""
    nodes: list[Node] = []

    def begin(answer: Callable[[Message], list[Message] | None]) -> Node:
        nodes.append(Node(tmp_path / "socket", answer))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.close()


def plainly(message: Message) -> list[Message]:
    """A lane that is always free."""
    if isinstance(message, Hello):
        return [LANE]
    return [Grant(lease=7)] if isinstance(message, Acquire) else [Done()]


def join(tmp_path: Path, framework: lanes.Framework | None = None) -> lanes.Lane:
    """A program of 100 + 300 MiB."""
    return lanes.Lane(str(tmp_path / "socket"), 100, 300, framework or lanes.Plain(), 10.0)


def test_a_step_asks_runs_and_releases(tmp_path: Path, play: Play) -> None:
    node = play(plainly)
    plain = lanes.Plain()
    with join(tmp_path, plain) as lane:
        for _ in range(2):
            with lane.step():
                plain.count(90, 250)
    kinds = [type(one) for one in node.heard]
    assert kinds == [Hello, Acquire, Release, Acquire, Release]
    release = node.heard[2]
    assert isinstance(release, Release)
    assert (release.lease, release.persistent_mib, release.peak_mib) == (7, 90, 250)
    assert release.emptied
    assert lane.lane == 3


def late(answers: Callable[[Message], list[Message]]) -> Callable[[Message], list[Message]]:
    """A node that says what it thinks of the end of a step only with the next grant."""
    first, kept = True, list[Message]()

    def answer(message: Message) -> list[Message]:
        nonlocal first, kept
        said = answers(message)
        if isinstance(message, Release) and not first:
            kept = said
            return []
        first = first and not isinstance(message, Release)
        kept, said = [], kept + said
        return said

    return answer


@pytest.mark.slow
def test_a_loop_without_pauses_hears_the_end_of_a_step_with_the_next_grant(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_QUICK_S", 60.0)
    node = play(late(plainly))
    with join(tmp_path) as lane:
        for _ in range(4):
            with lane.step():
                pass
    assert [type(one) for one in node.heard].count(Release) == 4


def test_a_node_that_does_not_know_the_lease_of_the_last_step_still_grants_the_next(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_QUICK_S", 60.0)

    def forgetful(message: Message) -> list[Message]:
        if isinstance(message, Release):
            return [Refused(reason=LaneRefusal.LEASE_UNKNOWN, message="lease 7 is not the job's")]
        return plainly(message)

    play(forgetful)
    with join(tmp_path) as lane:
        for _ in range(4):
            with lane.step():
                pass


def test_a_step_beyond_what_was_declared_waits_for_what_the_node_says(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_QUICK_S", 60.0)

    def strict(message: Message) -> list[Message]:
        if isinstance(message, Release) and message.peak_mib > 300:
            return [Refused(reason=LaneRefusal.EXCEEDS_LANE, message="its lane has 300 MiB")]
        return plainly(message)

    play(strict)
    plain = lanes.Plain()
    with join(tmp_path, plain) as lane:
        for _ in range(3):
            with lane.step():
                plain.count(90, 300)
        with pytest.raises(lanes.OutOfLane, match="300 MiB"), lane.step():
            plain.count(90, 301)


def test_a_program_that_pauses_between_steps_waits_for_the_end_of_each(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_QUICK_S", -1.0)
    released = threading.Event()

    def slow(message: Message) -> list[Message]:
        if isinstance(message, Release):
            time.sleep(0.05)
            released.set()
        return plainly(message)

    play(slow)
    with join(tmp_path) as lane:
        for _ in range(2):
            released.clear()
            with lane.step():
                pass
            assert released.is_set()


def test_outside_a_lane_a_step_is_only_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ULLAGE_LANE", raising=False)
    framework = Cache()
    with lanes.join(framework).step():
        pass
    assert framework.did == []


def test_the_program_is_kept_within_its_lane(tmp_path: Path, play: Play) -> None:
    play(plainly)
    framework = Cache()
    with join(tmp_path, framework) as lane, lane.step():
        pass
    assert framework.did[:2] == ["limit 400", "finish"]


def test_memory_is_given_back_only_when_another_waits(tmp_path: Path, play: Play) -> None:
    framework = Cache()

    def answer(message: Message) -> list[Message]:
        if isinstance(message, Release) and not message.emptied:
            wanted = sum(isinstance(one, Acquire) for one in node.heard) == 2
            return [Empty(lease=7)] if wanted else [Done(kept=True)]
        return plainly(message)

    node = play(answer)
    with join(tmp_path, framework) as lane:
        with lane.step():
            pass
        assert "empty" not in framework.did
        with lane.step():
            pass
        assert framework.did.count("empty") == 1
    told = [one.emptied for one in node.heard if isinstance(one, Release)]
    assert told == [False, False, True]


def test_memory_that_was_kept_is_given_back_before_the_next_turn(
    tmp_path: Path, play: Play
) -> None:
    framework = Cache()

    def answer(message: Message) -> list[Message]:
        if isinstance(message, Acquire) and len(node.heard) > 3:
            return [Empty(lease=7), Empty(lease=7)]
        if isinstance(message, Release) and message.emptied:
            return [Grant(lease=8)]
        return [Done(kept=True)] if isinstance(message, Release) else plainly(message)

    node = play(answer)
    with join(tmp_path, framework) as lane:
        for _ in range(2):
            with lane.step():
                pass
    assert [one.lease for one in node.heard if isinstance(one, Release)] == [7, 7, 8]


def test_a_node_that_ends_in_a_step_is_greeted_with_the_lease(tmp_path: Path, play: Play) -> None:
    def answer(message: Message) -> list[Message] | None:
        hellos = sum(isinstance(one, Hello) for one in node.heard)
        if isinstance(message, Release) and hellos == 1:
            return None
        if isinstance(message, Hello):
            return [InLane(lane=3, size_mib=300, limit_mib=400, epoch=1, lease=message.lease)]
        return plainly(message)

    node = play(answer)
    with join(tmp_path) as lane, lane.step():
        pass
    first, second = (one for one in node.heard if isinstance(one, Hello))
    assert (first.lease, second.lease) == (0, 7)
    assert first.session == second.session
    assert isinstance(node.heard[-1], Release)


def test_a_job_in_the_queue_waits_for_its_lane(tmp_path: Path, play: Play) -> None:
    def answer(message: Message) -> list[Message]:
        return [InQueue(position=1), LANE] if isinstance(message, Hello) else plainly(message)

    play(answer)
    with join(tmp_path) as lane, lane.step():
        assert lane.lane == 3


def test_an_earlier_process_that_ends_makes_room(tmp_path: Path, play: Play) -> None:
    def answer(message: Message) -> list[Message]:
        if isinstance(message, Hello) and len(node.heard) == 1:
            return [Refused(reason=LaneRefusal.BUSY, message="it ends")]
        return plainly(message)

    node = play(answer)
    with join(tmp_path) as lane, lane.step():
        assert lane.lane == 3


def test_a_refusal_says_why(tmp_path: Path, play: Play) -> None:
    refused = Refused(reason=LaneRefusal.EXCEEDS_SLICE, message="too much")
    play(lambda message: [refused] if isinstance(message, Hello) else plainly(message))
    with pytest.raises(lanes.LaneRefused, match="ExceedsSlice: too much"), join(tmp_path).step():
        pass


def test_a_step_beyond_its_lane_is_out_of_memory(tmp_path: Path, play: Play) -> None:
    beyond = Refused(reason=LaneRefusal.EXCEEDS_LANE, message="400 of 300 MiB")
    play(lambda message: [beyond] if isinstance(message, Release) else plainly(message))
    with (
        join(tmp_path) as lane,
        pytest.raises(lanes.OutOfLane, match="400 of 300 MiB"),
        lane.step(),
    ):
        pass


def test_without_a_node_a_step_does_not_begin(tmp_path: Path) -> None:
    lane = lanes.Lane(str(tmp_path / "none"), 100, 300, lanes.Plain(), patience_s=0.2)
    with pytest.raises(TimeoutError), lane.step():
        pytest.fail("a step began without a turn")


def test_a_step_that_fails_ends_its_lease(tmp_path: Path, play: Play) -> None:
    node = play(plainly)
    with join(tmp_path) as lane:
        with pytest.raises(ZeroDivisionError), lane.step():
            raise ZeroDivisionError
        assert isinstance(node.heard[-1], Release)


def test_a_forked_child_holds_nothing(tmp_path: Path, play: Play) -> None:
    play(plainly)
    with join(tmp_path) as lane, lane.step():
        child = os.fork()
        if not child:
            os._exit(0 if lane._socket is None and not lane._lease else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_comes_from_the_workload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ULLAGE_LANE", str(tmp_path / "socket"))
    monkeypatch.setenv("ULLAGE_LANE_MEMORY", "128,512")
    assert lanes.join()._hello == (128, 512)
    monkeypatch.setenv("ULLAGE_LANE_MEMORY", "128,-1")
    with pytest.raises(ValueError, match="ULLAGE_LANE_MEMORY"):
        lanes.join()


def test_torch_is_capped_synchronised_and_measured() -> None:
    did: list[object] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        mem_get_info=lambda: (0, 1000 << 20),
        set_per_process_memory_fraction=did.append,
        memory_allocated=lambda: 100 << 20,
        max_memory_reserved=lambda: 350 << 20,
        reset_peak_memory_stats=lambda: did.append("reset"),
        synchronize=lambda: did.append("synchronize"),
        empty_cache=lambda: did.append("empty"),
    )
    torch = lanes.Torch(SimpleNamespace(cuda=cuda))
    torch.limit(400)
    torch.begin()
    torch.finish()
    torch.empty()
    assert did == [0.4, "reset", "synchronize", "empty"]
    assert torch.used() == (100, 250)


def test_torch_without_a_device_does_nothing() -> None:
    torch = lanes.Torch(SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    torch.limit(400)
    torch.begin()
    torch.finish()
    torch.empty()
    assert torch.used() == (0, 0)


def test_jax_waits_for_what_is_under_way() -> None:
    waited: list[str] = []
    arrays = [SimpleNamespace(block_until_ready=lambda: waited.append("ready"))]
    lanes.JAX(SimpleNamespace(live_arrays=lambda: arrays)).finish()
    assert waited == ["ready"]


def test_tries_come_apart_and_rest_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    parts: set[float] = set()
    for _ in range(20):
        slept.clear()
        pause, pauses = LANE_RETRY_LEAST_S, []
        for _ in range(8):
            pauses.append(pause)
            pause = lanes._wait(pause, None)
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert all(rest / 2 <= took <= rest for took, rest in zip(slept, pauses, strict=True))
        parts |= {took / rest for took, rest in zip(slept, pauses, strict=True)}
    assert len(parts) > 100


def test_no_try_follows_the_end_of_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    with pytest.raises(TimeoutError, match="within the patience"):
        lanes._wait(1.0, 10.0)
    assert slept == []
    lanes._wait(1.0, 10.1)
    assert len(slept) == 1
