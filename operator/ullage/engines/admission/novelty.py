# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Classifies how new a co-location is on this accelerator.

A word for the mixture as a whole: its least known tenant decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ullage.engines.admission.records import Group

KNOWN_PARTNERS: Final = 3
"""Classes that a class must have met before it counts as known; how often it met them says nothing
of the next one (derived)."""

Named = tuple[str, str]
"""A class and its family; the family may be empty."""
Names = tuple[str, str]
"""Two names, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Who met whom on one accelerator.

    Attributes:
        partners: How many classes each class met.
        families: Families of which some class met another.
        pairs: Classes that met.
        family_pairs: Families of which some classes met.
    """

    partners: Mapping[str, int] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    pairs: frozenset[Names] = frozenset()
    family_pairs: frozenset[Names] = frozenset()

    @classmethod
    def of(cls, met: Iterable[tuple[Named, Named]]) -> Self:
        """The history in which these met, each pair once or several times."""
        distinct = {tuple(sorted(pair)) for pair in met}
        sides = [{*pair} for pair in distinct]
        return cls(
            partners=Counter(name for pair in sides for name, _ in pair),
            families=frozenset(family_of(*one) for pair in sides for one in pair),
            pairs=frozenset(pair_of(one[0], other[0]) for one, other in distinct),
            family_pairs=frozenset(families_of(one, other) for one, other in distinct),
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
            not count and family_of(*one) not in self.families
            for one, count in zip(classes, met, strict=True)
        ):
            return Group.NEW_FAMILY
        if min(met, default=0) < KNOWN_PARTNERS:
            return Group.NEW_CONFIG
        strangers = len(classes) == 2 and families_of(*classes) not in self.family_pairs
        return Group.NEW_CONFIG if strangers else Group.KNOWN


def pair_of(one: str, other: str) -> Names:
    """Two names, sorted."""
    return (one, other) if one <= other else (other, one)


def family_of(workload_class: str, family: str) -> str:
    """The family of a class; one without is a family of its own."""
    return family or workload_class


def families_of(one: Named, other: Named) -> Names:
    """The families of two classes, sorted."""
    return pair_of(family_of(*one), family_of(*other))
