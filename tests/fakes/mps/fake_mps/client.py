# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``fake_cuda_client``: a CUDA program without CUDA.

It connects as a CUDA process does, prints what it got as JSON lines and holds the attachment
until it is told to leave or is killed. It never ends because of an error: contexts are lost, the
process stays, exactly what makes a terminated client safe to kill and a live one not.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from fake_mps import cuda, wire
from fake_mps.host import SHM_VARIABLE
from fake_mps.model import Message
from fake_mps.script import SCRIPT_VARIABLE, load_script


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program, with ``--processes`` as that many processes; gives the exit status."""
    parser = argparse.ArgumentParser(prog="fake_cuda_client", description=__doc__)
    parser.add_argument("--processes", type=int, default=1, help="processes that each attach")
    parser.add_argument("--contexts", type=int, default=1, help="contexts of each process")
    parser.add_argument("--command", default=None, help="what ps shows; default: argv")
    parser.add_argument("--allocate-mib", type=int, default=0, help="memory to allocate")
    parser.add_argument("--busy", action="store_true", help="outstanding work from the start")
    parser.add_argument("--once", action="store_true", help="leave as soon as the result is known")
    options = parser.parse_args(arguments)
    for _ in range(options.processes - 1):
        if os.fork() == 0:
            break
    return Process(options, environ).run()


class Process:
    """One CUDA process."""

    def __init__(self, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ
        self._script = load_script(environ.get(SCRIPT_VARIABLE))
        self._leave = threading.Event()
        self._connection: wire.Socket | None = None
        self._allocatable_mib = 0
        self._used_mib = 0
        self._failed = False

    def run(self) -> int:
        """Attach, report, hold; exit status 1 when an error was reported."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGTERM, lambda *_: self._leave.set())
        with selectors.DefaultSelector() as selector:
            selector.register(wake_read, selectors.EVENT_READ, None)
            self._attach(selector)
            if _readable(sys.stdin.fileno()):
                selector.register(sys.stdin, selectors.EVENT_READ, self._read_orders)
            while not self._leave.is_set():
                for key, _ in selector.select():
                    if key.data is None:
                        os.read(wake_read, 64)
                    elif not key.data():
                        selector.unregister(key.fileobj)
        self._say_bye()
        return int(self._failed)

    # -- attaching -------------------------------------------------------------------------------

    def _attach(self, selector: selectors.BaseSelector) -> None:
        try:
            connection = wire.dial(_client_pipe(self._environ))
        except wire.NoDaemon as missing:
            self._result(cuda.without_mps(self._environ, self._script, stale=missing.stale))
            return
        self._connection = connection
        reader = wire.Reader(connection)
        selector.register(connection, selectors.EVENT_READ, lambda: self._hear(reader))
        claimed = self._environ.get(wire.UID_VARIABLE)
        hello = cuda.hello_of(
            self._environ,
            command=self._options.command or _own_command(),
            contexts=self._options.contexts,
            claimed_uid=int(claimed) if claimed else None,
        )
        wire.send(connection, {"hello": hello})

    def _shares_memory(self, region: str) -> bool:
        directory = self._environ.get(SHM_VARIABLE)
        return directory is None or Path(directory, region.lstrip("/")).exists()

    def _hear(self, reader: wire.Reader) -> bool:
        messages = reader.read()
        if messages is None:
            if not self._failed:
                self._report(cuda.error_message("CUDA_ERROR_MPS_RPC_FAILURE"))
            self._connection = None
            return False
        for message in messages:
            if message["event"] != "attached":
                self._result(cuda.error_message(str(message["error"])))
            elif self._shares_memory(str(message["region"])):
                self._result(message)
            else:
                self._result(cuda.without_shared_memory(exclusive=bool(message["exclusive"])))
                self._say_bye()
                return False
        return True

    # -- what happens then -----------------------------------------------------------------------

    def _result(self, message: Message) -> None:
        if message["event"] == "attached" and self._options.busy:
            self._tell({"busy": True})  # before the report, so that a reader can rely on it
        self._report(message)
        if message["event"] in ("attached", "unlimited"):
            reach = message["allocatable_mib"]
            assert isinstance(reach, int)
            self._allocatable_mib = reach
            if self._options.allocate_mib:
                self._allocate(self._options.allocate_mib)
        if self._options.once:
            self._leave.set()

    def _allocate(self, mib: int) -> None:
        if self._used_mib + mib > self._allocatable_mib:
            self._report(cuda.error_message("CUDA_ERROR_OUT_OF_MEMORY"))
            return
        self._used_mib += mib
        self._report({"event": "allocated", "used_mib": self._used_mib})

    def _read_orders(self) -> bool:
        line = sys.stdin.readline()
        words = line.split()
        if not line:
            return False
        if words[:1] == ["exit"]:
            self._leave.set()
        elif words[:1] == ["busy"] or words[:1] == ["idle"]:
            self._tell({"busy": words[0] == "busy"})
            self._report({"event": words[0]})
        elif words[:1] == ["fault"]:
            self._tell({"fault": words[1] if len(words) > 1 else "CUDA_ERROR_ILLEGAL_ADDRESS"})
        elif words[:1] == ["allocate"]:
            self._allocate(int(words[1]))
        elif words:
            print(
                f"unknown order {line!r}: exit, busy, idle, fault [ERROR], allocate MIB",
                file=sys.stderr,
            )
        return True

    def _report(self, message: Message) -> None:
        self._failed = self._failed or message["event"] == "error"
        print(json.dumps({"pid": os.getpid(), **message}), flush=True)

    def _tell(self, message: Message) -> None:
        if self._connection is not None:
            wire.send(self._connection, message)

    def _say_bye(self) -> None:
        if self._connection is not None:
            wire.send(self._connection, {"bye": True})
            self._connection.close()
            self._connection = None


def _client_pipe(environ: Mapping[str, str]) -> str:
    return environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"


def _own_command() -> str:
    raw = Path("/proc/self/cmdline").read_bytes()
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def _readable(number: int) -> bool:
    try:
        return not os.path.samestat(os.fstat(number), os.stat(os.devnull))
    except OSError:
        return False
