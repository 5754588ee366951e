# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects which MPS this node has; nothing is configured.

The control program must exist; its options follow from the driver's version (``versions``), and
protocol 3 is used only after a test daemon answered in it. Other daemons are found among the
processes: two of them on one device would take turns, so ours is not started. The test daemon is
always stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from ullage_node.mps.control import PROGRAM, DaemonDirectories
from ullage_node.mps.programs import ProgramCall, ProgramMissing, ProgramRunner, ProgramSilent
from ullage_node.mps.records import (
    MEMORY,
    PIPE,
    SHARE,
    VARIABLE_MAX,
    ClientEnvironment,
    Installed,
    Stranger,
)
from ullage_node.mps.versions import MANY_USERS_SINCE, NAMESPACES_SINCE, branch_of
from ullage_node.times import CONTROL_S, DAEMON_PROBE_PAUSE_S

DAEMON_COMM: Final = PROGRAM[:15]
"""The kernel keeps fifteen characters of a program's name."""
CMDLINE_MAX: Final = 4096
ENVIRON_MAX: Final = 128 << 10
UNTOLD: Final = "(too long or not printable)"
PROBE_PLACE: Final = "p"
PROBE_TRIES: Final = 10


class Processes:
    """The processes of /proc; the container shares the host's."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._proc = proc_root

    def strangers(self, root: Path) -> tuple[Stranger, ...]:
        """Control daemons whose pipes are not below our root."""
        strangers = []
        for entry in sorted(self._proc.iterdir()):
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if _is_daemon(entry):
                    env = _environment(entry)
                    if not env.get(PIPE, "").startswith(f"{root}/"):
                        gpus = env.get("CUDA_VISIBLE_DEVICES", "")
                        strangers.append(Stranger(pid=int(entry.name), gpus=_uuids(gpus)))
        return tuple(strangers)

    def environment(self, pid: int) -> ClientEnvironment | None:
        """The initial MPS variables of a process; ``None`` = not readable."""
        try:
            variables = _environment(self._proc / str(pid))
        except OSError:
            return None
        pipe, share, memory = (_told(variables.get(name, "")) for name in (PIPE, SHARE, MEMORY))
        return ClientEnvironment(pid=pid, pipe=pipe, share=share, memory=memory)


async def look_around(
    programs: ProgramRunner, processes: Processes, root: Path, driver: str
) -> Installed:
    """Detect the installation and other users of it; ``problem`` names what is missing.

    ``driver`` is the driver's version, "" = not sent by an agent yet.
    """
    strangers = processes.strangers(root)
    installed = Installed(version=driver, strangers=strangers)
    if not programs.found(PROGRAM):
        text = f"{PROGRAM} is not there; the driver's container image or the runtime class nvidia"
        return replace(installed, problem=f"{text} brings it")
    branch = branch_of(driver)
    if not branch:
        return replace(installed, problem=f"the driver's version {driver!r} is not known")
    three = branch >= NAMESPACES_SINCE and await _speaks_three(programs, root)
    return replace(
        installed, protocols=(2, 3) if three else (2,), multi_user=branch >= MANY_USERS_SINCE
    )


async def _speaks_three(programs: ProgramRunner, root: Path) -> bool:
    """True if a daemon started with ``-p 3`` answers in protocol 3."""
    # No device is visible to it, so no server can start and our daemons are not disturbed.
    place = DaemonDirectories(uuid="", directory=root / PROBE_PLACE)
    for path in (place.pipe, place.log):
        path.mkdir(parents=True, exist_ok=True)
    try:
        running = await programs.start(
            ProgramCall(words=(PROGRAM, "-f", "-p", "3", "-m"), env=place.env)
        )
    except ProgramMissing:
        shutil.rmtree(place.directory, ignore_errors=True)
        return False
    try:
        ask = ProgramCall(words=(PROGRAM, "server", "list", "--format=csv,noheader"), env=place.env)
        for _ in range(PROBE_TRIES):
            with contextlib.suppress(ProgramSilent, ProgramMissing):
                if (await programs.run(ask, CONTROL_S)).code == 0:
                    return True
            if running.returncode is not None:
                return False
            await asyncio.sleep(DAEMON_PROBE_PAUSE_S)
        return False
    finally:
        await running.stop(1.0)
        shutil.rmtree(place.directory, ignore_errors=True)


def _is_daemon(process: Path) -> bool:
    """True for a control daemon; its command line distinguishes it from the server."""
    if (process / "comm").read_text().strip() != DAEMON_COMM:
        return False
    with (process / "cmdline").open("rb") as file:
        words = file.read(CMDLINE_MAX).split(b"\0")
    program = os.path.basename(words[0].decode("utf-8", "replace"))
    return program == PROGRAM and (b"-d" in words or b"-f" in words)


def _environment(process: Path) -> dict[str, str]:
    """Variables of a process; the first of a name counts, as for ``getenv``."""
    with (process / "environ").open("rb") as file:
        raw = file.read(ENVIRON_MAX).decode("utf-8", "replace")
    pairs = (line.partition("=") for line in reversed(raw.split("\0")))
    return {name: value for name, _, value in pairs}


def _told(value: str) -> str:
    """A tenant's variable, sanitised for reports: our values are short and printable."""
    return value if len(value) <= VARIABLE_MAX and value.isprintable() else UNTOLD


def _uuids(visible: str) -> tuple[str, ...]:
    """Devices that a daemon names by uuid; any other naming may mean all of them."""
    names = tuple(filter(None, (part.strip() for part in visible.split(","))))
    return names if all(name.startswith("GPU-") for name in names) else ()
