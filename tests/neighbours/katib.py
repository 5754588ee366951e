# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Katib's own suggestion services: goptuna, a program in Go, and Optuna's in Python."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.cluster import LocalCluster

GOPTUNA_PORT: Final = 6789
"""It takes no other."""
OPTUNA: Final = """
import sys
from concurrent import futures
import grpc
from pkg.apis.manager.v1beta1.python import api_pb2_grpc
from pkg.suggestion.v1beta1.optuna.service import OptunaService

server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
api_pb2_grpc.add_SuggestionServicer_to_server(OptunaService(), server)
assert server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
"""
"""Its own main program takes the one port, too, on every address of the machine."""
BEGIN_S: Final = 60.0


class SuggestionProgram:
    """A suggestion service that may be started again, which loses all that it knows."""

    def __init__(self, command: list[str], port: int, env: dict[str, str], log: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self._command = command
        self._env = {**os.environ, **env}
        self._log = log
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + BEGIN_S
        while not self._listens():
            assert self._running.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < until, "it does not listen"
            time.sleep(0.1)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    async def restart(self) -> str:
        """Start it again; returns its address."""
        self.stop()
        self.start()
        return self.address

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as asked:
            return asked.connect_ex((host, int(port))) == 0


@contextmanager
def goptuna(folder: Path) -> Iterator[SuggestionProgram]:
    """Goptuna's service, while this lasts."""
    program = LocalCluster().tool("goptuna", component="katib")
    yield from _running(SuggestionProgram([str(program)], GOPTUNA_PORT, {}, folder / "goptuna.log"))


@contextmanager
def optuna(folder: Path) -> Iterator[SuggestionProgram]:
    """Optuna's service with the Optuna of this environment, while this lasts."""
    sources = LocalCluster().tool("goptuna", component="katib").parent / "katib"
    manager = sources / "pkg/apis/manager"
    roots = (sources, manager / "v1beta1/python", manager / "health/python")
    env = {"PYTHONPATH": os.pathsep.join(map(str, roots))}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", OPTUNA, str(port)]
    yield from _running(SuggestionProgram(command, port, env, folder / "optuna.log"))


def _running(program: SuggestionProgram) -> Iterator[SuggestionProgram]:
    program.start()
    try:
        yield program
    finally:
        program.stop()
