# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Client and server of a job prove to each other that they hold its token, and never send it.

::

    client                                server
    HELLO      nonce                ->
                                    <-    CHALLENGE  nonce, proof of the server
    PROOF      proof of the client  ->

A proof is an HMAC-SHA256, keyed with the token, over the proving side, the server's role and both
nonces (challenge and response as in ISO/IEC 9798-4, three-pass mutual authentication). Each side
generates one of the nonces, so a recorded handshake cannot be replayed; role and side are included,
so a proof cannot be reflected, nor used with the other server. The token must be random: any client
that connects gets a proof and can test guesses.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from enum import Enum
from pathlib import Path
from typing import Final

from ullage_run import frames
from ullage_run.frames import Frame, FrameError, FrameKind

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
_CONTEXT: Final = b"ullage handshake %d" % frames.VERSION


class Role(Enum):
    """The servers of a job."""

    COORDINATOR = "coordinator"
    STATE_STORE = "state store"


class NotThisJob(ConnectionError):
    """The other side does not hold this job's token, or refuses; the text says which."""


def token_of(path: Path | None) -> bytes:
    """The token in a file; empty without a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is empty, which would disable authentication.
    """
    if path is None:
        return b""
    token = path.read_bytes().strip()
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return token


def introduce(link: socket.socket, token: bytes, role: Role) -> None:
    """The client's side, before anything else is sent.

    Args:
        link: A new connection.
        token: The job's token.
        role: Role of the expected server.

    Raises:
        NotThisJob: the server does not hold the token, or refuses.
        FrameError: the peer speaks another protocol or version.
        OSError: it does not answer.
    """
    mine = secrets.token_bytes(NONCE_BYTES)
    frames.send(link, Frame(kind=FrameKind.HELLO), mine)
    answer = frames.receive(link)
    if answer.kind is FrameKind.REFUSED:
        why = bytes(frames.payload(link, answer, frames.MAX_TEXT_BYTES))
        raise NotThisJob(f"the {role.value} refuses: {why.decode(errors='replace')}")
    if answer.kind is not FrameKind.CHALLENGE:
        raise FrameError(f"{answer.kind.name} is no answer to HELLO")
    given = bytes(frames.payload(link, answer, NONCE_BYTES + PROOF_BYTES))
    theirs, shown = given[:NONCE_BYTES], given[NONCE_BYTES:]
    if not hmac.compare_digest(shown, _proof(token, b"server", role, mine, theirs)):
        raise NotThisJob(
            f"the {role.value} does not prove that it holds this job's token: it is another job's, "
            "or this member has another job's token; nothing was sent to it"
        )
    frames.send(link, Frame(kind=FrameKind.PROOF), _proof(token, b"client", role, mine, theirs))


class Examination:
    """The server's side for one connection, fed with received bytes; it never waits.

    Args:
        token: The job's token.
        role: Role of this server.
    """

    def __init__(self, token: bytes, role: Role) -> None:
        self._token = token
        self._role = role
        self._raw = bytearray()
        self._theirs = b""
        self._mine = b""
        self.passed = False
        """The client has proved that it holds the token."""

    @property
    def wants(self) -> int:
        """Most bytes to read: data after the handshake are not consumed."""
        return frames.HEADER_BYTES + NONCE_BYTES - len(self._raw)

    def feed(self, data: bytes) -> bytes:
        """Process bytes of the client; returns the bytes to send, possibly none.

        Raises:
            FrameError: it violates the protocol, or does not hold the token.
        """
        self._raw += data
        if len(self._raw) < frames.HEADER_BYTES:
            return b""
        frame = frames.parse(self._raw[: frames.HEADER_BYTES])
        expected = FrameKind.PROOF if self._mine else FrameKind.HELLO
        if frame.kind is not expected:
            raise FrameError(f"{expected.name} is expected, not {frame.kind.name}")
        if frame.length != NONCE_BYTES:
            raise FrameError(f"{expected.name} has {NONCE_BYTES} bytes, not {frame.length}")
        if self.wants:
            return b""
        body = bytes(self._raw[frames.HEADER_BYTES :])
        self._raw.clear()
        frames.check(frame, body)
        return self._verify(body) if self._mine else self._challenge(body)

    def _challenge(self, nonce: bytes) -> bytes:
        self._theirs, self._mine = nonce, secrets.token_bytes(NONCE_BYTES)
        shown = _proof(self._token, b"server", self._role, self._theirs, self._mine)
        body = self._mine + shown
        return frames.header(Frame(kind=FrameKind.CHALLENGE), body) + body

    def _verify(self, shown: bytes) -> bytes:
        due = _proof(self._token, b"client", self._role, self._theirs, self._mine)
        if not hmac.compare_digest(shown, due):
            raise FrameError("the token is not this job's")
        self.passed = True
        return b""


def _proof(token: bytes, side: bytes, role: Role, client: bytes, server: bytes) -> bytes:
    message = b"\0".join((_CONTEXT, side, role.value.encode())) + b"\0" + client + server
    return hmac.digest(token, message, "sha256")
