# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Starvation of containers by others, from windows of the volumes of one node.

A container starves once it was short in several windows in a row, and recovers the same way, so a
burst of another makes no news.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.dataio.fairness import Shortfall, VolumeJudgement, VolumeUse, judge

WINDOWS: Final = 3
"""Windows in a row after which a container starves, or has recovered. Chosen."""
REMEMBERED: Final = 12
"""Windows for which a wish is remembered of a container that gets next to nothing. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """A container starves on a volume.

    Attributes:
        volume: The volume.
        newest: The newest window in which it was short.
        windows: Windows in which it was short since it first was.
    """

    volume: str
    newest: Shortfall
    windows: int


@dataclass(slots=True)
class _Streak:
    newest: Shortfall
    hogs: Counter[Hashable]
    short: int = 0
    in_a_row: int = 0
    well_in_a_row: int = 0
    starves: bool = False


@dataclass(slots=True)
class _Wish:
    wanted: float
    age: int = 0


class StarvationWatch:
    """Follows the volumes of a node; bounded by the containers that the caller hands in."""

    def __init__(self) -> None:
        self._streaks: dict[tuple[str, Hashable], _Streak] = {}
        self._wishes: dict[tuple[str, Hashable], _Wish] = {}
        self.judgements: Mapping[str, VolumeJudgement] = {}
        """The newest window of each volume."""

    def take(self, windows: Mapping[str, Sequence[VolumeUse]]) -> tuple[Starvation, ...]:
        """Take in one window of all volumes.

        Args:
            windows: Uses by volume, each container once; one that is missing has gone.

        Returns:
            Containers that starve now, sorted by volume and container.
        """
        present = {(volume, use.key) for volume, uses in windows.items() for use in uses}
        self._streaks = {at: kept for at, kept in self._streaks.items() if at in present}
        self._wishes = {at: kept for at, kept in self._wishes.items() if at in present}
        self.judgements = {
            volume: judge([self._with_wish(volume, use) for use in uses])
            for volume, uses in windows.items()
        }
        for volume, judgement in self.judgements.items():
            short = {case.victim: case for case in judgement.short}
            for victim, case in short.items():
                self._is_short(volume, victim, case)
            for (where, victim), streak in list(self._streaks.items()):
                if where == volume and victim not in short:
                    self._is_well(volume, victim, streak)
        return tuple(
            Starvation(
                volume=volume,
                newest=replace(
                    streak.newest,
                    hog=max(streak.hogs, key=lambda hog: (streak.hogs[hog], str(hog))),
                ),
                windows=streak.short,
            )
            for (volume, _), streak in sorted(
                self._streaks.items(), key=lambda item: (item[0][0], str(item[0][1]))
            )
            if streak.starves
        )

    def _with_wish(self, volume: str, use: VolumeUse) -> VolumeUse:
        """The use with what the container was last seen to want, renewed while it moves data."""
        at = (volume, use.key)
        wish = self._wishes.get(at)
        wanted = replace(use, wanted_before=0.0).wanted
        if wish is None or wanted >= wish.wanted or not use.waits or wish.age >= REMEMBERED:
            self._wishes[at] = _Wish(wanted)
            return use
        wish.age += 1
        return replace(use, wanted_before=wish.wanted)

    def _is_short(self, volume: str, victim: Hashable, case: Shortfall) -> None:
        streak = self._streaks.setdefault((volume, victim), _Streak(case, Counter()))
        streak.newest = case
        streak.hogs[case.hog] += 1
        streak.short += 1
        streak.in_a_row += 1
        streak.well_in_a_row = 0
        streak.starves = streak.starves or streak.in_a_row >= WINDOWS

    def _is_well(self, volume: str, victim: Hashable, streak: _Streak) -> None:
        streak.in_a_row = 0
        streak.well_in_a_row += 1
        if not streak.starves or streak.well_in_a_row >= WINDOWS:
            del self._streaks[volume, victim]
