# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learned model as a decision sees it: tables only.

Built elsewhere, in the background. A look-up that finds nothing answers one rung lower and says
so; it must never solve, fit, wait, or import what fits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.bias import BiasModel
from ullage.engines.admission.calibration import Band, Scored, Threshold
from ullage.engines.admission.ladder import Trim
from ullage.engines.admission.novelty import group_of
from ullage.engines.admission.prior import base, side_of
from ullage.engines.admission.records import ClassProfile, Forecast, Group, Rung, Tenant

Table = NDArray[np.float32]

STEPS: Final = 10
"""Share steps of a table: 10, 20, ... 100 percent."""
WIDE_SD: Final = 0.5
"""Spread of a log slowdown that rests on no observation (our default: a factor of 1.6)."""
ALONE_SD: Final = 0.03
"""Spread of the own share curve of a lone tenant (our default)."""


def step_of(percent: int) -> int:
    """The table's step for a share: the nearest, the larger of two."""
    return min(STEPS, max(1, (percent + 5) // 10)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Mean and sd of the log residual of (victim, its step, aggressor, its step); NaN = not yet."""

    index: Mapping[str, int] = field(default_factory=dict)
    mean: Table = field(default_factory=lambda: np.zeros((0, STEPS, 0, STEPS), np.float32))
    sd: Table = field(default_factory=lambda: np.zeros((0, STEPS, 0, STEPS), np.float32))

    def look_up(
        self, victim: tuple[str, int], aggressor: tuple[str, int]
    ) -> tuple[float, float] | None:
        """Residual of one side beside another, each a class and its percent."""
        row, column = self.index.get(victim[0]), self.index.get(aggressor[0])
        if row is None or column is None:
            return None
        place = (row, step_of(victim[1]), column, step_of(aggressor[1]))
        mean, sd = float(self.mean[place]), float(self.sd[place])
        return None if math.isnan(mean) else (mean, sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """What was learned of one type of accelerator; immutable and picklable.

    ``hyper`` = log hyper-parameters of the Gaussian process (empty = none), ``tail`` its noise.
    ``base_sd`` is the spread of the plain rungs; ``rows`` counts directional rows.
    """

    accelerator: str
    version: int = 0
    hyper: tuple[float, ...] = ()
    tail: float = 0.0
    rows: int = 0
    rungs: Mapping[Group, Rung] = field(default_factory=dict)
    trims: Mapping[tuple[Group, Rung], Trim] = field(default_factory=dict)
    classes: Mapping[str, ClassProfile] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    seen: frozenset[tuple[str, str]] = frozenset()
    bias_index: Mapping[str, int] = field(default_factory=dict)
    bias: BiasModel | None = None
    base_sd: float = WIDE_SD
    cells: Cells = field(default_factory=Cells)
    thresholds: Mapping[tuple[Group, Band], Threshold] = field(default_factory=dict)
    scored: tuple[Scored, ...] = ()

    def group_of(self, tenants: Sequence[Tenant]) -> Group:
        """How new a mixture is to this model."""
        found = [_identity(one) for one in tenants]
        rows = {name: self.classes[name].rows for name, _ in found if name in self.classes}
        return group_of(found, rows=rows, families=self.families, seen=self.seen)

    def forecast(self, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant, by table look-ups.

        Three or more: residuals of the pairs add up, and so do their spreads, since they share
        what is learned of the victim.

        Raises:
            ValueError: there is no tenant, a share is not 1..100, or a profile is no number.
        """
        if not tenants:
            raise ValueError("a forecast needs at least one tenant")
        sides = [side_of(self._profile(one), one.percent, one.utilisation) for one in tenants]
        logs, plain = base(sides)
        group = self.group_of(tenants)
        if len(tenants) == 1:
            return Forecast(
                mean=(max(0.0, logs[0]),),
                sd=(ALONE_SD,),
                group=group,
                rung=plain,
                version=self.version,
            )
        wanted = self.rungs.get(group, plain)
        answers = [self._residual(index, tenants, group, wanted) for index in range(len(tenants))]
        used = [plain if rung is None else rung for _, _, rung in answers]
        return Forecast(
            mean=tuple(
                max(0.0, log + mean) for log, (mean, _, _) in zip(logs, answers, strict=True)
            ),
            sd=tuple(sd for _, sd, _ in answers),
            group=group,
            rung=min(used, key=list(Rung).index),
            version=self.version,
        )

    def _profile(self, tenant: Tenant) -> ClassProfile | None:
        if tenant.profile is None:
            return None
        return self.classes.get(tenant.profile.klass, tenant.profile)

    def _residual(
        self, index: int, tenants: Sequence[Tenant], group: Group, wanted: Rung
    ) -> tuple[float, float, Rung | None]:
        """Sum over the others, on the wanted rung or the first below it that has an answer."""
        victim = (_identity(tenants[index])[0], tenants[index].percent)
        others = [
            (_identity(one)[0], one.percent) for place, one in enumerate(tenants) if place != index
        ]
        if wanted is Rung.GP:
            found = [self.cells.look_up(victim, other) for other in others]
            known = [one for one in found if one is not None]
            if len(known) == len(others):
                return self._trimmed(known, group, Rung.GP)
        if wanted in (Rung.GP, Rung.BIAS) and self.bias is not None:
            pairs = [(self._effect(victim[0], other[0]), self.bias.sd) for other in others]
            return self._trimmed(pairs, group, Rung.BIAS)
        return 0.0, self.base_sd * len(others), None

    def _trimmed(
        self, found: Sequence[tuple[float, float]], group: Group, rung: Rung
    ) -> tuple[float, float, Rung]:
        trim = self.trims.get((group, rung), Trim())
        mean = math.fsum(trim.centre + trim.slope * (one - trim.centre) for one, _ in found)
        return mean, math.fsum(trim.spread * sd for _, sd in found), rung

    def _effect(self, victim: str, aggressor: str) -> float:
        """Bias of a pair; a class without rows has none of its own."""
        model = self.bias
        assert model is not None  # the caller looked
        row, column = self.bias_index.get(victim), self.bias_index.get(aggressor)
        suffers = 0.0 if row is None else float(model.sensitivity[row])
        inflicts = 0.0 if column is None else float(model.aggressiveness[column])
        return model.mean + suffers + inflicts


def _identity(tenant: Tenant) -> tuple[str, str]:
    """Class and family; a tenant without a profile is a class that nobody knows."""
    if tenant.profile is None:
        return f"\x00{tenant.name}", ""
    return tenant.profile.klass, tenant.profile.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """One model per type of accelerator; without one, the utilisation sum with a wide spread."""

    by_accelerator: Mapping[str, LearnedModel] = field(default_factory=dict)

    def of(self, accelerator: str) -> LearnedModel:
        """The model of a type, or one that has learned nothing."""
        found = self.by_accelerator.get(accelerator)
        return found if found is not None else LearnedModel(accelerator=accelerator)

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Raises:
            ValueError: there is no tenant, or a share is not positive.
        """
        return self.of(accelerator).forecast(tenants)
