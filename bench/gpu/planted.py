# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Interference of a known form, for runs without a GPU: what an analysis has to find again.

The figures are invented. They must never be mistaken for measurements of any device.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

KNEE: Final = 0.78
"""Planted part of the peak bandwidth at which memory is full."""
NOISE: Final = 0.01
"""Spread of the logarithm of one iteration's time."""
WINDOW_NOISE: Final = 0.008
"""Spread of the logarithm of a whole window's mean."""
SM_COUNT: Final = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a workload asks alone on the whole device, and its time there."""

    solo_ms: float
    sm: float
    dram: float
    pipe: float
    idle: float
    fixed: float
    """Part of the time that no share changes."""

    @property
    def memory_bound(self) -> float:
        """Part of the kernel time that memory bounds."""
        return self.dram / (self.dram + self.pipe)

    def alone_ms(self, share: float) -> float:
        """Time alone at a share (fraction of the device)."""
        return self.solo_ms * (self.fixed + (1 - self.fixed) / share)


def _demand(*six: float) -> Demand:
    names = ("solo_ms", "sm", "dram", "pipe", "idle", "fixed")
    return Demand(**dict(zip(names, six, strict=True)))


DEMANDS: Final[Mapping[str, Demand]] = {
    "R50T": _demand(45, 0.85, 0.45, 0.50, 0.05, 0.10),
    "R50I": _demand(4, 0.40, 0.30, 0.35, 0.20, 0.40),
    "BERTT": _demand(60, 0.90, 0.40, 0.65, 0.05, 0.05),
    "BERTI": _demand(9, 0.80, 0.35, 0.60, 0.05, 0.10),
    "GPT2D": _demand(5, 0.35, 0.50, 0.15, 0.30, 0.50),
    "VITT": _demand(50, 0.88, 0.38, 0.60, 0.06, 0.08),
    "DLRM": _demand(15, 0.45, 0.70, 0.10, 0.10, 0.45),
    "PRE": _demand(18, 0.95, 0.25, 0.80, 0.02, 0.03),
    "DEC": _demand(3, 0.50, 0.75, 0.08, 0.10, 0.60),
    "UNET": _demand(14, 0.70, 0.40, 0.45, 0.08, 0.15),
    "R18T": _demand(30, 0.75, 0.50, 0.40, 0.08, 0.15),
    "LSTMT": _demand(25, 0.30, 0.35, 0.25, 0.35, 0.50),
    "GPT2T": _demand(40, 0.90, 0.42, 0.55, 0.05, 0.06),
    "CONVT": _demand(35, 0.78, 0.55, 0.40, 0.06, 0.12),
    "VITI": _demand(8, 0.75, 0.30, 0.55, 0.08, 0.12),
    "STREAM": _demand(0.9, 0.60, 0.77, 0.05, 0.01, 0.70),
    "GEMM": _demand(0.3, 0.98, 0.15, 0.90, 0.01, 0.01),
    "L2T": _demand(0.2, 0.70, 0.20, 0.20, 0.01, 0.20),
}


def contention(parts: Sequence[tuple[Demand, float]], knee: float = KNEE) -> tuple[float, ...]:
    """Contention factor of every tenant (demand, share), each against itself alone there.

    The form of the admission engine's prior, with the knee free (derived).
    """
    if len(parts) == 1:
        return (1.0,)
    compute = sum(min(share, one.sm) for one, share in parts)
    traffic = sum(
        min(knee, one.dram) * one.alone_ms(1.0) / one.alone_ms(share) for one, share in parts
    )
    crowd, full = max(1.0, compute), max(1.0, traffic / knee)
    return tuple(
        one.idle + (1 - one.idle) * ((1 - one.memory_bound) * crowd + one.memory_bound * full)
        for one, _ in parts
    )


def effective(percent: int) -> float:
    """Share after rounding down to an even number of multiprocessors."""
    return int(SM_COUNT * percent / 200) * 2 / SM_COUNT


def step_ms(members: Sequence[tuple[str, int]], place: int, seed: str) -> float:
    """Mean time of one iteration of a member in one window, with that window's own noise."""
    parts = [(DEMANDS[name], effective(percent)) for name, percent in members]
    factor = contention(parts)[place]
    noise = random.Random(f"window {seed} {members[place]}").gauss(0.0, WINDOW_NOISE)
    own, share = parts[place]
    return own.alone_ms(share) * factor * math.exp(noise)


def counters(members: Sequence[tuple[str, int]]) -> dict[str, float]:
    """What device counters show beside these members, percent of the peak."""
    parts = [(DEMANDS[name], effective(percent)) for name, percent in members]

    def total(name: str, most: float) -> float:
        slower = [one.alone_ms(1.0) / one.alone_ms(share) for one, share in parts]
        wanted: list[float] = [getattr(one, name) for one, _ in parts]
        return 100 * min(most, sum(a * b for a, b in zip(wanted, slower, strict=True)))

    idle = min(one.idle for one, _ in parts)
    return {
        "gpm_gfx": 100 * (1 - idle),
        "gpm_sm": total("sm", 1.0),
        "gpm_tensor": total("pipe", 1.0),
        "gpm_dram": total("dram", KNEE),
    }
