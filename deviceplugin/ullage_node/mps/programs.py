# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the control program: one interface, an argument list, a deadline on every call.

No shell is involved. Output is read up to a limit, a program that hangs is killed. Tests put a fake
program first on PATH, or replace :class:`ProgramRunner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage_node.times import KILLED_S

OUTPUT_MAX: Final = 1 << 20
"""Most bytes read of an answer; 60 clients take 4 KiB."""


class ProgramMissing(Exception):
    """The program is missing or cannot be started; the text says which and why."""


class ProgramSilent(Exception):
    """No answer within the deadline; the call was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """One call of a program: arguments, standard input, environment."""

    words: tuple[str, ...]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """Result of a call."""

    code: int
    stdout: str
    stderr: str = ""


class Running:
    """A running program in its own process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """``None`` while it runs."""
        return self._process.returncode

    async def stop(self, patience_seconds: float) -> None:
        """SIGTERM to its group, SIGKILL after the grace period; returns when it has ended."""
        _signal_group(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_seconds):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # Also when the daemon exited by itself: its child, the server, may be left.
            _signal_group(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class ProgramRunner:
    """Calls programs."""

    async def run(self, call: ProgramCall, timeout_seconds: float) -> ProgramResult:
        """Run a program to completion.

        Raises:
            ProgramMissing: it cannot be started.
            ProgramSilent: it did not end in time.
        """
        process = await _spawn(call, stdin=PIPE, output=PIPE)
        try:
            async with asyncio.timeout(timeout_seconds):
                out, err = await process.communicate(call.stdin.encode())
        except TimeoutError:
            raise ProgramSilent(
                f"{call.words[0]} gave no answer in {timeout_seconds:g} s"
            ) from None
        finally:
            await _kill(process)
        assert process.returncode is not None
        return ProgramResult(code=process.returncode, stdout=_text(out), stderr=_text(err))

    async def start(self, call: ProgramCall, log: Path | None = None) -> Running:
        """Start a long-running program; its output is appended to ``log``, or discarded.

        Raises:
            ProgramMissing: it, or its log, cannot be opened.
        """
        if log is None:
            return Running(await _spawn(call, stdin=DEVNULL, output=DEVNULL))
        try:
            # Append mode: a truncated log continues at its start.
            with log.open("ab", buffering=0) as output:
                return Running(await _spawn(call, stdin=DEVNULL, output=output.fileno()))
        except OSError as error:
            raise ProgramMissing(f"{log}: {error.strerror}") from error

    def found(self, name: str) -> bool:
        """True if there is a program of this name."""
        return shutil.which(name) is not None


async def _spawn(call: ProgramCall, *, stdin: int, output: int) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *call.words,
            stdin=stdin,
            stdout=output,
            stderr=output,
            env={**os.environ, **call.env},
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramMissing(f"{call.words[0]}: {error.strerror}") from error
    except RuntimeError as error:  # no thread available
        raise ProgramMissing(f"{call.words[0]}: {error}") from error


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILLED_S):
                await process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _text(raw: bytes) -> str:
    return raw[:OUTPUT_MAX].decode("utf-8", "replace")
