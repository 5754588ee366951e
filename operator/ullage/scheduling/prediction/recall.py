# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Forecasts that were made before: one decision asks for the same mixtures again and again.

A forecast rests on classes and shares alone, so jobs that differ in objective or name share it.
Kept over cycles as long as the model is the same; changes nothing but the cost of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from ullage.cluster.values.bounded import MIB, Memo
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import ClassProfile, Forecast, Tenant

_FORECASTS_BYTES: Final = 64 * MIB
"""Of the forecasts of one model: about 100,000."""
_FORECAST_BYTES: Final = 600
"""What one takes with its key (derived): mixtures are small, and weighing costs time."""
_PROFILES_BYTES: Final = 64 * MIB

Forecasts = Memo[tuple[tuple[int, float, int], ...], Forecast]
"""By share, utilisation and number of profile of every tenant."""


def no_forecasts() -> Forecasts:
    """None are known yet."""
    return Memo(_FORECASTS_BYTES, weigh=lambda _: _FORECAST_BYTES // 2)


@dataclass(slots=True)
class ProfileNumbers:
    """A number for every profile that was met: hashing one costs as much as a forecast."""

    _known: Memo[ClassProfile, int] = field(default_factory=lambda: Memo(_PROFILES_BYTES))
    _next: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers are never given twice, though profiles are forgotten."""

    def of(self, profile: ClassProfile) -> int:
        """The number of a profile; equal profiles have the same."""
        number = self._known.get(profile)
        if number is None:
            number = next(self._next)
            self._known.put(profile, number)
        return number


@dataclass(slots=True)
class Numbers:
    """Numbers of the profiles of one cycle, looked up by identity."""

    _known: ProfileNumbers = field(default_factory=ProfileNumbers)
    _by_identity: dict[int, tuple[ClassProfile, int]] = field(default_factory=dict)
    """Holds the profile itself, or its identity could be that of another later."""

    def of(self, profile: ClassProfile | None) -> int:
        """The number of a profile; 0 = none."""
        if profile is None:
            return 0
        known = self._by_identity.get(id(profile))
        if known is None:
            known = self._by_identity[id(profile)] = (profile, self._known.of(profile))
        return known[1]


@dataclass(slots=True)
class Recall:
    """Forecasts of one model, each made once."""

    model: LearnedModel
    numbers: Numbers
    known: Forecasts

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Raises:
            ValueError: there is no tenant, a share is not 1..100, or a profile is no number.
        """
        number = self.numbers.of
        key = tuple(
            (tenant.percent, tenant.utilisation, number(tenant.profile)) for tenant in tenants
        )
        found = self.known.get(key)
        if found is None:
            found = self.model.forecast(tenants)
            self.known.put(key, found)
        return found
