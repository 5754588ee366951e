# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The freezer's end of the socket: serves the agent, and thaws all containers without it.

An agent that disconnects, hangs or sends invalid requests never leaves a stopped container behind.
It serves one agent at a time; a newer connection replaces the older. It runs in one thread without
an event loop, which would be a third of the process's memory.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.readers import WireError
from ullage_node.guard.keeper import Keeper
from ullage_node.guard.log import Log
from ullage_node.guard.protocol import (
    LINE_BYTES,
    GuardAnswer,
    GuardRequest,
    GuardVerb,
    decode_request,
    encode,
)
from ullage_node.times import AGENT_SILENCE_S, FREEZER_TICK_S, GUARD_REST_S

_log: Final = Log(__name__)


@dataclass(slots=True, eq=False)
class _Agent:
    """The current connection and the incomplete line received on it."""

    connection: socket.socket
    rest: bytes = b""


class GuardServer:
    """Serves the socket; call :meth:`run`, which returns on the stop signal."""

    def __init__(
        self,
        path: Path,
        keeper: Keeper,
        *,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._keeper = keeper
        self._beat = beat
        self._clock = clock
        self._heard_at = clock()
        self._agent: _Agent | None = None
        self._due = time.monotonic()

    def run(self, stop: socket.socket) -> None:
        """Serve until ``stop`` is readable; then frozen tenants run again.

        Raises:
            OSError: the socket cannot be created.
        """
        self._keeper.thaw_all("the guard starts")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        with (
            socket.socket(socket.AF_UNIX) as listener,
            selectors.DefaultSelector() as selector,
        ):
            listener.bind(str(self._path))
            os.chmod(self._path, 0o600)
            listener.listen()
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ)
            selector.register(stop, selectors.EVENT_READ)
            _log.info("guard serves", socket=str(self._path))
            try:
                self._serve(selector, listener, stop)
            finally:
                if self._agent is not None:
                    self._agent.connection.close()
                self._keeper.thaw_all("the guard ends")
                self._path.unlink(missing_ok=True)

    def _serve(
        self, selector: selectors.BaseSelector, listener: socket.socket, stop: socket.socket
    ) -> None:
        while True:
            self._tick()
            patience = max(0.0, self._due - time.monotonic())
            ready = {key.fileobj for key, _ in selector.select(patience)}
            if stop in ready:
                return
            if self._agent is not None and self._agent.connection in ready:
                self._hear(selector, self._agent)
            if listener in ready:
                self._take_over(selector, listener)

    def _tick(self) -> None:
        """Do the periodic work, a few times a second, if it is due."""
        if time.monotonic() < self._due:
            return
        self._beat()
        self._keeper.thaw_overdue()
        stopped = bool(self._keeper.journal.entries())
        if self._clock() - self._heard_at > AGENT_SILENCE_S:
            self._heard_at = self._clock()
            if stopped or self._keeper.holds:
                self._keeper.thaw_all(f"no word from the agent for {AGENT_SILENCE_S:.0f} s")
        self._due = time.monotonic() + (FREEZER_TICK_S if stopped else GUARD_REST_S)

    def _take_over(self, selector: selectors.BaseSelector, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # it disconnected, or there are too many open files
            _log.warning("agent not let in", error=str(error))
            return
        if self._agent is not None:
            self._drop(selector, self._agent, "another agent took over")
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        self._agent = _Agent(connection)

    def _hear(self, selector: selectors.BaseSelector, agent: _Agent) -> None:
        try:
            there = self._exchange(agent)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            _log.warning("agent not understood", error=str(error))
            there = False
        if not there:
            self._drop(selector, agent, "the agent went away")

    def _exchange(self, agent: _Agent) -> bool:
        """Answer the received lines; true if the agent is still connected.

        Raises:
            BlockingIOError: nothing to read.
            OSError: the connection is broken, or the agent does not read its answers.
            ValueError: a line is too long.
        """
        came = agent.connection.recv(LINE_BYTES)
        *lines, agent.rest = (agent.rest + came).split(b"\n")
        for line in lines:
            answer = encode(self._answer(line))
            try:
                sent = agent.connection.send(answer)
            except BlockingIOError:
                sent = 0
            if sent < len(answer):
                raise ConnectionError("it takes no answers")
            self._tick()
        if len(agent.rest) > LINE_BYTES:
            raise ValueError(f"a line of more than {LINE_BYTES} bytes")
        return bool(came)

    def _drop(self, selector: selectors.BaseSelector, agent: _Agent, why: str) -> None:
        selector.unregister(agent.connection)
        agent.connection.close()
        self._agent = None
        self._keeper.thaw_all(why)

    def _answer(self, line: bytes) -> GuardAnswer:
        try:
            request = decode_request(line)
        except WireError as error:
            _log.error("request refused", error=str(error))
            return GuardAnswer(number=0, problem=f"refused: {error}")
        self._heard_at = self._clock()
        return GuardAnswer(number=request.number, problem=self._do(request))

    def _do(self, request: GuardRequest) -> str:
        # Blocking on purpose: nothing else may happen to a container between request and answer,
        # and every wait here ends within half a second.
        match request.verb:
            case GuardVerb.FREEZE:
                self._due = min(self._due, time.monotonic() + FREEZER_TICK_S)
                return self._keeper.freeze(request)
            case GuardVerb.THAW:
                return self._keeper.thaw(request.targets)
            case GuardVerb.LIMIT:
                return self._keeper.limit(request.limits)
            case GuardVerb.BEAT:
                return ""
