# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes CUDA processes off their GPU and back, with NVIDIA's program ``cuda-checkpoint``.

The administrator provides the program (its licence forbids redistribution). It takes host PIDs, so
it runs in the process reader, which has them; the agent sends requests over a socket owned by root.
The commands are those of its help text (driver 570 and newer: ``--get-state``, ``--action lock |
checkpoint | restore | unlock``). CPU threads continue; their CUDA calls block meanwhile.

A process is lost if its restore finds no memory (NVIDIA/cuda-checkpoint, issue 44). So nothing here
restores on its own: only the agent knows that the memory is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage.api.readers import LARGEST, JsonObject, WireError, text
from ullage_node.devices.processes import identified, lives
from ullage_node.line_socket import Unanswered, ask
from ullage_node.model.switching import ProcessId, Program, SwitchFailed
from ullage_node.times import CUDA_ANSWER_S, CUDA_CHECK_S, CUDA_LOCK_MS, CUDA_MOVE_S

SOCKET: Final = "checkpoint.sock"
"""In the directory of the process reader."""
PIDS_MOST: Final = 64
SAID_MOST: Final = 300
"""Most characters of the program's output in an error."""


class CudaState(StrEnum):
    """States of a process, as the program prints them."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"


class SwitchVerb(StrEnum):
    """Requests of the agent."""

    ABLE = "able"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCheckpoint:
    """Runs the program at ``path``; no request data enters a path or a shell command."""

    path: Path
    proc_root: Path = Path("/proc")

    async def answer(self, raw: JsonObject) -> Mapping[str, object]:
        """Answer one request: ``{"problem": ""}`` = success.

        Args:
            raw: ``{"verb": ..., "pids": [...], "starts": [...]}``; an older agent sends no starts.

        Raises:
            WireError: it is not a request.
        """
        word = text(raw, "verb")
        if word not in tuple(SwitchVerb):
            raise WireError(f"verb: {word!r} is none")
        verb, processes = SwitchVerb(word), self._processes(raw)
        try:
            if verb is SwitchVerb.ABLE:
                await self.able()
            elif verb is SwitchVerb.SUSPEND:
                await self.suspend(processes)
            else:
                await self.resume(processes)
        except SwitchFailed as error:
            return {"problem": str(error)}
        return {"problem": ""}

    async def able(self) -> None:
        """Check that the program runs here.

        Raises:
            SwitchFailed: it does not.
        """
        await self._run("--help", seconds=CUDA_CHECK_S)

    async def suspend(self, processes: Sequence[ProcessId]) -> None:
        """Suspend these processes, all or none; an already suspended one stays so.

        An ended process holds nothing; a process that has reused its PID is left alone.

        Raises:
            SwitchFailed: one cannot be suspended; the others were resumed where possible.
        """
        alive = self._alive(processes)
        locked: list[ProcessId] = []
        try:
            for process in alive:
                if await self.state(process) is not CudaState.CHECKPOINTED:
                    await self._act("lock", process, "--timeout", str(CUDA_LOCK_MS))
                    locked.append(process)
            for process in locked:
                await self._act("checkpoint", process)
        except SwitchFailed:
            for process in alive:  # their memory stays theirs until we report it as free
                with contextlib.suppress(SwitchFailed):
                    await self._back(process)
            raise

    async def resume(self, processes: Sequence[ProcessId]) -> None:
        """Resume these processes, whose memory is free; an already resumed one stays so.

        Raises:
            SwitchFailed: one cannot be resumed, or all have ended.
        """
        for process in self._alive(processes):
            await self._back(process)

    async def state(self, process: ProcessId) -> CudaState:
        """The state of a process.

        Raises:
            SwitchFailed: the program does not report it, or the process has ended.
        """
        output = await self._on(process, "--get-state", seconds=CUDA_LOCK_MS / 1000)
        word = output.strip().rpartition(" ")[2].lower()
        if word not in tuple(CudaState):
            raise SwitchFailed(
                f"process {process.pid}: its state is {output.strip()[:SAID_MOST]!r}"
            )
        return CudaState(word)

    def _alive(self, processes: Sequence[ProcessId]) -> list[ProcessId]:
        alive = [process for process in processes if lives(self.proc_root, process)]
        if processes and not alive:
            raise SwitchFailed("its processes have ended")
        return alive

    async def _back(self, process: ProcessId) -> None:
        state = await self.state(process)
        if state is CudaState.FAILED:
            raise SwitchFailed(f"process {process.pid} is lost: CUDA could not restore it")
        if state is CudaState.CHECKPOINTED:
            await self._act("restore", process)
        if state is not CudaState.RUNNING:
            await self._act("unlock", process)

    async def _act(self, action: str, process: ProcessId, *more: str) -> None:
        await self._on(process, "--action", action, *more, seconds=CUDA_MOVE_S)

    async def _on(self, process: ProcessId, *words: str, seconds: float) -> str:
        """Run the program, which identifies a process by its PID alone, on this one.

        Raises:
            SwitchFailed: as :meth:`_run`, or the process has ended.
        """
        if not lives(self.proc_root, process):
            raise SwitchFailed(f"process {process.pid} has ended")
        return await self._run(*words, "--pid", str(process.pid), seconds=seconds)

    def _processes(self, raw: JsonObject) -> tuple[ProcessId, ...]:
        pids = _numbers(raw, "pids", least=2)
        if "starts" not in raw:
            return identified(self.proc_root, pids)
        starts = _numbers(raw, "starts", least=0)
        if len(starts) != len(pids):
            raise WireError("starts: expected one for each of pids")
        return tuple(map(ProcessId, pids, starts))

    async def _run(self, *words: str, seconds: float) -> str:
        """The output of the program.

        Raises:
            SwitchFailed: it cannot be run, fails, or times out and is killed.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                str(self.path),
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", "")}
                | {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
            )
        except (OSError, RuntimeError) as error:  # no file, process or thread
            raise SwitchFailed(f"{self.path} cannot be run: {error}") from error
        try:
            async with asyncio.timeout(seconds):
                raw, _ = await process.communicate()
        except TimeoutError:
            raise SwitchFailed(f"{' '.join(words)} did not end in {seconds:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        output = raw.decode(errors="replace")
        if process.returncode:
            raise SwitchFailed(f"{' '.join(words)}: {output.strip()[:SAID_MOST]}")
        return output


class HostCheckpoint:
    """The agent's client; see :class:`~ullage_node.model.switching.ProcessSwitch`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def problem(self) -> str:
        """The obstacle to suspending processes on this node; empty = none."""
        try:
            await self._ask(SwitchVerb.ABLE, (), CUDA_CHECK_S + 0.5)
        except SwitchFailed as error:
            return str(error)
        return ""

    async def suspend(self, program: Program) -> None:
        """Take the container's processes off their GPU.

        Raises:
            SwitchFailed: they still hold their memory.
        """
        await self._ask(SwitchVerb.SUSPEND, program.processes, CUDA_ANSWER_S)

    async def resume(self, program: Program) -> None:
        """Resume them.

        Raises:
            SwitchFailed: their memory use is unknown.
        """
        await self._ask(SwitchVerb.RESUME, program.processes, CUDA_ANSWER_S)

    async def _ask(
        self, verb: SwitchVerb, processes: tuple[ProcessId, ...], seconds: float
    ) -> None:
        request = {
            "verb": verb.value,
            "pids": [process.pid for process in processes],
            "starts": [process.start for process in processes],
        }
        try:
            answer = await ask(self._socket, request, seconds, "cuda-checkpoint")
            problem = text(answer, "problem")
        except (Unanswered, WireError) as error:
            raise SwitchFailed(str(error)) from error
        if problem:
            raise SwitchFailed(problem)


def _numbers(raw: JsonObject, field: str, *, least: int) -> tuple[int, ...]:
    numbers = raw.get(field, [])
    if not isinstance(numbers, list) or len(numbers) > PIDS_MOST:
        raise WireError(f"{field}: expected at most {PIDS_MOST}")
    if not all(type(number) is int and least <= number <= LARGEST for number in numbers):
        raise WireError(f"{field}: expected whole numbers from {least} on")
    return tuple(numbers)
