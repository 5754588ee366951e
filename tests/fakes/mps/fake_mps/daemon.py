# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The control daemon as a process: sockets in front of the machine, signals and the pid file.

One thread and one loop; everything that decides anything is in ``machine``. State that others see
lies under the pipe directory and is reclaimed by the next daemon after a crash.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from fake_mps import wire
from fake_mps.dispatch import run_words
from fake_mps.endings import quit_daemon
from fake_mps.host import SHM_VARIABLE, FileLogs, ForkedServers, SystemClock
from fake_mps.machine import Machine, Options
from fake_mps.model import Answer, Client, ClientState, Hello, Message
from fake_mps.script import SCRIPT_VARIABLE, Script, load_script

PID_FILE = "nvidia-cuda-mps-control.pid"
ALREADY_RUNNING = "An instance of this daemon is already running"
_IDLE_S = 0.5
_HELLO_WORDS = frozenset(Hello.__slots__) - {"pid", "uid"}


class AlreadyRunning(Exception):
    """Another daemon holds the pipe directory."""


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    reader: wire.Reader
    peer: wire.Peer
    path: tuple[str | None, str]
    client: Client | None = None
    answer: Answer | None = None
    is_ui: bool = False
    clean: bool = False


class Daemon:
    """One ``nvidia-cuda-mps-control -f``."""

    def __init__(self, options: Options, script: Script, log_directory: str) -> None:
        self._options = options
        self._pipe = Path(options.pipe_directory)
        self._pipe.mkdir(parents=True, exist_ok=True)
        self._lock = (self._pipe / "control_lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise AlreadyRunning from error
        self._logs = FileLogs(log_directory, os.getpid())
        self._servers = ForkedServers(os.environ.get(SHM_VARIABLE))
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[tuple[str | None, str], socket.socket] = {}
        self._connections: list[_Connection] = []
        self.machine = Machine(
            script, options, clock=SystemClock(), processes=self._servers, logs=self._logs
        )
        self._script_seen = _script_mark()
        self._stop_asked = False
        self._listen()
        (self._pipe / PID_FILE).write_text(f"{os.getpid()}\n", encoding="ascii")

    # -- sockets ---------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Bring the sockets in line: one for the daemon, under v3 one for each namespace."""
        wanted: dict[tuple[str | None, str], Path] = {(None, "default"): self._pipe}
        if self._options.protocol == 3:
            for server in self.machine.servers.values():
                wanted[server.name, ""] = self._pipe / server.name
                for namespace in server.namespaces:
                    wanted[server.name, namespace] = self._pipe / server.name / namespace
        for key in [key for key in self._listeners if key not in wanted]:
            self._close_listener(key)
        for key, directory in wanted.items():
            if key not in self._listeners and not wire.too_long(directory / wire.SOCKET_NAME):
                self._open_listener(key, directory)

    def _open_listener(self, key: tuple[str | None, str], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / wire.SOCKET_NAME
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)
        self._listeners[key] = listener
        self._selector.register(listener, selectors.EVENT_READ, key)

    def _close_listener(self, key: tuple[str | None, str]) -> None:
        listener = self._listeners.pop(key)
        self._selector.unregister(listener)
        path = Path(listener.getsockname())
        listener.close()
        path.unlink(missing_ok=True)
        for directory in (path.parent, path.parent.parent):
            if directory != self._pipe and directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until quit, a signal or a scripted crash."""
        wake_read, wake_write = socket.socketpair()
        for end in (wake_read, wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        self._selector.register(wake_read, selectors.EVENT_READ, wake_read)
        while not self.machine.stopped:
            self._step()
        self._flush()
        self._clean_up()

    def _asked_to_stop(self, *_: object) -> None:
        self._stop_asked = True

    def _step(self) -> None:
        wait_s = self.machine.timers.wait_s
        ready = self._selector.select(_IDLE_S if wait_s is None else min(wait_s, _IDLE_S))
        self._reload_script()
        for key, _ in ready:
            if isinstance(key.data, _Connection):
                self._receive(key.data)
            elif isinstance(key.data, tuple):
                self._accept(key.data)
            elif isinstance(key.data, socket.socket):
                key.data.recv(4096)
        for pid, status in self._servers.ended():
            self.machine.server_exited(pid, status)
        if self._stop_asked:
            quit_daemon(self.machine, Answer(), None)
        self.machine.tick()
        if self.machine.crashed:
            os.kill(os.getpid(), signal.SIGKILL)
        self._listen()
        self._flush()

    def _reload_script(self) -> None:
        mark = _script_mark()
        if mark != self._script_seen:
            self._script_seen = mark
            self.machine.script = load_script(os.environ.get(SCRIPT_VARIABLE))
            self.machine.rule_uses.clear()

    def _accept(self, key: tuple[str | None, str]) -> None:
        accepted, _ = self._listeners[key].accept()
        connection = _Connection(accepted, wire.Reader(accepted), wire.peer_of(accepted), key)
        self._connections.append(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _receive(self, connection: _Connection) -> None:
        messages = connection.reader.read()
        if messages is None:
            self._drop(connection)
            return
        for message in messages:
            self._handle(connection, message)

    def _handle(self, connection: _Connection, message: Message) -> None:
        words, client = message.get("words"), connection.client
        if isinstance(words, list):
            if not connection.is_ui:
                connection.is_ui = True
                self._logs.control("Accepting connection...")
                self._logs.control("NEW UI")
            connection.answer = run_words(self.machine, words, _uid(connection, message))
        elif "do" in message:
            self.machine.do(str(message["do"]))
            connection.answer = Answer(text="")
        elif "hello" in message:
            connection.client = self.machine.connect(self._hello(connection, message))
        elif client is not None and "busy" in message:
            client.busy = bool(message["busy"])
        elif client is not None and "fault" in message:
            self.machine.client_fault(client, str(message["fault"]))
        elif "bye" in message:
            connection.clean = True

    def _hello(self, connection: _Connection, message: Message) -> Hello:
        raw = message["hello"]
        assert isinstance(raw, dict)
        given = {key: value for key, value in raw.items() if key in _HELLO_WORDS}
        given["server"] = connection.path[0]
        given["namespace"] = connection.path[1] or "default"
        return Hello(pid=connection.peer.pid, uid=_uid(connection, raw), **given)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.remove(connection)
        if connection.is_ui:
            self._logs.control("UI closed")
        if connection.client is not None and connection.client.state is not ClientState.GONE:
            self.machine.disconnect(connection.client, clean=connection.clean)

    def _flush(self) -> None:
        for connection in list(self._connections):
            try:
                self._send_news(connection)
            except (BrokenPipeError, ConnectionResetError):
                continue  # the next read sees the end and drops it

    def _send_news(self, connection: _Connection) -> None:
        answer, client = connection.answer, connection.client
        if answer is not None and answer.text is not None:
            connection.answer = None
            if answer.text and connection.is_ui:
                for line in answer.text.splitlines():
                    self._logs.control(line)
            wire.send(connection.socket, {"text": answer.text, "exit": answer.exit_code})
        while client is not None and client.inbox:
            wire.send(connection.socket, client.inbox.pop(0))

    def abandon(self) -> None:
        """Stop before having served."""
        quit_daemon(self.machine, Answer(), None)
        self._clean_up()

    def _clean_up(self) -> None:
        for connection in self._connections:
            connection.socket.close()
        for key in list(self._listeners):
            self._close_listener(key)
        (self._pipe / PID_FILE).unlink(missing_ok=True)
        self._servers.unshare()
        self._lock.close()


def _uid(connection: _Connection, message: Message) -> int:
    claimed = message.get("claimed_uid")
    return claimed if isinstance(claimed, int) else connection.peer.uid


def _script_mark() -> tuple[int, int] | None:
    path = os.environ.get(SCRIPT_VARIABLE)
    if not path:
        return None
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
