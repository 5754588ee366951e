# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Silent, slow and wild peers at a coordinator's ports: others are served, nothing grows."""

from __future__ import annotations

import contextlib
import errno
import http.client
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from fakes import wild
from ullage_coordinator import doorway
from ullage_coordinator.doorway import MOST_STRANGERS
from ullage_coordinator.roster import Roster
from ullage_coordinator.state_store import StateStoreServer, Store
from ullage_coordinator.status import MOST_ASKERS, StatusServer
from ullage_run import frames
from ullage_run.frames import Frame, Kind
from ullage_run.handshake import NONCE_BYTES, Role, introduce
from ullage_run.orders import MAX_ORDER_BYTES, Identity

TOKEN = b"t" * 32
SERVERS = ["state_store", "roster"]
ROLES = {"state_store": Role.STATE_STORE, "roster": Role.COORDINATOR}
FLOOD = 400
NUMBERS = itertools.count()


@pytest.fixture
def state_store() -> Iterator[StateStoreServer]:
    made = StateStoreServer(Store(1 << 20), token=TOKEN)
    serving = threading.Thread(target=made.serve, daemon=True)
    serving.start()
    yield made
    made.close()
    serving.join(5.0)


@pytest.fixture
def roster() -> Iterator[Roster]:
    made = Roster(("127.0.0.1", 0), token=TOKEN, silent_s=30.0)
    yield made
    made.close()


def address(server: str, request: pytest.FixtureRequest) -> tuple[str, int]:
    found: tuple[str, int] = request.getfixturevalue(server).address
    return found


def connect(at: tuple[str, int]) -> socket.socket:
    return socket.create_connection(at, timeout=10.0)


def greet(server: str, at: tuple[str, int], token: bytes = TOKEN) -> socket.socket:
    """A member as it should be."""
    link = connect(at)
    introduce(link, token, ROLES[server])
    return link


def is_served(server: str, at: tuple[str, int], request: pytest.FixtureRequest) -> None:
    """A member with the token is served now."""
    link = greet(server, at)
    if server == "state_store":
        assert frames.receive(link).kind is Kind.HELD
    else:
        made: Roster = request.getfixturevalue("roster")
        name = f"served-{next(NUMBERS)}"
        join(link, name)
        while (said := made.hear(20.0)) is not None and said.name != name:
            continue
        assert said is not None
    link.close()


def join(link: socket.socket, name: str = "m0") -> None:
    who = Identity(name=name, node="n", pool="", reliable=False)
    frames.send(link, Frame(kind=Kind.JOIN), who.encode())


@pytest.mark.parametrize("server", SERVERS)
def test_silent_strangers_cost_no_thread_and_keep_no_one_off(
    server: str, request: pytest.FixtureRequest
) -> None:
    at, before = address(server, request), threading.active_count()
    most = before
    silent = []
    for _ in range(FLOOD):
        silent.append(connect(at))
        most = max(most, threading.active_count())
    link = greet(server, at)
    assert most == before, "strangers have no threads"
    link.close()
    is_served(server, at, request)
    for link in silent:
        link.close()


@pytest.mark.parametrize("server", SERVERS)
def test_who_is_silent_for_too_long_is_closed(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = address(server, request)
    made = request.getfixturevalue(server)
    monkeypatch.setattr(made._doorway, "_limit_s", 0.2)
    silent, slow = connect(at), connect(at)
    assert silent.recv(1) == b""
    with contextlib.suppress(OSError):
        slow.sendall(b"U")
        assert slow.recv(1) == b""
    is_served(server, at, request)
    silent.close()
    slow.close()


@pytest.mark.parametrize("server", SERVERS)
def test_slow_strangers_hold_no_more_than_silent_ones(
    server: str, request: pytest.FixtureRequest
) -> None:
    at = address(server, request)
    slow = [connect(at) for _ in range(2 * MOST_STRANGERS)]
    for link in slow:
        with contextlib.suppress(OSError):
            link.sendall(b"U")
    is_served(server, at, request)
    for link in slow:
        link.close()


@pytest.mark.parametrize("server", SERVERS)
def test_a_wrong_token_is_refused_before_anything_is_reserved(
    server: str, request: pytest.FixtureRequest
) -> None:
    at = address(server, request)
    for nonce in (bytes(NONCE_BYTES), b"n" * NONCE_BYTES):
        link = connect(at)
        frames.send(link, Frame(kind=Kind.HELLO), nonce)
        frames.payload(link, frames.receive(link), 64)
        frames.send(link, Frame(kind=Kind.PROOF), nonce)
        assert "the token is not this job's" in refusal(link)
    link = connect(at)
    head = Frame(kind=Kind.HELLO)
    raw = frames._HEADER.pack(frames.MAGIC, frames.VERSION, head.kind, 0, 0, 0, -1, 2**60, 0)
    link.sendall(raw + frames._CHECK.pack(frames.zlib.crc32(raw)))
    assert "HELLO has 32 bytes" in refusal(link), "a nonce of an exabyte is not waited for"
    is_served(server, at, request)


def refusal(link: socket.socket) -> str:
    """The text with which a server ends a connection."""
    answer = frames.receive(link)
    assert answer.kind is Kind.REFUSED
    said = bytes(frames.payload(link, answer, frames.MAX_TEXT_BYTES)).decode()
    assert link.recv(1) == b""
    link.close()
    return said


@pytest.mark.parametrize("server", SERVERS)
def test_wild_frames_end_their_own_connection_at_most(
    server: str, request: pytest.FixtureRequest
) -> None:
    at = address(server, request)
    for seed in wild.seeds(150):
        dice = random.Random(seed)
        link = greet(server, at) if dice.random() < 0.7 else connect(at)
        with contextlib.suppress(OSError):
            if server == "roster" and dice.random() < 0.5:
                join(link, f"wild-{seed}")
            for _ in range(dice.randrange(6)):
                link.sendall(wild_frame(dice))
        link.close()
        if seed % 50 == 0:
            is_served(server, at, request)
    is_served(server, at, request)


@pytest.mark.parametrize(("kind", "heard"), [(Kind.PART, True), (Kind.DONE, False)])
def test_only_parts_are_large(roster: Roster, kind: Kind, heard: bool) -> None:
    link = greet("roster", roster.address)
    join(link)
    assert roster.hear(20.0) is not None
    with contextlib.suppress(OSError):
        frames.send(link, Frame(kind=kind), bytes(MAX_ORDER_BYTES + 1))
    said = roster.hear(20.0)
    assert said is not None
    assert len(said.data) == (MAX_ORDER_BYTES + 1 if heard else 0)
    assert (said.frame is None) is not heard  # who says too much is gone
    link.close()


def wild_frame(dice: random.Random) -> bytes:
    """A frame that is right in one part and wrong in another."""
    data = dice.choice((b"", b"{}", b"[" * 5000, b"9" * 5000, dice.randbytes(dice.randrange(300))))
    length = dice.choice((len(data), len(data) + 1, 0, 2**40, 2**63))
    raw = frames._HEADER.pack(
        frames.MAGIC if dice.random() < 0.9 else dice.randbytes(4),
        dice.choice((frames.VERSION, frames.VERSION, frames.VERSION, 1, 255)),
        dice.choice([*Kind, 0, 99, 255]),
        dice.randrange(2**16),
        dice.choice((0, 1, 2**32 - 1)),
        dice.choice((0, 1, 2**64 - 1)),
        dice.choice((-1, 0, 1, 2**63 - 1, -(2**63))),
        length,
        frames.zlib.crc32(data) if dice.random() < 0.8 else 0,
    )
    check = frames.zlib.crc32(raw) if dice.random() < 0.9 else 0
    return raw + frames._CHECK.pack(check) + data


@pytest.mark.parametrize("server", SERVERS)
def test_a_failed_accept_ends_no_server(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = address(server, request)
    failing = iter([errno.EMFILE, errno.ECONNABORTED, errno.ENOMEM])
    real = socket.socket.accept

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        for number in failing:
            raise OSError(number, "accept failed")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    for _ in range(5):
        is_served(server, at, request)


def test_a_fault_over_a_push_gives_its_room_back(
    state_store: StateStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = frames.payload

    def payload(
        link: socket.socket, frame: Frame, most: int, pace: frames.Pace = frames.UNPACED
    ) -> bytearray:
        if frame.kind is Kind.PUSH:
            raise MemoryError
        return real(link, frame, most, pace)

    monkeypatch.setattr(frames, "payload", payload)
    state_store._store.begin(1, 1)
    for _ in range(3):
        link = greet("state_store", state_store.address)
        assert frames.receive(link).kind is Kind.HELD
        offer = Frame(kind=Kind.OFFER, shard=0, step=1, epoch=1)
        frames.send(link, offer, (5).to_bytes(8, "big"))
        verdict = frames.receive(link)
        assert (verdict.kind, verdict.flags) == (Kind.VERDICT, frames.Receipt.GO)
        frames.send(link, Frame(kind=Kind.PUSH, shard=0, step=1, epoch=1), b"12345")
        assert frames.receive(link).kind is Kind.REFUSED
        link.close()


@pytest.mark.slow
def test_whoever_asks_for_the_status_is_answered_beside_silent_ones() -> None:
    status_server = StatusServer(("127.0.0.1", 0), lambda: {"step": 7})
    before = threading.active_count()
    most, silent = before, []
    for _ in range(FLOOD):
        silent.append(connect(status_server.address))
        most = max(most, threading.active_count())
    asked = http.client.HTTPConnection(*status_server.address, timeout=10.0)
    asked.request("GET", "/status")
    assert json.loads(asked.getresponse().read()) == {"step": 7}
    assert max(most, threading.active_count()) - before <= MOST_ASKERS + 1
    for link in silent:
        link.close()
    status_server.close()


def test_a_server_that_was_closed_serves_no_one() -> None:
    made = StateStoreServer(Store(1 << 20), token=TOKEN)
    made.close()
    made.serve()


def test_the_oldest_stranger_goes_first() -> None:
    door = doorway.Doorway(most=2)
    pairs = [socket.socketpair() for _ in range(3)]
    for ours, _ in pairs:
        door.enter(ours)
    assert pairs[0][1].recv(1) == b""
    door.known(pairs[1][0])
    door.enter(pairs[0][0])
    assert door.turned_away == 1
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
