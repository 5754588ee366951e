# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The private MPS of one measurement: started, asked, ended, and every word of it written down.

Its directories are its own and short (a socket path ends at 108 bytes). The transcript is
verbatim. No call waits without a limit, and a daemon is only ever asked to quit, never killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROGRAM: Final = "nvidia-cuda-mps-control"
STEP_S: Final = 10.0
READY_S: Final = 20.0


class Silent(Exception):
    """A program did not answer in time, or cannot be started."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """One text file: what was run, what it printed, how it ended."""

    path: Path

    def note(self, text: str) -> None:
        """A line of our own, marked as such."""
        self._add(f"## {text}\n")

    def record(self, words: Sequence[str], typed: str, output: str, status: object) -> None:
        """One call."""
        said = "".join(f"> {line}\n" for line in typed.splitlines())
        tail = "" if not output or output.endswith("\n") else "\n"
        self._add(f"$ {' '.join(words)}\n{said}{output}{tail}[exit {status}]\n")

    def _add(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a program printed, and its exit status."""

    code: int
    text: str


def call(
    words: Sequence[str],
    *,
    typed: str = "",
    env: Mapping[str, str] | None = None,
    timeout_s: float = STEP_S,
    transcript: Transcript | None = None,
) -> Answer:
    """Run a program to its end.

    Raises:
        Silent: it cannot be started, or did not end in time (it was killed).
    """
    try:
        done = subprocess.run(
            list(words), input=typed, env=None if env is None else dict(env), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        if transcript is not None:
            transcript.record(words, typed, "", f"none: {error}")
        raise Silent(f"{words[0]}: {error}") from error
    if transcript is not None:
        transcript.record(words, typed, done.stdout, done.returncode)
    return Answer(code=done.returncode, text=done.stdout)


@dataclass(slots=True, kw_only=True)
class Mps:
    """One control daemon with its server on one GPU."""

    gpu_uuid: str
    transcript: Transcript
    command: tuple[str, ...] = (PROGRAM,)
    root: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="ug", dir="/dev/shm")))
    running: bool = False
    _server: str = ""
    """PID of the server that was asked last; one server lives as long as it has clients."""

    def move(self, root: Path) -> None:
        """Use this folder instead, before the start; its path must be short."""
        shutil.rmtree(self.root, ignore_errors=True)
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    @property
    def env(self) -> dict[str, str]:
        """What a client needs in its environment; no percentage, and no choice of a device.

        The daemon has chosen the device by its UUID; an ordinal of ours would mean another one.
        """
        own = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.root / "p"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.root / "l"),
        }
        inherited = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        return {**inherited, **own}

    def found(self) -> bool:
        """Whether the control program is there."""
        return shutil.which(self.command[0]) is not None

    def start(self, *flags: str) -> None:
        """Start the daemon in the background; with ``-S`` for static partitions.

        Raises:
            Silent: it did not start; the transcript has its words.
        """
        for name in ("p", "l"):
            (self.root / name).mkdir(exist_ok=True)
        env = {**self.env, "CUDA_VISIBLE_DEVICES": self.gpu_uuid}
        words = (*self.command, *flags, "-d")
        done = call(words, env=env, transcript=self.transcript)
        if done.code != 0:
            first = next(iter(done.text.strip().splitlines()), "no word")
            raise Silent(f"start {' '.join(flags)}: exit status {done.code}: {first}")
        self.running, self._server = True, ""
        end_s = time.monotonic() + READY_S
        while call((*self.command,), typed="get_server_list\n", env=self.env).code != 0:
            if time.monotonic() > end_s:
                raise Silent("the control daemon does not answer")
            time.sleep(0.05)

    def ask(self, line: str, *, quiet: bool = False, timeout_s: float = STEP_S) -> str:
        """One command of protocol 2; gives what it prints.

        Raises:
            Silent: no answer in time, or an exit status other than 0.
        """
        done = call(
            self.command, typed=f"{line}\n", env=self.env, timeout_s=timeout_s,
            transcript=None if quiet else self.transcript,
        )  # fmt: skip
        if done.code != 0:
            raise Silent(f"{line}: exit status {done.code}: {done.text.strip()}")
        return done.text.strip()

    def server(self) -> str:
        """PID of the server, as text; empty = none."""
        return next(iter(self.ask("get_server_list", quiet=True).split()), "")

    def clients(self) -> frozenset[int]:
        """PIDs that are attached now.

        Raises:
            Silent: no answer in time, or the server is not the one of before.
        """
        self._server = self._server or self.server()
        if not self._server:
            return frozenset()
        try:
            listed = self.ask(f"get_client_list {self._server}", quiet=True)
        except Silent:
            self._server = ""  # asked again the next time
            raise
        return frozenset(int(word) for word in listed.split() if word.isdigit())

    def stop(self) -> None:
        """Quit the daemon; its clients have left before. Errors are in the transcript."""
        if self.running:
            try:
                call((*self.command,), typed="quit -t 5\n", env=self.env, timeout_s=20,
                     transcript=self.transcript)  # fmt: skip
            except Silent as error:
                self.transcript.note(f"quit: {error}")
            self.running = False

    def close(self) -> None:
        """Stop and remove the directories."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
