# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Owners and state store over real sockets, in a process of its own where that matters."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage_coordinator.state_store import StateStoreServer, Store
from ullage_run import frames
from ullage_run.backup import (
    Backup,
    EpochChanged,
    NothingHeld,
    StateStoreLink,
    StateStoreRefused,
    StateStoreUnavailable,
    StateTooLarge,
)
from ullage_run.frames import Frame, FrameError, Kind, Pace, Receipt
from ullage_run.handshake import Role, introduce

BYTES = 1_000_000


@pytest.fixture
def state_store() -> Iterator[StateStoreServer]:
    made = StateStoreServer(Store(BYTES), token=b"secret", most_links=4)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.close()
    thread.join()


OPENED: list[StateStoreLink] = []


@pytest.fixture(autouse=True)
def _links_are_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def to(address: tuple[str, int], **fields: object) -> StateStoreLink:
    made = StateStoreLink(*address, **({"timeout_s": 20.0} | fields))  # type: ignore[arg-type]
    OPENED.append(made)
    return made


def link(state_store: StateStoreServer, **fields: object) -> StateStoreLink:
    return to(state_store.address, **({"token": b"secret"} | fields))


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    command = [sys.executable, "-m", "ullage_coordinator.state_store", "--state-bytes", str(BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        word, host, port = child.stdout.readline().split()
        assert word == "listening"
        yield child, (host, int(port))
        child.kill()


def test_a_state_survives_its_owner(
    process: tuple[subprocess.Popen[str], tuple[str, int]],
) -> None:
    child, address = process
    owner = to(address)
    owner.begin(1, 2)
    data = bytes(range(256)) * 1500
    assert owner.push(0, 7, data, epoch=1) is Receipt.STORED
    assert owner.push(1, 7, b"", epoch=1) is Receipt.COMMITTED
    owner.close()
    heir = to(address)
    assert heir.held().committed == 7
    found = heir.recover(0)
    assert (found.step, found.epoch, found.data) == (7, 1, data)
    assert heir.recover(1).data == b""
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


def test_the_keeper_remembers_the_maps_for_who_leads_the_job(state_store: StateStoreServer) -> None:
    first = link(state_store)
    assert first.maps() == (0, b"")
    first.begin(3, 1, b"who owns what")
    first.begin(2, 1, b"too late")
    assert link(state_store).maps() == (3, b"who owns what")
    with pytest.raises((StateStoreRefused, StateStoreUnavailable)):
        first.begin(4, 1, bytes(frames.MAX_MAPS_BYTES + 1))
    assert link(state_store).maps()[0] == 3


def test_a_killed_keeper_is_named(process: tuple[subprocess.Popen[str], tuple[str, int]]) -> None:
    child, address = process
    owner = to(address)
    owner.begin(1, 1)
    child.kill()
    child.wait()
    with pytest.raises(StateStoreUnavailable, match=f"{address[0]}:{address[1]} does not answer"):
        owner.push(0, 1, b"x", epoch=1)


def test_a_link_that_broke_is_opened_again(state_store: StateStoreServer) -> None:
    owner = link(state_store)
    owner.begin(1, 1)
    for inner in list(state_store._links):
        inner.shutdown(socket.SHUT_RDWR)
    assert owner.push(0, 1, b"x", epoch=1) is Receipt.COMMITTED
    assert owner.push(0, 1, b"x", epoch=1) is Receipt.REPEATED


def test_strangers_and_too_large_states_are_refused(state_store: StateStoreServer) -> None:
    with pytest.raises(StateStoreRefused, match="token"):
        link(state_store, token=b"guess").held()
    owner = link(state_store)
    owner.begin(1, 1)
    with pytest.raises(StateTooLarge, match=rf"limit is {BYTES} bytes; raise .*stateBytes"):
        owner.push(0, 1, bytes(BYTES + 1), epoch=1)
    with pytest.raises(StateStoreRefused, match="shard 5 of 1"):
        owner.push(5, 1, b"x", epoch=1)
    with pytest.raises(NothingHeld, match="no complete copy"):
        owner.recover(0)


def test_more_peers_than_allowed_are_told_so(state_store: StateStoreServer) -> None:
    links = [link(state_store) for _ in range(5)]
    for one in links[:4]:
        one.held()
    with pytest.raises((StateStoreRefused, StateStoreUnavailable)):
        links[4].held()


def test_an_owner_that_dies_while_it_pushes_leaves_the_last_step(
    state_store: StateStoreServer,
) -> None:
    owner = link(state_store)
    owner.begin(1, 1)
    owner.push(0, 1, b"whole", epoch=1)
    with socket.create_connection(state_store.address) as dying:
        introduce(dying, b"secret", Role.STATE_STORE)
        frames.receive(dying)
        frames.send(
            dying, Frame(kind=Kind.OFFER, shard=0, step=2, epoch=1), (500).to_bytes(8, "big")
        )
        assert frames.receive(dying).flags == Receipt.GO
        dying.sendall(b"half")
    assert owner.recover(0).data == b"whole"
    assert owner.push(0, 2, b"again", epoch=1) is Receipt.COMMITTED  # the room was given back
    assert owner.recover(0).data == b"again"


def test_changed_bytes_are_never_kept(state_store: StateStoreServer) -> None:
    owner = link(state_store)
    owner.begin(1, 1)
    with socket.create_connection(state_store.address) as liar:
        introduce(liar, b"secret", Role.STATE_STORE)
        frames.receive(liar)
        offered = Frame(kind=Kind.OFFER, shard=0, step=2, epoch=1)
        frames.send(liar, offered, (4).to_bytes(8, "big"))
        frames.receive(liar)
        left, right = socket.socketpair()
        with left, right:
            frames.send(left, Frame(kind=Kind.PUSH, shard=0, step=2, epoch=1), b"true")
            raw = bytearray(right.recv(4096))
        raw[-1] ^= 1
        liar.sendall(raw)
        refused = frames.receive(liar)
        assert refused.kind is Kind.REFUSED
        assert b"checksum" in frames.payload(liar, refused, 4096)
    assert owner.held().committed is None


def test_foreign_bytes_and_huge_claims_are_no_messages() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"GET / HTTP/1.1\r\nHost: keeper\r\n\r\n" + bytes(60))
        with pytest.raises(FrameError, match="protocol"):
            frames.receive(right)
    left, right = socket.socketpair()
    with left, right:
        frames.send(left, Frame(kind=Kind.STATE), b"12345")
        with pytest.raises(FrameError, match="5 bytes are announced, 4 are allowed"):
            frames.payload(right, frames.receive(right), 4)
        left.close()
        with pytest.raises(ConnectionError, match="closed"):
            frames.receive(right)


def test_the_rate_is_kept_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    pace = Pace(1000.0)
    for _ in range(8):
        pace.sent(250)
    assert sum(slept) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="above 0"):
        Pace(0)


def test_the_job_never_runs_further_ahead_than_the_lag(state_store: StateStoreServer) -> None:
    link(state_store).begin(1, 2)
    first = Backup(link(state_store), epoch=1, max_lag_steps=2, patience_s=0.3)
    first.push(1, {0: b"a1"})
    first.push(2, {0: b"a2"})
    with pytest.raises(StateStoreUnavailable):  # no one pushes shard 1
        first.push(3, {0: b"a3"})
    first.close()


def test_the_lag_holds_across_new_maps(state_store: StateStoreServer) -> None:
    link(state_store).begin(1, 2)
    near = Backup(link(state_store), epoch=1, committed=5, max_lag_steps=2, patience_s=0.3)
    near.push(6, {0: b"a6"})
    near.push(7, {0: b"a7"})
    with pytest.raises(StateStoreUnavailable):  # step 6 is not complete under these maps
        near.push(8, {0: b"a8"})
    near.close()
    far = Backup(link(state_store), epoch=1, committed=3, max_lag_steps=2, patience_s=0.3)
    with pytest.raises(StateStoreUnavailable):  # steps 4 and 5 were dropped with the old maps
        far.push(6, {0: b"a6"})
    far.close()


@pytest.mark.slow
def test_closing_breaks_off_a_slow_push_and_tells_who_waits(state_store: StateStoreServer) -> None:
    link(state_store).begin(1, 1)
    owner = Backup(link(state_store, bytes_per_s=1e5), epoch=1, max_lag_steps=1, patience_s=1e4)
    owner.push(1, {0: bytes(BYTES)})  # takes ten seconds
    told: list[str] = []

    def wait() -> None:
        with pytest.raises(EpochChanged) as raised:
            owner.push(2, {0: bytes(BYTES)})
        told.append(str(raised.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    owner.close()
    waiting.join()
    assert told == ["epoch 1 was given up"]


def test_a_link_that_is_broken_off_while_it_connects_sends_nothing(
    state_store: StateStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = link(state_store)
    connect = socket.create_connection

    def broken_off(*where: object) -> socket.socket:
        owner.abort()
        return connect(*where)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "create_connection", broken_off)
    with pytest.raises(StateStoreUnavailable, match="broken off"):
        owner.begin(1, 1)
    monkeypatch.undo()
    assert link(state_store).held().epoch == 0


def test_two_owners_commit_together_and_flush(state_store: StateStoreServer) -> None:
    link(state_store).begin(1, 2)
    owners = [Backup(link(state_store), epoch=1, every_steps=2, max_lag_steps=3) for _ in range(2)]
    for step in range(1, 10):
        for number, owner in enumerate(owners):
            owner.push(step, {number: bytes([step])})
            if owner.committed is not None:
                assert step - owner.committed <= 3 + 1
    assert [owner.flush() for owner in owners] == [8, 8]
    assert link(state_store).recover(1).data == bytes([8])
    for owner in owners:
        owner.close()


def test_an_owner_of_old_maps_is_told(state_store: StateStoreServer) -> None:
    controller = link(state_store)
    controller.begin(1, 1)
    owner = Backup(link(state_store), epoch=1)
    owner.push(1, {0: b"1"})
    owner.flush()
    controller.begin(2, 1)
    owner.push(2, {0: b"2"})
    with pytest.raises(EpochChanged, match="epoch"):
        owner.flush()
    owner.close()
    assert controller.recover(0).step == 1


def test_a_lag_shorter_than_the_interval_is_refused(state_store: StateStoreServer) -> None:
    with pytest.raises(ValueError, match="not due"):
        Backup(link(state_store), epoch=1, every_steps=3, max_lag_steps=2)


def test_a_keeper_that_cannot_listen_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    command = [sys.executable, "-m", "ullage_coordinator.state_store", "--state-bytes", "9"]
    done = subprocess.run(
        [*command, "--token-file", str(missing)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert str(missing) in done.stderr
