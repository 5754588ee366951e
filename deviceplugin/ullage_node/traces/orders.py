# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders a trace of some steps from the programs of one container.

The directory belongs to the tenant, who may replace anything in it. Nothing of it is read, no link
in it is followed, and what cannot be written is an error of this order alone.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.api.captures import (
    ARMED_BYTES,
    ARMED_FILE,
    CAPTURE_STEPS_MOST,
    ORDER_BYTES_MOST,
    ORDER_FILE,
)
from ullage.api.readers import LARGEST
from ullage_node.traces.folder import answers_of, open_folder, read_plain, unfinished_in

ORDER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
"""The uid of a request fits; it becomes part of file names."""
_TEMPORARY: Final = ".order"
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOrder:
    """The steps to trace.

    Attributes:
        id: Name of the order, a uid.
        start_step: First step: as many steps are done before it since each rank's process began.
        steps: Number of steps, 1..50.
        stacks: Record Python stacks.
        shapes: Record shapes of inputs.
        ranks: Ranks of the job that answer, as the ranks know their numbers; ``None`` = all.
    """

    id: str
    start_step: int
    steps: int
    stacks: bool = False
    shapes: bool = False
    ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse an order that programs would not read.

        Raises:
            ValueError: the text names the field.
        """
        if not ORDER_ID.fullmatch(self.id):
            raise ValueError(f"id {self.id[:64]!r} must be a uid")
        if not 0 <= self.start_step <= LARGEST:
            raise ValueError(f"start_step {self.start_step} must be from 0 to {LARGEST}")
        if not 1 <= self.steps <= CAPTURE_STEPS_MOST:
            raise ValueError(f"steps {self.steps} must be from 1 to {CAPTURE_STEPS_MOST}")
        if len(self.encoded()) > ORDER_BYTES_MOST:
            raise ValueError(f"ranks: {len(self.ranks or ())} of them do not fit into an order")

    def encoded(self) -> bytes:
        """The order as programs read it: JSON."""
        body = {
            "id": self.id,
            "startStep": self.start_step,
            "steps": self.steps,
            "stacks": self.stacks,
            "shapes": self.shapes,
            "ranks": None if self.ranks is None else list(self.ranks),
        }
        return json.dumps(body, separators=(",", ":")).encode()


def place(steps_dir: Path, order: TraceOrder) -> None:
    """Order a trace; it replaces an earlier order.

    Args:
        steps_dir: Directory of the container's step records on the node.
        order: The steps.

    Raises:
        OSError: it cannot be written; FileNotFoundError for a container that was started before
            orders existed.
    """
    folder = open_folder(steps_dir)
    try:
        _remove(folder, _TEMPORARY)
        with os.fdopen(os.open(_TEMPORARY, _NEW_FILE, 0o644, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask
            file.write(order.encoded())
        os.rename(_TEMPORARY, ORDER_FILE, src_dir_fd=folder, dst_dir_fd=folder)
        _change_word(folder)
    finally:
        os.close(folder)


def is_placed(steps_dir: Path, order: TraceOrder) -> bool:
    """True when this order is placed: an agent that began again must not place it twice."""
    try:
        folder = open_folder(steps_dir)
    except OSError:
        return False
    try:
        return read_plain(folder, ORDER_FILE, ORDER_BYTES_MOST) == order.encoded()
    except OSError:
        return False
    finally:
        os.close(folder)


def placed_order(steps_dir: Path) -> str | None:
    """Name of the order that is placed; ``None`` without one. Its tenant may have written it."""
    try:
        folder = open_folder(steps_dir)
    except OSError:
        return None
    try:
        return _placed(folder)
    finally:
        os.close(folder)


def withdraw(steps_dir: Path, id: str, *, keep_answers: bool = False) -> None:
    """Take an order back and remove what ranks answered; nothing happens if there is none.

    Files that a rank had begun when its process was killed go, too.

    A rank that is tracing goes on to its last step. What it answers after that is removed by the
    next call.

    Args:
        steps_dir: Directory of the container's step records on the node.
        id: Name of the order.
        keep_answers: Leave traces and refusals: programs that start later must not answer again.

    Raises:
        OSError: something cannot be removed; call it again.
    """
    try:
        folder = open_folder(steps_dir)
    except FileNotFoundError:
        return
    try:
        if _placed(folder) == id:
            _remove(folder, ORDER_FILE)
            _change_word(folder)
        if not keep_answers:
            for name, _, _ in answers_of(folder, id):
                _remove(folder, name)
        for name in unfinished_in(folder, id):
            _remove(folder, name)
    finally:
        os.close(folder)


def _placed(folder: int) -> str | None:
    """Name of the order that is placed; ``None`` if there is none, or the tenant's own text."""
    try:
        body = json.loads(read_plain(folder, ORDER_FILE, ORDER_BYTES_MOST))
        return str(body["id"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _change_word(folder: int) -> None:
    """Set the word that programs compare to a new value: the time, which never repeats.

    Raises:
        OSError: there is no such file, or it is no plain one.
    """
    file = os.open(
        ARMED_FILE, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
    )
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{ARMED_FILE} is no plain file")
        os.pwrite(file, time.monotonic_ns().to_bytes(ARMED_BYTES, "little"), 0)
    finally:
        os.close(file)


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
