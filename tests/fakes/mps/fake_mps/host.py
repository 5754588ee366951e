# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine's real parts behind the seams of the model: clock, processes and log files.

Only the executables use this module; the library runs on stand-ins of a test's own.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path

_FIRST_FREE_FD = 3
SHM_VARIABLE = "FAKE_MPS_SHM_DIRECTORY"


class SystemClock:
    """The clocks of the machine."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


def stamp(now_s: float, who: str, pid: int) -> str:
    """The beginning of a log line: ``[2021-06-27 07:30:24.637 Control     6]``."""
    moment = datetime.fromtimestamp(now_s).astimezone()
    text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    return f"[{text} {who} {pid:5d}]"


class FileLogs:
    """control.log and server.log in CUDA_MPS_LOG_DIRECTORY."""

    def __init__(self, directory: str, pid: int) -> None:
        os.makedirs(directory, exist_ok=True)
        self._control = Path(directory, "control.log")
        self._directory = Path(directory)
        self._server: dict[int, Path] = {}
        self._pid = pid

    def opened(self, pid: int, folder: str | None) -> None:
        """Choose the server's file."""
        place = self._directory if folder is None else self._directory / folder
        place.mkdir(exist_ok=True)
        self._server[pid] = place / "server.log"

    def control(self, text: str) -> None:
        """Append to control.log."""
        with self._control.open("a", encoding="utf-8") as log:
            log.write(f"{stamp(time.time(), 'Control', self._pid)} {text}\n")

    def server(self, pid: int, text: str) -> None:
        """Append to server.log."""
        with self._server[pid].open("a", encoding="utf-8") as log:
            log.write(f"{stamp(time.time(), 'Other', pid)} {text}\n")


class ForkedServers:
    """Server processes with PIDs of their own; they end with the daemon, whatever ends it."""

    def __init__(self, shm_directory: str | None) -> None:
        self._read_end, self._write_end = os.pipe()
        self._shm_directory = shm_directory
        self._regions: list[Path] = []

    def spawn(self, uid: int) -> int:
        """Fork a process that waits until the daemon is gone or someone kills it."""
        pid = os.fork()
        if pid:
            return pid
        try:
            self._be_a_server(uid)
        finally:
            os._exit(1)

    def _be_a_server(self, uid: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(_FIRST_FREE_FD, self._read_end)
        os.closerange(self._read_end + 1, os.sysconf("SC_OPEN_MAX"))
        Path("/proc/self/comm").write_text("nvidia-cuda-mps", encoding="ascii")
        if os.geteuid() == 0 and uid:
            os.setgid(uid)
            os.setuid(uid)
        os.read(self._read_end, 1)
        os._exit(0)

    def stop(self, pid: int) -> None:
        """Kill a server and wait for its end."""
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            return

    def share(self, name: str) -> None:
        """Make the named region, where a directory for regions was given."""
        if self._shm_directory is not None:
            region = Path(self._shm_directory, name.lstrip("/"))
            region.write_bytes(b"")
            self._regions.append(region)

    def unshare(self) -> None:
        """Take the regions away again."""
        for region in self._regions:
            region.unlink(missing_ok=True)

    def ended(self) -> list[tuple[int, int]]:
        """PIDs and exit statuses of servers that ended by themselves or by a signal."""
        found: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            found.append((pid, os.waitstatus_to_exitcode(status)))
