# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The processes on the devices, by the host's numbers, read by a process that has these numbers.

The driver answers with the numbers of its caller's PID namespace and leaves out, without an error,
every process that has none there (NVIDIA, open-gpu-kernel-modules: ``os_find_ns_pid`` is
``pid_vnr``). The agent has a namespace of its own and would see nobody. So a process of another
pod, with the host's namespace and nothing else, reads for it (:class:`ProcessReader`), and says its
own number and start, by which the agent proves that both count alike (:class:`HostProcesses`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Protocol

from ullage.api.codec import Wire
from ullage.api.contract import JsonObject, WireError
from ullage.api.wire_fields import NEEDED, Whole, strings
from ullage_node.devices.nvidia.cuda_checkpoint import SOCKET as CHECKPOINT_SOCKET
from ullage_node.devices.nvidia.cuda_checkpoint import CudaCheckpoint
from ullage_node.devices.nvidia.nvml import NvmlError, NvmlStuck, NvmlThread, load_nvml
from ullage_node.devices.nvidia.read import GpuProcess, Unread, Usage, explain, read_processes
from ullage_node.line_socket import LineServer, Unanswered, ask

DIRECTORY: Final = "processes"
"""Below the run directory, under the same name in both containers."""
SOCKET: Final = "processes.sock"
LOOK_SECONDS: Final = 2.0
"""Longest wait for an answer; NVML itself gets less."""
UUIDS_MAX: Final = 256
UUID_CHARACTERS_MAX: Final = 128
START_FIELD: Final = 22
"""Of /proc/PID/stat: when the process started, in ticks since boot (proc_pid_stat(5))."""


class ProcessesUnseen(Exception):
    """Nobody can say which processes use the devices; the text says why."""


class ProcessSource(Protocol):
    """Says which processes use which devices."""

    async def look(self, uuids: Sequence[str]) -> Usage:
        """Processes on these devices, by the host's numbers.

        Raises:
            ProcessesUnseen: they cannot be known now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Wire):
    """One answer: the processes, and who read them by its own number and start."""

    reader_pid: Annotated[Whole, NEEDED]
    reader_start: Annotated[Whole, NEEDED]
    processes: tuple[GpuProcess, ...] = ()
    unread: tuple[Unread, ...] = ()


class ProcessReader:
    """Reads processes from NVML; opens the library when it is asked and not open."""

    def __init__(self, thread: NvmlThread, proc_root: Path = Path("/proc")) -> None:
        self._thread = thread
        self._proc_root = proc_root
        self._open = False

    async def answer(self, raw: JsonObject) -> Mapping[str, object]:
        """Answer one request, ``{"uuids": [...]}``.

        Raises:
            Unanswered: the driver does not answer.
            WireError: it is no request.
        """
        uuids = strings(raw, "uuids")
        if len(uuids) > UUIDS_MAX or any(len(uuid) > UUID_CHARACTERS_MAX for uuid in uuids):
            raise WireError("uuids: too many or too long")
        usage = await self.look(uuids)
        pid, start = identity(self._proc_root / "self")
        seen = Seen(
            reader_pid=pid,
            reader_start=start,
            processes=usage.processes,
            unread=tuple(Unread(gpu=gpu, why=why) for gpu, why in sorted(usage.unread.items())),
        )
        return {"seen": seen.to_wire()}

    async def look(self, uuids: Sequence[str]) -> Usage:
        """Processes on these devices, numbered as in this process's own namespace.

        Raises:
            Unanswered: the driver does not answer.
        """
        try:
            if not self._open:
                await self._thread.call(lambda api: api.nvmlInit())
                self._open = True
            usage = await self._thread.call(lambda api: read_processes(api, uuids))
            if uuids and len(usage.unread) == len(uuids):
                self._open = False  # a driver that was loaded anew wants to be opened anew
                with contextlib.suppress(NvmlError):
                    await self._thread.call(lambda api: api.nvmlShutdown())
        except NvmlError as error:
            self._open = False
            raise Unanswered(explain(error)) from error
        except NvmlStuck as error:
            raise Unanswered(str(error)) from error
        return usage


class HostProcesses:
    """The agent's way to the reader."""

    def __init__(self, socket: Path, proc_root: Path) -> None:
        self._socket = socket
        self._proc_root = proc_root

    async def look(self, uuids: Sequence[str]) -> Usage:
        """See :class:`ProcessSource`."""
        try:
            request = {"uuids": list(uuids)}
            answer = await ask(self._socket, request, LOOK_SECONDS, "the reader of processes")
            raw = answer.get("seen")
            seen = Seen.from_wire(raw if isinstance(raw, dict) else {})
        except Unanswered as error:
            raise ProcessesUnseen(f"{error}; see its pod on this node") from error
        except WireError as error:
            raise ProcessesUnseen(f"the reader of processes is not understood: {error}") from error
        self._check_numbers(seen)
        return Usage(
            processes=seen.processes, unread={unread.gpu: unread.why for unread in seen.unread}
        )

    def _check_numbers(self, seen: Seen) -> None:
        """Whoever is the reader there must be the reader here: then all numbers mean the same."""
        try:
            here = identity(self._proc_root / str(seen.reader_pid))
        except OSError:
            here = (0, 0)
        if here != (seen.reader_pid, seen.reader_start):
            raise ProcessesUnseen(
                "the reader of processes counts them in a namespace of its own, so it sees none of "
                "the host's: its pod needs hostPID"
            )


def identity(process: Path) -> tuple[int, int]:
    """Number and start of a process, as its folder in /proc says them.

    Raises:
        OSError: there is no such process, or its file is none of the kernel's.
    """
    raw = (process / "stat").read_text(encoding="utf-8", errors="replace")
    number, _, rest = raw.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    try:
        return int(number), int(fields[START_FIELD - 3])
    except (ValueError, IndexError) as error:
        raise OSError(f"{process}/stat cannot be read") from error


async def serve(run_dir: Path, checkpoint: Path | None = None) -> None:
    """Answer until SIGTERM or SIGINT.

    Args:
        run_dir: Below which the sockets lie.
        checkpoint: NVIDIA's cuda-checkpoint, with which the agent may suspend processes; ``None`` =
            it may not.

    Raises:
        OSError: the socket cannot be made.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    reader = ProcessReader(NvmlThread(load_nvml()))
    async with contextlib.AsyncExitStack() as sockets:
        folder = run_dir / DIRECTORY
        await sockets.enter_async_context(LineServer(folder / SOCKET, reader.answer))
        if checkpoint is not None:
            program = CudaCheckpoint(path=checkpoint)
            server = LineServer(folder / CHECKPOINT_SOCKET, program.answer)
            await sockets.enter_async_context(server)
        await stop.wait()
