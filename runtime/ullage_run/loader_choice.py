# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the number of workers of a data loader from the epochs that it has run.

The first choice follows from one epoch: with n workers that deliver a batch in ``wait + compute``,
loading one takes n times that, and so many workers hide it behind the compute. Then one change an
epoch is tried and kept if the steps became faster: a store may collapse above some number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

GAIN: Final = 1.04
"""Speed over the best one from which a change is kept. Chosen."""
WAITS: Final = 0.05
"""Part of a step waited for data up to which nothing is changed. Chosen."""
AHEAD: Final = 1.25
"""Workers over the number that would just suffice. Chosen."""
EPOCHS_MOST: Final = 6
"""Epochs with changes; then the best settings stay. Chosen."""
PREFETCH_LEAST: Final = 2
"""Batches that each worker loads ahead, as torch has it by default."""
PREFETCH_MOST: Final = 4
"""The same where single batches take long. Chosen."""


@dataclass(frozen=True, slots=True, order=True)
class LoaderSettings:
    """Number of workers, and batches that each loads ahead."""

    workers: int
    prefetch: int = PREFETCH_LEAST


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Means over the steps of one epoch, seconds.

    Attributes:
        wait_s: Wait of the program for a batch.
        compute_s: Time from a batch until the program asks for the next one.
        cpu_s: CPU time of the program's thread within the wait; what it loads itself needs it.
    """

    wait_s: float
    compute_s: float
    cpu_s: float = 0.0

    @property
    def step_s(self) -> float:
        """Time of a step."""
        return self.wait_s + self.compute_s

    @property
    def waits(self) -> float:
        """Part of a step waited for data, 0 to 1."""
        return self.wait_s / self.step_s if self.step_s > 0 else 0.0


@dataclass(slots=True, kw_only=True)
class LoaderChoice:
    """Settings of one loader, from epoch to epoch.

    Attributes:
        most: Most workers.
        cores: Cores that the process may use.
    """

    most: int
    cores: float = 1.0
    epochs: dict[LoaderSettings, Epoch] = field(default_factory=dict)
    """The newest epoch of each setting that was tried."""
    settled: bool = False
    """Nothing more is tried."""

    @property
    def best(self) -> LoaderSettings | None:
        """The settings with the fastest steps; of nearly equal ones, those with fewest workers."""
        if not self.epochs:
            return None
        fastest = min(epoch.step_s for epoch in self.epochs.values())
        return min(at for at, epoch in self.epochs.items() if epoch.step_s <= fastest * GAIN)

    def next(self, settings: LoaderSettings, epoch: Epoch) -> LoaderSettings:
        """The settings of the next epoch.

        Args:
            settings: Those of the epoch that has ended.
            epoch: What it showed.
        """
        self.epochs[settings] = epoch
        best = self.best
        assert best is not None
        if not self.settled:
            for candidate in self._candidates(best):
                if candidate not in self.epochs and len(self.epochs) < EPOCHS_MOST:
                    return candidate
            self.settled = True
        return best

    def _candidates(self, best: LoaderSettings) -> list[LoaderSettings]:
        epoch = self.epochs[best]
        if epoch.waits <= WAITS:
            return []
        if len(self.epochs) == 1:
            return [LoaderSettings(self._enough(best, epoch), best.prefetch)]
        around = [
            LoaderSettings(min(self.most, best.workers * 2), best.prefetch),
            LoaderSettings(max(1, best.workers // 2), best.prefetch),
        ]
        if best.workers:
            around.append(LoaderSettings(best.workers, PREFETCH_MOST))
        return around

    def _enough(self, settings: LoaderSettings, epoch: Epoch) -> int:
        """Workers that hide the loading behind the compute."""
        loading = epoch.wait_s if not settings.workers else epoch.step_s * settings.workers
        wanted = AHEAD * loading / max(epoch.compute_s, loading / self.most)
        if not settings.workers and epoch.cpu_s > 0:
            wanted = min(wanted, max(1.0, self.cores * loading / epoch.cpu_s))
        return max(1, min(self.most, math.ceil(wanted)))
