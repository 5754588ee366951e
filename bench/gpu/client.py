# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small client process of command 0: one context, reported as a JSON line, held until told.

The same reports come from the CUDA program of the contract tests and from the fake's client.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType


class ClientSilent(Exception):
    """The client said nothing in time, ended, or reported an error."""


class RunningClient:
    """A client; leaving the context ends it in order."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(cls, words: Sequence[str], env: Mapping[str, str]) -> RunningClient:
        """Start one."""
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(list(words), env=dict(env), stdin=pipe, stdout=pipe))

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def sm_count(self, timeout_s: float) -> int:
        """Multiprocessors that it got.

        Raises:
            ClientSilent: no context, or no word of it in time.
        """
        said = self.report(timeout_s)
        if "sm_count" not in said:
            raise ClientSilent(f"client {self.pid}: {said}")
        return int(str(said["sm_count"]))

    def go_on(self) -> None:
        """Let a staged client make its context."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def report(self, timeout_s: float) -> dict[str, object]:
        """The next line that it prints.

        Raises:
            ClientSilent: none came in time, or it ended.
        """
        assert self._process.stdout is not None
        end_s, text = time.monotonic() + timeout_s, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in text:
                if not selector.select(max(0.0, end_s - time.monotonic())):
                    raise ClientSilent(f"client {self.pid}: no report in {timeout_s:g} s")
                chunk = os.read(self._process.stdout.fileno(), 4096)
                if not chunk:
                    raise ClientSilent(f"client {self.pid} ended without a report")
                text += chunk
        said = json.loads(text.partition(b"\n")[0])
        assert isinstance(said, dict)
        return said

    def __enter__(self) -> RunningClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
