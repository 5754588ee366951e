# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Restores the predecessor's state when an agent starts.

After a reboot nothing is attached, whatever the file says. A file that cannot be trusted is logged
and otherwise ignored: kubelet's list, the spec and the CDI files rebuild the book.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from ullage_node.slices.checkpoint import CheckpointCorrupt, load
from ullage_node.slices.table import SliceTable

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of a restore."""

    quarantine: Mapping[str, float]
    """Devices not to be trusted before a wall-clock time."""
    problem: str = ""
    """Why the checkpoint was set aside, if it was."""


def boot_id(proc_root: Path) -> str:
    """Identity of this boot of the machine; empty where the kernel does not say."""
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
