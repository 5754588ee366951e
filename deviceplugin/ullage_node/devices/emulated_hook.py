# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hook that limits a container before its first instruction, and the records it leaves.

The script (``emulated_hook.sh``) runs on the host, outside the agent; this module writes it there,
composes its arguments and reads the record of each slot. Arguments are numbers and slot ids that
were checked here and are checked again by the script: no user input reaches a shell.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from ullage.api.slices import SLOT_PATTERN
from ullage_node.devices.cgroups import (
    QUOTA_MIN_US,
    CgroupUnreadable,
    ContainerCgroup,
    cgroup_from_record,
    format_cores,
    read_text,
)
from ullage_node.files import write_whole
from ullage_node.model.devices import BackendPaths, Hook, HookStage
from ullage_node.times import HOOK_TIMEOUT_S

HOOK_NAME: Final = "slice-hook"

_SOURCE: Final = "emulated_hook.sh"
_MODE: Final = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """The record that the hook wrote when it limited a container.

    ``pid`` is the container's first process in the host's PID namespace, ``quota_us`` the quota
    that the hook set: the slice's, or a smaller limit already in force.
    """

    pid: int
    quota_us: int
    cgroup: ContainerCgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScript:
    """The script on the host and the directory of its records."""

    paths: BackendPaths

    @property
    def path(self) -> Path:
        """Path of the script for the runtime."""
        return self.paths.state_dir / "bin" / HOOK_NAME

    @property
    def slots(self) -> Path:
        """Directory of the slots' records."""
        return self.paths.state_dir / "slots"

    def install(self) -> bool:
        """Write the script and its directory where they differ; true if anything was written.

        Raises:
            OSError: the state directory cannot be written.
        """
        wanted = render(self.paths, self.slots).encode()
        self.slots.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._is(wanted):
            return False
        write_whole(self.path, wanted, mode=_MODE)
        return True

    def call(self, slot: str, quota_us: int, cores: frozenset[int]) -> Hook:
        """The call that limits a container to ``quota_us`` per 100 ms on these cores.

        Raises:
            ValueError: an argument is invalid, or the quota is below the kernel's minimum.
        """
        if SLOT_PATTERN.fullmatch(slot) is None:
            raise ValueError(f"'{slot}' is no slot id")
        if quota_us < QUOTA_MIN_US:
            raise ValueError(f"a quota of {quota_us} us is below the kernel's {QUOTA_MIN_US} us")
        if not cores or min(cores) < 0:
            raise ValueError("a container needs at least one core, counted from 0")
        return Hook(
            stage=HookStage.CREATE_RUNTIME,
            path=str(self.path),
            args=(HOOK_NAME, slot, str(int(quota_us)), format_cores(cores)),
            timeout_seconds=HOOK_TIMEOUT_S,
        )

    def read_record(self, slot: str) -> SlotRecord | None:
        """The hook's record of a slot; ``None`` when it did not run since the last start.

        Raises:
            CgroupUnreadable: the file exists and is not a record of the hook.
        """
        text = read_text(f"{self.slots}/{slot}")
        if text is None:
            return None
        fields = dict(word.partition("=")[::2] for word in text.split())
        pid, quota = fields.get("pid", ""), fields.get("quota", "")
        if not (pid.isdigit() and quota.isdigit()):
            raise CgroupUnreadable(
                f"{self.slots / slot} is no record of the hook: '{text.strip()}'"
            )
        return SlotRecord(pid=int(pid), quota_us=int(quota), cgroup=cgroup_from_record(fields))

    def forget(self, slot: str) -> None:
        """Remove the record of a slot, if there is one."""
        (self.slots / slot).unlink(missing_ok=True)

    def remove(self) -> None:
        """Take the script and every record off the node."""
        for place in (self.slots, self.path.parent):
            for name in (place / entry for entry in _entries(place)):
                if name.parent == self.slots or HOOK_NAME in name.name:
                    name.unlink(missing_ok=True)
            if place.is_dir() and not _entries(place):
                place.rmdir()

    def _is(self, wanted: bytes) -> bool:
        try:
            return self.path.read_bytes() == wanted and self.path.stat().st_mode & 0o777 == _MODE
        except FileNotFoundError:
            return False


def render(paths: BackendPaths, slots: Path) -> str:
    """The script with this node's directories in it, quoted for the shell."""
    script = resources.files("ullage_node.devices").joinpath(_SOURCE).read_text(encoding="utf-8")
    for mark, place in (
        ("@CGROUP_ROOT@", paths.cgroup_root),
        ("@PROC_ROOT@", paths.proc_root),
        ("@SLOTS@", slots),
    ):
        script = script.replace(mark, shlex.quote(str(place)))
    return script


def _entries(place: Path) -> list[str]:
    try:
        return sorted(os.listdir(place))
    except FileNotFoundError:
        return []
