# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Neither side of a job's connections sends the token, nor trusts one that does not hold it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.toy_group import ToyState
from ullage_coordinator import server as coordinator_server
from ullage_coordinator import state_store
from ullage_coordinator.roster import Roster
from ullage_coordinator.state_store import StateStoreServer, Store
from ullage_run import frames
from ullage_run.backup import StateStoreLink, StateStoreRefused, StateStoreUnavailable
from ullage_run.frames import Frame, Kind, Receipt
from ullage_run.group import CoordinatorUnavailable, Group
from ullage_run.handshake import NONCE_BYTES, PROOF_BYTES, NotThisJob, Role, introduce
from ullage_run.orders import ENV_KEEPER, ENV_LEAD, ENV_MEMBER, ENV_NODE, ENV_TOKEN, Identity

TOKEN = b"token-of-this-job-0123456789abcd"
OTHER = b"token-of-another-job-0123456789a"
STATE = b"the state itself, in clear"
HELLO_BYTES = frames.HEADER_BYTES + NONCE_BYTES
MEMBER = Identity(name="m0", node="n", pool="", reliable=False)


@pytest.fixture
def server() -> Iterator[StateStoreServer]:
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


class Between:
    """Someone on the way who reads and records both directions of the connections."""

    def __init__(self, at: tuple[str, int]) -> None:
        self._at = at
        self.to_server, self.to_client = bytearray(), bytearray()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self._links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            onward = socket.create_connection(self._at)
            self._links += [client, onward]
            for source, sink, heard in (
                (client, onward, self.to_server),
                (onward, client, self.to_client),
            ):
                threading.Thread(target=self._copy, args=(source, sink, heard), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, heard: bytearray) -> None:
        try:
            while data := source.recv(4096):
                heard += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for link in (self._listening, *self._links):
            link.close()


def impostor(answer: Callable[[socket.socket], None]) -> tuple[tuple[str, int], bytearray]:
    """Serves one connection without the token; its address, and all that the client sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    heard = bytearray()

    def serve() -> None:
        with listening, listening.accept()[0] as link:
            heard.extend(link.recv(HELLO_BYTES, socket.MSG_WAITALL))
            answer(link)
            with contextlib.suppress(ConnectionResetError):
                while data := link.recv(1 << 16):
                    heard.extend(data)

    threading.Thread(target=serve, daemon=True).start()
    return listening.getsockname(), heard


def test_the_token_is_not_on_the_wire_and_the_state_is(server: StateStoreServer) -> None:
    between = Between(server.address)
    with StateStoreLink(*between.address, token=TOKEN) as owner:
        owner.begin(1, 1)
        assert owner.push(0, 1, STATE, epoch=1) is Receipt.COMMITTED
    between.close()
    assert STATE in between.to_server
    assert TOKEN not in between.to_server + between.to_client


@pytest.mark.parametrize("side", ["to_server", "to_client"])
def test_a_recorded_handshake_proves_nothing(server: StateStoreServer, side: str) -> None:
    between = Between(server.address)
    with StateStoreLink(*between.address, token=TOKEN) as owner:
        owner.held()
    between.close()
    if side == "to_server":
        with socket.create_connection(server.address, timeout=10.0) as again:
            again.sendall(between.to_server[: 2 * HELLO_BYTES])
            assert frames.payload(again, frames.receive(again), 64)
            answer = frames.receive(again)
            assert answer.kind is Kind.REFUSED
            assert b"token is not this job's" in frames.payload(again, answer, 4096)
    else:
        at, heard = impostor(lambda link: link.sendall(between.to_client))
        with pytest.raises(StateStoreRefused, match="does not prove"):
            StateStoreLink(*at, token=TOKEN).push(0, 1, STATE, epoch=1)
        assert STATE not in heard


def test_a_member_of_another_job_is_refused_and_told_so(
    server: StateStoreServer, roster: Roster
) -> None:
    store_at = server.address
    with pytest.raises(StateStoreRefused, match="another job's token") as refused:
        StateStoreLink(*store_at, token=OTHER).held()
    assert f"{store_at[0]}:{store_at[1]}" in str(refused.value)
    with pytest.raises(CoordinatorUnavailable, match="another job's token"):
        Group(roster.address, store_at, MEMBER, ToyState(), token=OTHER)
    assert roster.peers() == {}


@pytest.mark.parametrize("length", [0, 64, 65])
def test_no_state_goes_to_an_impostor(length: int) -> None:
    at, heard = impostor(lambda link: frames.send(link, Frame(kind=Kind.CHALLENGE), bytes(length)))
    with pytest.raises((StateStoreRefused, StateStoreUnavailable)):
        StateStoreLink(*at, token=TOKEN).push(0, 1, STATE, epoch=1)
    assert len(heard) == HELLO_BYTES, "nothing after the nonce"


def test_a_proof_is_not_sent_back_nor_shown_to_the_other_server(
    server: StateStoreServer, roster: Roster
) -> None:
    def reflect(link: socket.socket) -> None:
        """Answers with what the state store says to the same nonce."""
        with socket.create_connection(server.address) as real:
            real.sendall(heard)
            link.sendall(real.recv(HELLO_BYTES + PROOF_BYTES, socket.MSG_WAITALL))

    at, heard = impostor(reflect)
    with (
        socket.create_connection(at, timeout=10.0) as link,
        pytest.raises(NotThisJob, match="coordinator does not prove"),
    ):
        introduce(link, TOKEN, Role.COORDINATOR)

    with socket.create_connection(roster.address, timeout=10.0) as link:
        frames.send(link, Frame(kind=Kind.HELLO), bytes(32))
        given = frames.payload(link, frames.receive(link), 64)
        frames.send(link, Frame(kind=Kind.PROOF), given[32:])
        assert frames.receive(link).kind is Kind.REFUSED


@pytest.mark.parametrize("payload", [b"", TOKEN])
def test_an_older_version_is_refused_with_what_to_do(
    server: StateStoreServer, roster: Roster, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "VERSION", 1)
    old = frames.header(Frame(kind=Kind.HELLO), payload) + payload
    monkeypatch.undo()
    for at in (server.address, roster.address):
        with socket.create_connection(at, timeout=10.0) as link:
            link.sendall(old)
            answer = frames.receive(link)
            assert answer.kind is Kind.REFUSED
            said = bytes(frames.payload(link, answer, 4096))
            assert said == b"protocol version 1, ours is 2: use one release of both"


def test_an_older_server_is_named_and_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "VERSION", 1)
    old = frames.header(Frame(kind=Kind.REFUSED), b"")
    monkeypatch.undo()
    at, heard = impostor(lambda link: link.sendall(old))
    with pytest.raises(StateStoreUnavailable, match="protocol version 1, ours is 2"):
        StateStoreLink(*at, token=TOKEN).push(0, 1, STATE, epoch=1)
    assert TOKEN not in heard
    assert STATE not in heard
    at, _ = impostor(lambda link: link.sendall(old))
    with pytest.raises(CoordinatorUnavailable, match="protocol version 1, ours is 2"):
        Group(at, at, MEMBER, ToyState(), token=TOKEN)


def test_no_error_and_no_log_holds_a_token(
    server: StateStoreServer, roster: Roster, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for token in (OTHER, b""):
        with pytest.raises(StateStoreRefused) as refused:
            StateStoreLink(*server.address, token=token).held()
        with pytest.raises(CoordinatorUnavailable) as gone:
            Group(roster.address, server.address, MEMBER, ToyState(), token=token)
        texts += [repr(refused.value), repr(gone.value)]
    texts += capfd.readouterr()
    for token in (TOKEN, OTHER):
        assert not any(token.decode() in text for text in texts)


def test_an_empty_token_file_admits_no_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    arguments = ["--state-bytes", "1", "--token-file", str(file)]
    assert state_store.main(arguments) == 2
    assert coordinator_server.main(["--members", "1", *arguments]) == 2
    assert capsys.readouterr().err.count(f"the token file {file} is empty") == 2
    environment = {
        ENV_LEAD: "127.0.0.1:1",
        ENV_KEEPER: "127.0.0.1:1",
        ENV_MEMBER: "m0",
        ENV_NODE: "n",
        ENV_TOKEN: str(file),
    }
    with pytest.raises(ValueError, match="is empty"):
        Group.join(ToyState(), environment=environment)
