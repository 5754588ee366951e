# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What to train and for how long, read from the environment, so that a manifest can say it.

A misspelt number stops the program with a sentence; it is never replaced by a default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEARNING_RATE: Final = 0.1
MOMENTUM: Final = 0.9
WEIGHT_DECAY: Final = 1e-4
NOISE: Final = 0.1
"""Standard deviation of what is added to every pixel (0..1), so that no image is seen twice."""


class BadSetting(ValueError):
    """A variable of the environment cannot be used; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One training run. Two runs of one plan end with the same weights, bit for bit."""

    steps: int = 3000
    """STEPS: optimiser steps until the end."""
    batch: int = 128
    """BATCH: images per step, over all ranks together."""
    hidden: int = 128
    """HIDDEN: hidden units."""
    seed: int = 7
    """SEED: of initial weights, batches and noise."""
    checkpoint_every: int = 1000
    """CHECKPOINT_EVERY: steps between checkpoints."""
    checkpoint_dir: Path = Path("/tmp")
    """CHECKPOINT_DIR: where the checkpoint lies; make it outlive the container."""
    weights: Path | None = None
    """WEIGHTS: file for the trained weights; unset = they are not kept."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Plan:
        """Read the plan; what is unset keeps its default.

        Raises:
            BadSetting: a variable is no whole number or too small.
        """
        plan = cls()
        weights = environment.get("WEIGHTS")
        return cls(
            steps=whole(environment, "STEPS", plan.steps),
            batch=whole(environment, "BATCH", plan.batch),
            hidden=whole(environment, "HIDDEN", plan.hidden),
            seed=whole(environment, "SEED", plan.seed, least=0),
            checkpoint_every=whole(environment, "CHECKPOINT_EVERY", plan.checkpoint_every),
            checkpoint_dir=Path(environment.get("CHECKPOINT_DIR") or plan.checkpoint_dir),
            weights=Path(weights) if weights else None,
        )

    @property
    def fingerprint(self) -> int:
        """63-bit number of everything that decides the weights; equal plans, equal numbers."""
        decisive = (self.steps, self.batch, self.hidden, self.seed)
        rates = (LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, NOISE)
        digest = hashlib.sha256(repr((decisive, rates)).encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1


def whole(environment: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    """Read a whole number from the environment.

    Raises:
        BadSetting: it is none, or below ``least``.
    """
    text = environment.get(name)
    if text is None or not text.strip():
        return default
    try:
        number = int(text)
    except ValueError:
        raise BadSetting(f"{name}={text}: expected a whole number") from None
    if number < least:
        raise BadSetting(f"{name}={text}: expected at least {least}")
    return number
