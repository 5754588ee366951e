# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Classifies the novelty of a co-location on one accelerator by its least known tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ullage.engines.admission.records import Group

KNOWN_PARTNERS: Final = 3
"""Different partners that make a class known; repeated meetings with one say nothing about the next
one (derived)."""

Named = tuple[str, str]
"""A class and its family; the family may be empty."""
Names = tuple[str, str]
"""Two names, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Co-locations of classes on one accelerator.

    Attributes:
        partners: Number of other classes that each class met.
        families: Families with a class that met another.
        pairs: Classes that met.
        family_pairs: Families with classes that met.
    """

    partners: Mapping[str, int] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    pairs: frozenset[Names] = frozenset()
    family_pairs: frozenset[Names] = frozenset()

    @classmethod
    def of(cls, met: Iterable[tuple[Named, Named]]) -> Self:
        """The history of these meetings; pairs may repeat."""
        distinct = {tuple(sorted(pair)) for pair in met}
        sides = [{*pair} for pair in distinct]
        return cls(
            partners=Counter(name for pair in sides for name, _ in pair),
            families=frozenset(family_of(*named) for pair in sides for named in pair),
            pairs=frozenset(pair_of(first[0], second[0]) for first, second in distinct),
            family_pairs=frozenset(families_of(first, second) for first, second in distinct),
        )

    def group_of(self, classes: Sequence[Named]) -> Group:
        """Novelty group of a mixture.

        Args:
            classes: Class and family of every tenant.
        """
        if len(classes) > 2:
            return Group.MANY
        if len(classes) == 2 and pair_of(*(name for name, _ in classes)) in self.pairs:
            return Group.SEEN_PAIR
        met = [self.partners.get(name, 0) for name, _ in classes]
        if any(
            not count and family_of(*named) not in self.families
            for named, count in zip(classes, met, strict=True)
        ):
            return Group.NEW_FAMILY
        if min(met, default=0) < KNOWN_PARTNERS:
            return Group.NEW_CONFIG
        strangers = len(classes) == 2 and families_of(*classes) not in self.family_pairs
        return Group.NEW_CONFIG if strangers else Group.KNOWN


def pair_of(first: str, second: str) -> Names:
    """Two names, sorted."""
    return (first, second) if first <= second else (second, first)


def family_of(workload_class: str, family: str) -> str:
    """The family of a class; one without is a family of its own."""
    return family or workload_class


def families_of(first: Named, second: Named) -> Names:
    """The families of two classes, sorted."""
    return pair_of(family_of(*first), family_of(*second))
