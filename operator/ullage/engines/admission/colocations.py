# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Observed rows as input for learning: checked, bounded, in a fixed order.

A row with an impossible number is rejected with an error that names it; rows are never repaired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.features import class_features
from ullage.engines.admission.model import step_of
from ullage.engines.admission.pair_gp import MAX_ROWS, Rows
from ullage.engines.admission.prior import Side, base, side_of
from ullage.engines.admission.records import ClassProfile, Row, origin_of
from ullage.engines.admission.times import COLOCATION_WINDOW_S, MEETING_GAP_S

Item = TypeVar("Item")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Classes with their features, and the base forecast of any pair of them."""

    profiles: tuple[ClassProfile, ...]
    index: Mapping[str, int]
    features: Floats
    _made: dict[tuple[str, int], Side] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, profiles: Sequence[ClassProfile]) -> Sides:
        """Classes sorted by key."""
        ordered = tuple(sorted(profiles, key=lambda profile: profile.workload_class))
        index = {profile.workload_class: number for number, profile in enumerate(ordered)}
        return cls(profiles=ordered, index=index, features=class_features(ordered))

    def log_base(self, workload_class: str, percent: int, other: str, other_percent: int) -> float:
        """Base log slowdown of a class beside another.

        Args:
            workload_class: Class that is slowed.
            percent: Its share, 1..100.
            other: Class beside it.
            other_percent: Share of the other, 1..100.

        Returns:
            Log of the slowdown against the whole device alone, at least 0.

        Raises:
            KeyError: a class is not among the profiles.
            ValueError: a share is not within 1..100.
        """
        sides = [self.at(workload_class, percent), self.at(other, other_percent)]
        return base(sides)[0][0]

    def at(self, workload_class: str, percent: int) -> Side:
        """A class at a share as input of the prior; made once.

        Args:
            workload_class: One of the profiles.
            percent: Its share, 1..100.

        Raises:
            KeyError: the class is not among the profiles.
            ValueError: the share is not within 1..100.
        """
        key = (workload_class, percent)
        if key not in self._made:
            self._made[key] = side_of(self.profiles[self.index[workload_class]], percent)
        return self._made[key]

    def rows(
        self, victim: Ints, aggressor: Ints, shares: tuple[Floats, Floats], logs: Floats
    ) -> Rows:
        """Kernel inputs: solo features, both shares (fractions), and the base forecast.

        Args:
            victim: Class number of each row's victim, shape (n,).
            aggressor: Class number of each row's aggressor, shape (n,).
            shares: Shares of victim and aggressor as fractions 0..1, each of shape (n,).
            logs: Base log slowdown of each row, shape (n,).

        Returns:
            Rows with features of shape (n, solo features + 3) on each side.
        """
        extra = np.stack([2.0 * shares[0], 2.0 * shares[1], logs], axis=1)
        return Rows(
            victim=victim,
            aggressor=aggressor,
            victim_features=np.hstack([self.features[victim], extra]),
            aggressor_features=np.hstack([self.features[aggressor], extra]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Directional rows of two tenants: kernel inputs, log slowdowns, and the observations.

    ``colocation`` numbers the co-location of each row.
    """

    kept: tuple[Row, ...]
    rows: Rows
    log_base: Floats
    observed: Floats
    colocation: Ints

    @property
    def target(self) -> Floats:
        """Log residual over the base forecast."""
        out: Floats = self.observed - self.log_base
        return out


def check_row(row: Row) -> None:
    """Refuse a row that cannot be an observation.

    Raises:
        ValueError: a number is not finite, or out of its range; names the row and the number.
    """
    for name, value in (("slowdown", row.slowdown), ("step_s", row.step_s), ("at_s", row.at_s)):
        if not math.isfinite(value) or value < 0 or (name == "slowdown" and value == 0):
            raise ValueError(
                f"row {row.id} of class {row.workload_class}: {name} is {value:g}; drop the row"
            )
    shares = [row.percent, *(partner.percent for partner in row.partners)]
    if any(not 0 < share <= 100 for share in shares):
        raise ValueError(
            f"row {row.id} of class {row.workload_class}: a share is not within 1..100 percent"
        )


def bounded(rows: Sequence[Row], *, limit: int = MAX_ROWS) -> tuple[Row, ...]:
    """At most ``limit`` rows: the newest of every class pair and share step before older ones.

    The origins of classes take turns, and with several origins each contributes at most half of the
    rows, so that no namespace outweighs all others together.

    Args:
        rows: Observations with at least one partner each; the first partner names the pair.
        limit: Most rows to keep.

    Returns:
        The kept rows, oldest first.
    """
    newest = sorted(rows, key=lambda row: (-row.at_s, row.id))
    places: dict[tuple[str, int, str, int], int] = {}
    ranked = []
    for row in newest:
        other = row.partners[0]
        key = (
            row.workload_class,
            step_of(row.percent),
            other.workload_class,
            step_of(other.percent),
        )
        rank = places[key] = places.get(key, -1) + 1
        ranked.append((rank, -row.at_s, row.id, row))
    ordered = [row for *_, row in sorted(ranked, key=lambda item: item[:3])]
    kept = in_turn(ordered, lambda row: origin_of(row.workload_class), limit, most=limit // 2)
    return tuple(sorted(kept, key=lambda row: (row.at_s, row.id)))


def in_turn(
    ordered: Sequence[Item],
    origin: Callable[[Item], Hashable],
    limit: int,
    *,
    most: int | None = None,
) -> list[Item]:
    """At most ``limit`` of the items, taken round-robin by origin, in their order.

    No origin displaces another's first ``limit / origins`` items.

    Args:
        ordered: Items, the preferred first.
        origin: Names the origin of an item.
        limit: Most items to keep.
        most: Most items of one origin where there are several; ``None`` = ``limit``.
    """
    counts: dict[Hashable, int] = {}
    turns: list[tuple[int, int, Item]] = []
    for place, item in enumerate(ordered):
        turn = counts[origin(item)] = counts.get(origin(item), -1) + 1
        turns.append((turn, place, item))
    most = limit if most is None or len(counts) < 2 else most
    fair = sorted((turn for turn in turns if turn[0] < most), key=lambda turn: turn[:2])
    return [item for *_, item in fair[:limit]]


def mixture(row: Row) -> tuple[tuple[str, int], ...]:
    """Classes and shares of all tenants of the device, sorted."""
    partners = ((partner.workload_class, partner.percent) for partner in row.partners)
    return tuple(sorted([(row.workload_class, row.percent), *partners]))


def meetings(rows: Sequence[Row]) -> tuple[Row, ...]:
    """One row for each tenant of every meeting: the median of its windows.

    Windows of one meeting repeat the same evidence: twenty of them are one trial (derived). A
    meeting is one mixture without a pause longer than ``MEETING_GAP_S``. Its rows have the time of
    its last window, and objective and id of the tenant's newest window.

    Args:
        rows: Windows; those of lone tenants are left out.

    Returns:
        Rows of meetings, oldest first.
    """
    by_mixture: dict[tuple[tuple[str, int], ...], list[Row]] = {}
    for row in rows:
        if row.partners:
            by_mixture.setdefault(mixture(row), []).append(row)
    tenant_rows: list[Row] = []
    for windows in by_mixture.values():
        windows.sort(key=lambda row: (row.at_s, row.id))
        begun = 0
        for place, row in enumerate(windows, start=1):
            ends = place == len(windows)
            if ends or windows[place].at_s - row.at_s > MEETING_GAP_S:
                tenant_rows += _medians(windows[begun:place])
                begun = place
    return tuple(sorted(tenant_rows, key=lambda row: (row.at_s, row.id)))


def _medians(windows: Sequence[Row]) -> list[Row]:
    """One row for each tenant of a meeting, from its windows, oldest first."""
    by_tenant: dict[tuple[str, int], list[Row]] = {}
    for row in windows:
        by_tenant.setdefault((row.workload_class, row.percent), []).append(row)
    return [
        replace(
            rows[-1],
            slowdown=math.exp(median(math.log(row.slowdown) for row in rows)),
            step_s=median(row.step_s for row in rows),
            at_s=windows[-1].at_s,
        )
        for rows in by_tenant.values()
    ]


def colocations(rows: Sequence[Row]) -> list[list[int]]:
    """Rows of the same mixture within one window, as lists of indices, oldest first."""
    by_mixture: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, row in enumerate(rows):
        by_mixture.setdefault(mixture(row), []).append(number)
    indices = []
    for _, numbers in sorted(by_mixture.items()):
        numbers.sort(key=lambda number: (rows[number].at_s, rows[number].id))
        size = len(rows[numbers[0]].partners) + 1
        groups = [[numbers[0]]]
        for before, after in pairwise(numbers):
            apart = rows[after].at_s - rows[groups[-1][0]].at_s >= COLOCATION_WINDOW_S
            if apart or len(groups[-1]) == size or rows[before].id == rows[after].id:
                groups.append([])
            groups[-1].append(after)
        indices += groups
    return indices


def pairs(rows: Sequence[Row], sides: Sides) -> Pairs:
    """Rows with exactly one partner, bounded, as kernel inputs.

    Args:
        rows: Observations; those with several partners are left out.
        sides: Classes of all rows, with features.

    Returns:
        Directional rows, at most ``MAX_ROWS``.

    Raises:
        KeyError: a class is not among the sides.
    """
    kept = bounded([row for row in rows if len(row.partners) == 1])
    victim = np.array([sides.index[row.workload_class] for row in kept], np.int64)
    aggressor = np.array([sides.index[row.partners[0].workload_class] for row in kept], np.int64)
    shares = np.array([row.percent / 100 for row in kept])
    other = np.array([row.partners[0].percent / 100 for row in kept])
    logs = np.array(
        [
            sides.log_base(
                row.workload_class,
                row.percent,
                row.partners[0].workload_class,
                row.partners[0].percent,
            )
            for row in kept
        ]
    )
    numbers = np.zeros(len(kept), np.int64)
    for place, group in enumerate(colocations(kept)):
        numbers[group] = place
    return Pairs(
        kept=kept,
        rows=sides.rows(victim, aggressor, (shares, other), logs),
        log_base=logs,
        observed=np.log(np.array([row.slowdown for row in kept], float)),
        colocation=numbers,
    )


def with_rows(
    profiles: Mapping[str, ClassProfile], rows: Sequence[Row]
) -> tuple[ClassProfile, ...]:
    """Every class of the profiles and of the rows, with the count of its co-location rows.

    Args:
        profiles: By workload class.
        rows: Observations; a class without a profile gets an empty one.
    """
    counts: dict[str, int] = {}
    families: dict[str, str] = {}
    for row in rows:
        families.setdefault(row.workload_class, row.family)
        counts[row.workload_class] = counts.get(row.workload_class, 0) + 1
        for partner in row.partners:
            families.setdefault(partner.workload_class, "")
    classes = dict(profiles)
    for name, family in families.items():
        classes.setdefault(name, ClassProfile(workload_class=name, family=family))
    return tuple(
        replace(profile, rows=counts.get(profile.workload_class, 0)) for profile in classes.values()
    )
