# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's memory across restarts: epochs, held slices, bound slots.

The file only helps to recognise existing state: every entry is compared with kubelet's list, the
spec and the devices before it is used. A file that cannot be trusted is set aside and the agent
rebuilds from those three. It is written at most once per change, never concurrently: a container
start waits for its write, all else is saved soon after. After a reboot nothing is attached,
whatever the file says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from ullage.api.readers import WireError, flag, objects, section, text, whole
from ullage.api.reasons import Reason
from ullage.api.slices import MAX_EPOCH, DesiredSlice, SliceKey, SlicePhase
from ullage.process.faults import fault_text
from ullage.process.threads import in_thread
from ullage_node.files import read_bounded, remove_temporaries, write_whole
from ullage_node.model.devices import ContainerBinding
from ullage_node.model.slices import HeldSlice
from ullage_node.slices.desired import read_decision
from ullage_node.slices.table import SliceTable, binding_of
from ullage_node.times import FILE_RETRY_S

VERSION: Final = 1
ASIDE_SUFFIX: Final = ".corrupt"
MOST_BYTES: Final = 8 << 20
"""Largest checkpoint; 2,048 slices take about 1.5 MiB."""
QUARANTINE_MOST: Final = 1e11
"""Latest end of a quarantine, seconds since the epoch; thousands of years ahead."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class CheckpointCorrupt(ValueError):
    """The file is unreadable or corrupt; the text says how this was detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCheckpoint:
    """One saved state."""

    boot_id: str
    epoch: int
    held: tuple[HeldSlice, ...] = ()
    bindings: tuple[ContainerBinding, ...] = ()
    quarantine: Mapping[str, float] = field(default_factory=dict)
    """Devices that are not to be used before this time (seconds since the epoch)."""


def snapshot(table: SliceTable, boot_id: str, quarantine: Mapping[str, float]) -> SliceCheckpoint:
    """The state to save now."""
    unread = Reason.INVALID_OBJECT.value
    return SliceCheckpoint(
        boot_id=boot_id,
        epoch=table.epoch,
        held=tuple(part for part in table.held if part.reason != unread),
        bindings=table.bindings,
        quarantine=dict(quarantine),
    )


def encode(state: SliceCheckpoint) -> bytes:
    """The file's content."""
    body: dict[str, object] = {
        "version": VERSION,
        "bootId": state.boot_id,
        "epoch": state.epoch,
        "slices": [_held_to_wire(part) for part in state.held],
        "slots": {
            part.slot: {
                "podUid": binding.key.pod_uid,
                "container": binding.key.container,
                "index": part.index,
            }
            for binding in state.bindings
            for part in binding.slices
        },
        "quarantine": dict(state.quarantine),
    }
    return json.dumps(body | {"checksum": _checksum(body)}, sort_keys=True).encode()


def decode(data: bytes) -> SliceCheckpoint:
    """Read a file's content.

    Raises:
        CheckpointCorrupt: it is not an output of :func:`encode`.
    """
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            raise CheckpointCorrupt("not a JSON object")
        if body.pop("checksum", None) != _checksum(body):
            raise CheckpointCorrupt("wrong checksum")
        if body.get("version") != VERSION:
            raise CheckpointCorrupt(f"version {body.get('version')}, expected {VERSION}")
        held = tuple(_held_from_wire(entry) for entry in objects(body, "slices"))
        return SliceCheckpoint(
            boot_id=text(body, "bootId"),
            epoch=_epoch(body),
            held=held,
            bindings=_bindings(section(body, "slots"), held),
            quarantine=_quarantine(section(body, "quarantine")),
        )
    except CheckpointCorrupt:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointCorrupt(fault_text(error)) from error


def load(path: Path) -> SliceCheckpoint | None:
    """The saved state, or ``None`` if none exists.

    Raises:
        CheckpointCorrupt: the file was set aside; the text says why.
    """
    if path.parent.is_dir():
        remove_temporaries(path.parent, path.name)
    try:
        return decode(read_bounded(path, MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, CheckpointCorrupt) as error:
        with contextlib.suppress(OSError):  # it is not used, even if it cannot be moved
            path.replace(path.with_name(path.name + ASIDE_SUFFIX))
        raise CheckpointCorrupt(str(error)) from error


def save(path: Path, state: SliceCheckpoint) -> None:
    """Write the state durably: it survives a crash of the process and the machine.

    Raises:
        OSError: the file system refuses; the old state is intact.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, encode(state), mode=0o600)


def remove(path: Path) -> None:
    """Remove the checkpoint and the files set aside."""
    for name in (path, path.with_name(path.name + ASIDE_SUFFIX)):
        name.unlink(missing_ok=True)
    if path.parent.is_dir():
        remove_temporaries(path.parent, path.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of a restore."""

    quarantine: Mapping[str, float]
    """Devices in quarantine until a wall-clock time."""
    problem: str = ""
    """Reason why the checkpoint was set aside, if it was."""


def boot_id(proc_root: Path) -> str:
    """Identity of this boot of the machine; empty where the kernel does not report it."""
    try:
        return (proc_root / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def restore(table: SliceTable, path: Path, boot: str) -> Restored:
    """Fill an empty book from the checkpoint."""
    try:
        saved = load(path)
    except CheckpointCorrupt as error:
        _log.error("checkpoint set aside", path=str(path), error=str(error))
        return Restored(quarantine={}, problem=f"{path}: {error}; set aside and rebuilt")
    if saved is None:
        return Restored(quarantine={})
    table.restore(saved.epoch, saved.held, saved.bindings)
    if saved.boot_id != boot:
        for binding in saved.bindings:
            table.release_slots(binding.key)
    _log.info(
        "restored",
        slices=len(saved.held),
        bound=len(table.bindings),
        epoch=saved.epoch,
        rebooted=saved.boot_id != boot,
    )
    return Restored(quarantine=saved.quarantine)


class Saver:
    """Owns the checkpoint file while ``enabled``."""

    def __init__(self, path: Path, compose: Callable[[], SliceCheckpoint]) -> None:
        self._path = path
        self._compose = compose
        self._lock = asyncio.Lock()
        self._poked = asyncio.Event()
        self._saved: SliceCheckpoint | None = None
        self.enabled = True
        self.writes = 0

    def poke(self) -> None:
        """Request a save: the state may have changed."""
        self._poked.set()

    async def save(self) -> None:
        """Save the current state; returns when it is durable.

        Raises:
            OSError: the file system refuses.
        """
        async with self._lock:
            state = self._compose()
            if not self.enabled or state == self._saved:
                return
            # fsync may take long on a busy disk; the event loop must not wait for it.
            await in_thread(save, self._path, state)
            self._saved = state
            self.writes += 1

    async def disable(self) -> None:
        """Stop writing; returns when no write is under way."""
        async with self._lock:
            self.enabled = False
            self._saved = None

    async def run(self) -> None:
        """Save on request until cancelled."""
        while True:
            await self._poked.wait()
            self._poked.clear()
            try:
                await self.save()
            except OSError as error:
                _log.error("checkpoint not written", path=str(self._path), error=str(error))
                await asyncio.sleep(FILE_RETRY_S)
                self._poked.set()


def _checksum(body: Mapping[str, object]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _held_to_wire(part: HeldSlice) -> dict[str, object]:
    return {
        "desired": part.desired.to_wire(),
        "phase": part.phase.value,
        "seen": part.seen,
        "reason": part.reason,
        "message": part.message,
    }


def _held_from_wire(raw: Mapping[str, object]) -> HeldSlice:
    return HeldSlice(
        desired=read_decision(section(raw, "desired")),
        phase=SlicePhase(text(raw, "phase")),
        in_spec=False,
        seen=flag(raw, "seen"),
        reason=text(raw, "reason"),
        message=text(raw, "message"),
    )


def _epoch(body: Mapping[str, object]) -> int:
    epoch = whole(body, "epoch")
    if not 0 <= epoch <= MAX_EPOCH:
        raise WireError(f"epoch: {epoch} is not within 0 to {MAX_EPOCH}")
    return epoch


def _bindings(
    slots: Mapping[str, object], held: tuple[HeldSlice, ...]
) -> tuple[ContainerBinding, ...]:
    known = {part.desired.key: part.desired for part in held}
    parts: defaultdict[tuple[str, str], list[tuple[DesiredSlice, str]]] = defaultdict(list)
    for slot in slots:
        raw = section(slots, slot)
        key = SliceKey(
            pod_uid=text(raw, "podUid"), container=text(raw, "container"), index=whole(raw, "index")
        )
        if key not in known:
            raise CheckpointCorrupt(f"{slot} is bound to an unknown slice")
        parts[key.pod_uid, key.container].append((known[key], slot))
    return tuple(
        binding_of(sorted(entries, key=lambda entry: entry[0].key))
        for _, entries in sorted(parts.items())
    )


def _quarantine(raw: Mapping[str, object]) -> dict[str, float]:
    until_s = {
        gpu: float(until)
        for gpu, until in raw.items()
        if isinstance(until, int | float) and abs(until) < QUARANTINE_MOST
    }
    if len(until_s) != len(raw):
        raise WireError("quarantine: expected times in seconds")
    return until_s
