# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the state of a run in one file that is always whole.

The file is written beside its place and renamed into it, so a program killed at any instruction
leaves the old checkpoint or the new one, never half of one.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from digits.data import Floats
from digits.training import State

NAME: Final = "checkpoint.npz"


class CheckpointUnusable(RuntimeError):
    """There is a checkpoint, but not of this run; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Store:
    """The place of one run's checkpoint; ``fingerprint`` is the plan's."""

    folder: Path
    fingerprint: int

    @property
    def file(self) -> Path:
        """Where the checkpoint lies."""
        return self.folder / NAME

    def save(self, state: State) -> None:
        """Write the state.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write(
            self.file,
            fingerprint=np.int64(self.fingerprint),
            step=np.int64(state.step),
            theta=state.theta,
            velocity=state.velocity,
        )

    def load(self) -> State | None:
        """Read the state; ``None`` when there is no checkpoint.

        Raises:
            CheckpointUnusable: it is damaged or belongs to another plan.
        """
        if not self.file.exists():
            return None
        saved = read(self.file, "fingerprint", "step", "theta", "velocity")
        if int(saved["fingerprint"]) != self.fingerprint:
            raise CheckpointUnusable(
                f"{self.file} belongs to a run with other settings: remove it, or give this run "
                "its own CHECKPOINT_DIR"
            )
        return State(step=int(saved["step"]), theta=saved["theta"], velocity=saved["velocity"])

    def discard(self) -> None:
        """Remove the checkpoint of a finished run, so that the next one starts afresh."""
        self.file.unlink(missing_ok=True)


def write(file: Path, **arrays: NDArray[np.generic] | np.generic) -> None:
    """Write arrays to a file at once or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    partial = file.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # numpy's stub: the last is a flag
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def read(file: Path, *names: str) -> dict[str, Floats]:
    """Read arrays from a file.

    Raises:
        CheckpointUnusable: the file is damaged or lacks one of them.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as saved:
            return {name: saved[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointUnusable(f"{file} cannot be read, remove it: {error}") from error
