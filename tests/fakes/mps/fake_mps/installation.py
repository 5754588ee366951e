# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes for tests: a daemon in the foreground, command calls and clients, in one folder.

Works on the fake and, given other programs, on the real binaries. Everything started here is
ended by ``close``; nothing waits longer than it is told to.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fake_mps import wire
from fake_mps.hardware import DEFAULT_UUID
from fake_mps.model import Message
from fake_mps.script import SCRIPT_VARIABLE

BIN = Path(__file__).resolve().parent.parent / "bin"
_PYTHON = (sys.executable, "-IS")  # straight, without a search for python3 on PATH
CONTROL = (*_PYTHON, str(BIN / "nvidia-cuda-mps-control"))
CLIENT = (*_PYTHON, str(BIN / "fake_cuda_client"))
_PATIENCE_S = 60.0


class RunningClient:
    """A client process and what it has reported."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        assert process.stdout is not None
        self._output = process.stdout
        self._selector.register(self._output, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """The PID of the first process."""
        return self.process.pid

    def report(self, timeout_s: float = _PATIENCE_S) -> Message:
        """The next line it prints.

        Raises:
            TimeoutError: none came in time.
            EOFError: it ended without another.
        """
        end_s = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not self._selector.select(max(0.0, end_s - time.monotonic())):
                raise TimeoutError(f"client {self.pid} said nothing for {timeout_s} s")
            chunk = os.read(self._output.fileno(), 65536)
            if not chunk:
                raise EOFError(f"client {self.pid} ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def order(self, words: str) -> None:
        """Tell it something: exit, busy, idle, fault [ERROR], allocate MIB."""
        assert self.process.stdin is not None
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()

    def leave(self) -> int:
        """Ask it to leave in order; gives its exit status."""
        self.process.terminate()
        return self.process.wait(_PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL, as a container runtime does it."""
        self.process.kill()
        self.process.wait(_PATIENCE_S)

    def close(self) -> None:
        """Leave nothing behind, the other processes of a pod neither."""
        with contextlib.suppress(ProcessLookupError):  # the whole group ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_PATIENCE_S)
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Installation:
    """One GPU's pipe and log directories and the processes around them."""

    def __init__(
        self,
        root: Path,
        *,
        script: Mapping[str, object] | None = None,
        gpu: str | None = DEFAULT_UUID,
        control: Sequence[str] = CONTROL,
        client: Sequence[str] = CLIENT,
    ) -> None:
        self.root = root
        self.pipe = root / "p"
        self.log = root / "l"
        self.script_file = root / "script.json"
        self._control = list(control)
        self._client = list(client)
        self._clients: list[RunningClient] = []
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environ = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
            SCRIPT_VARIABLE: str(self.script_file),
        }
        self.daemon_environ = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self.write_script(script or {})

    def write_script(self, script: Mapping[str, object]) -> None:
        """Replace the script in one step; a running daemon reads it at its next move."""
        fresh = self.script_file.with_suffix(".new")
        fresh.write_text(json.dumps(script), encoding="utf-8")
        fresh.replace(self.script_file)

    # -- daemon ----------------------------------------------------------------------------------

    def start(self, *flags: str, ready: bool = True) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground; returns once it listens, unless told not to wait."""
        daemon = subprocess.Popen(
            [*self._control, "-f", *flags],
            env=self.environ | self.daemon_environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self._daemons.append(daemon)
        end_s = time.monotonic() + _PATIENCE_S
        while ready:
            try:
                wire.dial(self.pipe).close()
                break
            except wire.NoDaemon:
                if daemon.poll() is not None or time.monotonic() > end_s:
                    raise
                time.sleep(0.01)
        return daemon

    def inject(self, action: str) -> None:
        """Make an action of the script happen now (fake only)."""
        inject(self.pipe, action)

    # -- commands --------------------------------------------------------------------------------

    def ask(self, *lines: str, timeout_s: float = _PATIENCE_S) -> str:
        """Type lines into the command loop; gives what it prints, without the last newline."""
        return self.call(typed="".join(f"{line}\n" for line in lines), timeout_s=timeout_s)[1]

    def call(
        self,
        *arguments: str,
        typed: str = "",
        uid: int | None = None,
        timeout_s: float = _PATIENCE_S,
    ) -> tuple[int, str]:
        """Run the control program; gives its exit status and its output."""
        claimed = {} if uid is None else {wire.UID_VARIABLE: str(uid)}
        done = subprocess.run(
            [*self._control, *arguments],
            env=self.environ | claimed,
            input=typed,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return done.returncode, done.stdout.rstrip("\n")

    def server(self) -> str:
        """PID of the only server, as text."""
        (pid,) = self.ask("get_server_list").split()
        return pid

    # -- clients ---------------------------------------------------------------------------------

    def client(self, *flags: str, uid: int | None = None, **environ: str) -> RunningClient:
        """Start a client with more environment; its reports are read with ``report``."""
        claimed = {} if uid is None else {wire.UID_VARIABLE: str(uid)}
        process = subprocess.Popen(
            [*self._client, *flags],
            env=self.environ | claimed | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        client = RunningClient(process)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """End every process that was started here."""
        for client in self._clients:
            client.close()
        for daemon in self._daemons:
            if daemon.poll() is None:
                daemon.kill()
            daemon.wait(_PATIENCE_S)


Factory = Callable[..., Installation]


def inject(pipe_directory: str | Path, action: str) -> None:
    """Make an action of the script happen now in the daemon of a pipe directory."""
    with wire.dial(pipe_directory) as connection:
        wire.send(connection, {"do": action})
        wire.Reader(connection).read()
