# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The processes on the devices by host PID, read by a process in the host's PID namespace.

The driver answers with PIDs of its caller's namespace and silently omits every process without one
there (NVIDIA, open-gpu-kernel-modules: ``os_find_ns_pid`` is ``pid_vnr``). The agent has its own
namespace and would see no process. So a process of another pod, with the host's namespace and
nothing else, reads for it (:class:`ProcessReader`), and reports its own PID and start time, by
which the agent verifies that both use the same numbering (:class:`HostProcesses`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Protocol

from ullage.api.codec import Wire
from ullage.api.readers import JsonObject, WireError
from ullage.api.wire_fields import NEEDED, Whole, strings
from ullage_node.devices.nvidia.nvml import NvmlError, NvmlSession, NvmlStuck
from ullage_node.devices.nvidia.read import (
    GpuProcess,
    UnreadDevice,
    Usage,
    failure_text,
    read_processes,
)
from ullage_node.devices.processes import identity, lives
from ullage_node.line_socket import Unanswered, ask
from ullage_node.model.switching import ProcessId
from ullage_node.times import HOST_LOOK_S

DIRECTORY: Final = "processes"
"""Directory below the run directory, at the same path in both containers."""
SOCKET: Final = "processes.sock"
UUIDS_MAX: Final = 256
UUID_CHARACTERS_MAX: Final = 128


class ProcessesUnseen(Exception):
    """The processes on the devices cannot be determined; the text says why."""


class ProcessSource(Protocol):
    """Reports which processes use which devices."""

    async def look(self, uuids: Sequence[str]) -> Usage:
        """Processes on these devices, by host PID.

        Raises:
            ProcessesUnseen: they cannot be determined now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProcesses(Wire):
    """One answer: the processes, and their reader's own PID and start time."""

    reader_pid: Annotated[Whole, NEEDED]
    reader_start: Annotated[Whole, NEEDED]
    processes: tuple[GpuProcess, ...] = ()
    unread: tuple[UnreadDevice, ...] = ()


def devices_asked(raw: JsonObject) -> tuple[str, ...]:
    """The devices of a request, ``{"uuids": [...]}``.

    Raises:
        WireError: too many, or not names of devices.
    """
    uuids = strings(raw, "uuids")
    if len(uuids) > UUIDS_MAX or any(len(uuid) > UUID_CHARACTERS_MAX for uuid in uuids):
        raise WireError("uuids: too many or too long")
    return uuids


class ProcessReader:
    """Reads processes from NVML."""

    def __init__(self, session: NvmlSession, proc_root: Path = Path("/proc")) -> None:
        self._session = session
        self._proc_root = proc_root

    async def answer(self, raw: JsonObject) -> Mapping[str, object]:
        """Answer one request, ``{"uuids": [...]}``.

        Raises:
            Unanswered: the driver does not answer.
            WireError: it is not a request.
        """
        usage = await self.look(devices_asked(raw))
        pid, start = identity(self._proc_root / "self")
        seen = SeenProcesses(
            reader_pid=pid,
            reader_start=start,
            processes=usage.processes,
            unread=tuple(
                UnreadDevice(gpu=gpu, why=why) for gpu, why in sorted(usage.unread.items())
            ),
        )
        return {"seen": seen.to_wire()}

    async def look(self, uuids: Sequence[str]) -> Usage:
        """Processes on these devices, by PID in this process's own namespace.

        Raises:
            Unanswered: the driver does not answer.
        """
        try:
            usage = await self._session.call(lambda api: read_processes(api, uuids))
            if uuids and len(usage.unread) == len(uuids):
                await self._session.close()
        except (NvmlError, NvmlStuck) as error:
            raise Unanswered(failure_text(error)) from error
        return usage


class HostProcesses:
    """The agent's client of the reader."""

    def __init__(self, socket: Path, proc_root: Path) -> None:
        self._socket = socket
        self._proc_root = proc_root

    async def look(self, uuids: Sequence[str]) -> Usage:
        """See :class:`ProcessSource`."""
        try:
            request = {"uuids": list(uuids)}
            answer = await ask(self._socket, request, HOST_LOOK_S, "the reader of processes")
            raw = answer.get("seen")
            seen = SeenProcesses.from_wire(raw if isinstance(raw, dict) else {})
        except Unanswered as error:
            raise ProcessesUnseen(f"{error}; see its pod on this node") from error
        except WireError as error:
            raise ProcessesUnseen(f"the reader of processes is not understood: {error}") from error
        self._check_numbers(seen)
        return Usage(
            processes=seen.processes, unread={unread.gpu: unread.why for unread in seen.unread}
        )

    def _check_numbers(self, seen: SeenProcesses) -> None:
        """Check that the reader's PID denotes the reader here too: then all PIDs agree."""
        if not lives(self._proc_root, ProcessId(seen.reader_pid, seen.reader_start)):
            raise ProcessesUnseen(
                "the reader of processes counts them in a namespace of its own, so it sees none of "
                "the host's: its pod needs hostPID"
            )
