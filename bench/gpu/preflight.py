# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Command 0: what this machine can do, in one minute, before anything is measured.

Every step has its own time limit and its own result line; a step that fails never stops the rest.
What follows from the results (the abort rules) is decided here, in one place.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

import pynvml

from bench.gpu.catalogue import SHARES
from bench.gpu.client import ClientSilent, RunningClient
from bench.gpu.device import NoDevice
from bench.gpu.mps import STEP_S, Silent, call
from bench.gpu.rig import Rig

ATTACH_TRIES: Final = 2
Mode = Literal["none", "v2"]


class StepFailed(Exception):
    """A step found out that something does not work; the text is its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of command 0."""

    name: str
    ok: bool
    seconds: float
    detail: str


@dataclass(slots=True, kw_only=True)
class Findings:
    """All lines, and what they mean for the run."""

    results: list[Result] = field(default_factory=list)
    mode: Mode = "none"
    reasons: list[str] = field(default_factory=list)
    """Abort rules that held."""
    gpm: bool = False
    rounding: dict[int, int] = field(default_factory=dict)
    """Percent to multiprocessors seen."""
    context_mib: dict[int, int] = field(default_factory=dict)

    def figures(self) -> dict[str, object]:
        """For the run's JSON file."""
        return {
            "mps_mode": self.mode,
            "abort_rules": self.reasons,
            "gpm": self.gpm,
            "rounding": {str(key): value for key, value in self.rounding.items()},
            "context_mib": {str(key): value for key, value in self.context_mib.items()},
            "steps": [asdict(one) for one in self.results],
        }


class Preflight:
    """The steps of command 0 on one rig."""

    def __init__(self, rig: Rig, *, terminations: int = 3) -> None:
        self._rig = rig
        self._mps = rig.mps
        self._terminations = terminations
        self.found = Findings()

    def run(self) -> Findings:
        """All steps; MPS runs afterwards where the mode says so."""
        found, rig = self.found, self._rig
        found.gpm = rig.device.gpm
        if not found.gpm:
            found.reasons.append("GPM unsupported: the run goes on without counters")
        self._step("nvidia-smi", self._smi)
        if not self._step("binary", self._binary):
            found.reasons.append("no nvidia-cuda-mps-control: time-slicing pairs only")
            return found
        if not self._step("start", self._start):
            found.reasons.append("MPS does not start: time-slicing pairs only")
            return found
        tries = (self._step(f"attach try {n + 1}", self._attach) for n in range(ATTACH_TRIES))
        if not any(tries):
            found.reasons.append("client not attached after 2 tries: MPS blocks stopped")
            self._mps.stop()
            return found
        found.mode = "v2"
        self._step("rounding and context memory", self._rounding)
        self._step("GPM", self._gpm)
        self._step("process utilisation", self._utilisation)
        self._step("server percentage for a later client", self._server_percentage)
        self._step("server percentage between connection and context", self._between)
        self._step("freeze", self._freeze)
        self._step("terminate_client", self._terminate)
        self._step("cuda-checkpoint", self._checkpoint)
        self._step("static partitions (-S)", self._static)
        if not self._mps.running and not self._step("start again", self._start):
            found.mode = "none"
            found.reasons.append("MPS does not start again: time-slicing pairs only")
        return found

    def _step(self, name: str, work: Callable[[], str]) -> bool:
        """Run one step; its line goes to the results and the transcript."""
        begun_s = time.monotonic()
        try:
            ok, detail = True, work()
        except (StepFailed, Silent, ClientSilent, NoDevice, OSError, pynvml.NVMLError) as error:
            ok, detail = False, str(error)
        seconds = round(time.monotonic() - begun_s, 3)
        self.found.results.append(Result(name=name, ok=ok, seconds=seconds, detail=detail))
        verdict = "ok" if ok else "FAILED"
        self._mps.transcript.note(f"{name}: {verdict} in {seconds:.2f} s: {detail}")
        return ok

    # -- steps -----------------------------------------------------------------------------------

    def _smi(self) -> str:
        if self._rig.dry:
            return "left out: no GPU is used"
        done = call(("nvidia-smi", "-q"), transcript=self._mps.transcript)
        return f"exit status {done.code}"

    def _binary(self) -> str:
        if not self._mps.found():
            raise StepFailed(f"{self._mps.command[0]} is not on PATH")
        return f"{Path(self._mps.command[-1]).name}, for driver {self._rig.device.facts.driver}"

    def _start(self) -> str:
        self._mps.start()
        return "daemon answers"

    def _client(self, percent: int | None) -> RunningClient:
        more = {} if percent is None else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
        return RunningClient.start(self._rig.client, {**self._mps.env, **more})

    def _attach(self) -> str:
        with self._client(25) as client:
            seen = client.sm_count(STEP_S)
            server = self._mps.ask("get_server_list")
            listed = self._mps.ask(f"get_client_list {server}")
            for line in ("ps", f"get_server_status {server}"):
                self._mps.ask(line)
            if str(client.pid) not in listed.split():
                raise StepFailed(f"client {client.pid} runs ({seen} SMs) and is not in the list")
        return f"attached, {seen} SMs at 25 %"

    def _rounding(self) -> str:
        for percent in SHARES:
            before = self._rig.device.used_mib()
            with self._client(percent) as client:
                self.found.rounding[percent] = client.sm_count(STEP_S)
                self.found.context_mib[percent] = self._rig.device.used_mib() - before
        return f"SMs {self.found.rounding}, MiB a context {self.found.context_mib}"

    def _gpm(self) -> str:
        if not self.found.gpm:
            raise StepFailed("unsupported")
        with self._client(50) as client:
            client.sm_count(STEP_S)
            gauge = self._rig.device.begin()
            time.sleep(self._rig.seconds(0.5))
            self._rig.device.end(gauge)
        return f"{len(gauge.counters)} metrics with a client attached"

    def _utilisation(self) -> str:
        with self._client(50) as one, self._client(50) as two:
            one.sm_count(STEP_S)
            two.sm_count(STEP_S)
            time.sleep(self._rig.seconds(1.0))
            return str(self._rig.device.process_utilisation())

    def _server_percentage(self) -> str:
        """Whether a client that comes after ``set_active_thread_percentage`` gets it."""
        server = self._mps.server()
        if not server:
            raise StepFailed("no server is there")
        self._mps.ask(f"set_active_thread_percentage {server} 10")
        try:
            with self._client(None) as client:
                seen = client.sm_count(STEP_S)
        finally:
            self._mps.ask(f"set_active_thread_percentage {server} 100")
        return f"{seen} SMs after the server was set to 10 %"

    def _between(self) -> str:
        """When the server's percentage is read: at the connection, or at the first context."""
        if not self._rig.staged:
            raise StepFailed("left out: the stand-in connects and attaches in one step")
        with self._client(25) as keeps:
            keeps.sm_count(STEP_S)  # the server lives on
            server = self._mps.server()
            with RunningClient.start(self._rig.staged, self._mps.env) as client:
                client.report(STEP_S)
                self._mps.ask(f"set_active_thread_percentage {server} 10")
                client.go_on()
                seen = client.sm_count(STEP_S)
            self._mps.ask(f"set_active_thread_percentage {server} 100")
        read_late = seen < self._rig.sm_count / 2
        return f"{seen} SMs: read at the {'first context' if read_late else 'connection'}"

    def _freeze(self) -> str:
        with self._client(50) as client:
            client.sm_count(STEP_S)
            os.kill(client.pid, signal.SIGSTOP)
            try:
                status = self._mps.ask(f"get_server_status {self._mps.server()}")
            finally:
                os.kill(client.pid, signal.SIGCONT)
        return f"server {status} while a client is stopped"

    def _terminate(self) -> str:
        took = []
        end_s = time.monotonic() + STEP_S
        for _ in range(self._terminations):
            with self._client(50) as client:
                client.sm_count(STEP_S)
                server = self._mps.server()
                begun_s = time.monotonic()
                answer = self._mps.ask(f"terminate_client {server} {client.pid}")
                took.append(time.monotonic() - begun_s)
            status = self._mps.ask(f"get_server_status {server}", quiet=True)
            if "FAULT" in status:
                raise StepFailed(f"server {status} after terminate_client ({answer})")
            if time.monotonic() > end_s:
                break
        return f"{len(took)} clients, longest {max(took):.3f} s, server {status}"

    def _checkpoint(self) -> str:
        if shutil.which("cuda-checkpoint") is None:
            raise StepFailed("cuda-checkpoint is not here")
        with self._client(50) as client:
            client.sm_count(STEP_S)
            words = ("cuda-checkpoint", "--toggle", "--pid", str(client.pid))
            done = [call(words, transcript=self._mps.transcript) for _ in range(2)]
        return f"exit statuses {[one.code for one in done]}"

    def _static(self) -> str:
        """Try static partitions, then go back; the setting cannot be toggled while it runs."""
        self._mps.stop()
        try:
            self._mps.start("-S")
            return self._mps.ask("lspart").replace("\n", " | ")
        finally:
            with suppress(Silent):  # whether it starts again is a step of its own
                self._mps.stop()
