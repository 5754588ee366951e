# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learned model that decisions use: look-up tables only.

Built in the background. A look-up without a cell falls back to the next lower rung and reports it;
it must never solve, fit, wait, or import fitting code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.bias import BiasModel
from ullage.engines.admission.calibration import Band, Scored, Threshold
from ullage.engines.admission.ladder import Trim
from ullage.engines.admission.novelty import History
from ullage.engines.admission.pair_kernel import KernelShape
from ullage.engines.admission.prior import Side, base, side_of
from ullage.engines.admission.records import ClassProfile, Forecast, Group, Rung, Tenant

Floats = NDArray[np.float64]
Table = NDArray[np.float32]

STEPS: Final = 10
"""Share steps of a table: 10, 20, ... 100 percent."""
WIDE_SD: Final = 0.5
"""Spread of a log slowdown without any observation (our default: a factor of 1.6)."""
ALONE_SD: Final = 0.03
"""Spread of the share curve of a lone tenant (our default)."""
_RANK: Final = {rung: place for place, rung in enumerate(Rung)}


def step_of(percent: int) -> int:
    """The table's step for a share: the nearest, the larger of two equally near ones."""
    return min(STEPS, max(1, (percent + 5) // 10)) - 1


_STEP_OF: Final = tuple(step_of(percent) for percent in range(101))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Mean and sd of the log residual of (victim, its step, aggressor, its step); NaN = no cell."""

    index: Mapping[str, int] = field(default_factory=dict)
    mean: Table = field(default_factory=lambda: np.zeros((0, STEPS, 0, STEPS), np.float32))
    sd: Table = field(default_factory=lambda: np.zeros((0, STEPS, 0, STEPS), np.float32))

    def only(self, classes: Collection[str]) -> Cells:
        """The cells among some of the classes."""
        names = [name for name in self.index if name in classes]
        at = [self.index[name] for name in names]
        place = np.ix_(at, range(STEPS), at, range(STEPS))
        return Cells(
            index={name: number for number, name in enumerate(names)},
            mean=self.mean[place],
            sd=self.sd[place],
        )

    def among(self, sides: Sequence[tuple[str, int]]) -> tuple[Floats, Floats]:
        """Mean and sd of the log residual of every side (row) beside every other (column).

        Args:
            sides: Class and share (percent) of each, n of them.

        Returns:
            Two arrays of shape (n, n).
        NaN where there is no cell; zero on the diagonal.
        """
        classes = np.array([self.index.get(workload_class, -1) for workload_class, _ in sides])
        steps = np.array([_STEP_OF[percent] for _, percent in sides])
        count = len(sides)
        if self.mean.size:
            place = (classes[:, None], steps[:, None], classes, steps)
            mean, sd = self.mean[place].astype(float), self.sd[place].astype(float)
        else:
            mean, sd = np.full((count, count), np.nan), np.full((count, count), np.nan)
        unknown = classes < 0
        if unknown.any():
            mean[unknown], mean[:, unknown] = np.nan, np.nan
        mean.flat[:: count + 1] = sd.flat[:: count + 1] = 0.0
        return mean, sd


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """Learned model of one type of accelerator; immutable and picklable.

    Attributes:
        hyper: Log hyper-parameters of the Gaussian process; empty = none.
        tail: Its noise, see :class:`Fit`.
        shape: Shape of its kernel.
        rows: Number of directional rows.
        base_sd: Spread of the plain rungs.
        marks: By class: digest of its inputs.
    """

    accelerator: str
    version: int = 0
    hyper: tuple[float, ...] = ()
    tail: float = 0.0
    shape: KernelShape = KernelShape.GAUSSIAN
    rows: int = 0
    rungs: Mapping[Group, Rung] = field(default_factory=dict)
    trims: Mapping[tuple[Group, Rung], Trim] = field(default_factory=dict)
    classes: Mapping[str, ClassProfile] = field(default_factory=dict)
    history: History = field(default_factory=History)
    bias_index: Mapping[str, int] = field(default_factory=dict)
    bias: BiasModel | None = None
    base_sd: float = WIDE_SD
    cells: Cells = field(default_factory=Cells)
    thresholds: Mapping[tuple[Group, Band], Threshold] = field(default_factory=dict)
    scored: tuple[Scored, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)

    def group_of(self, tenants: Sequence[Tenant]) -> Group:
        """Novelty group of a mixture for this model."""
        return self.history.group_of([_identity(tenant) for tenant in tenants])

    def forecast(self, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant, by table look-ups.

        For three or more tenants the residuals and the spreads of pairs are summed, since they are
        correlated through the victim.

        Raises:
            ValueError: there is no tenant, a share is not 1..100, or a profile has an impossible
                number.
        """
        if not tenants:
            raise ValueError("a forecast needs at least one tenant")
        sides = [self._side(tenant) for tenant in tenants]
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
        means, sds, rungs = self._residuals(tenants, group, self.rungs.get(group, plain))
        return Forecast(
            mean=tuple(np.maximum(np.array(logs) + means, 0.0).tolist()),
            sd=tuple(sds.tolist()),
            group=group,
            rung=min((plain if rung is None else rung for rung in rungs), key=_RANK.__getitem__),
            version=self.version,
        )

    def _side(self, tenant: Tenant) -> Side:
        """A tenant as input of the prior; a learned profile of its class takes precedence."""
        profile = tenant.profile
        learned = None if profile is None else self.classes.get(profile.workload_class)
        if learned is None:
            return side_of(profile, tenant.percent, tenant.utilisation)
        return side_of(learned, tenant.percent, tenant.utilisation, checked=True)

    def _residuals(
        self, tenants: Sequence[Tenant], group: Group, wanted: Rung
    ) -> tuple[Floats, Floats, list[Rung | None]]:
        """Residual sums over the others, on the wanted rung or the next lower one available.

        Returns:
            Mean, sd and rung of each tenant; ``None`` = the base forecast alone.
        """
        count, others = len(tenants), len(tenants) - 1
        names = [_identity(tenant)[0] for tenant in tenants]
        means, sds = np.zeros(count), np.full(count, self.base_sd * others)
        rungs: list[Rung | None] = [None] * count
        has_cells = np.zeros(count, bool)
        if wanted is Rung.GP:
            pairs = [(name, tenant.percent) for name, tenant in zip(names, tenants, strict=True)]
            residuals, spread = self.cells.among(pairs)
            total = residuals.sum(axis=1)  # NaN where any cell is missing
            has_cells = ~np.isnan(total)
            trim = self.trims.get((group, Rung.GP), Trim())
            means = np.where(has_cells, trim.summed(total, others), means)
            sds = np.where(has_cells, trim.spread * spread.sum(axis=1), sds)
            rungs = [Rung.GP if answered else None for answered in has_cells.tolist()]
        if wanted in (Rung.GP, Rung.BIAS) and self.bias is not None and not has_cells.all():
            trim = self.trims.get((group, Rung.BIAS), Trim())
            means = np.where(has_cells, means, trim.summed(self._effects(self.bias, names), others))
            sds = np.where(has_cells, sds, trim.spread * self.bias.sd * others)
            rungs = [Rung.BIAS if rung is None else rung for rung in rungs]
        return means, sds, rungs

    def _effects(self, bias: BiasModel, names: Sequence[str]) -> Floats:
        """Bias of every class beside all the others; a class without rows has no effects."""
        rows = [self.bias_index.get(name) for name in names]
        suffers = np.array([0.0 if row is None else bias.sensitivity[row] for row in rows])
        inflicts = np.array([0.0 if row is None else bias.aggressiveness[row] for row in rows])
        out: Floats = (len(names) - 1) * (bias.mean + suffers) + inflicts.sum() - inflicts
        return out


def _identity(tenant: Tenant) -> tuple[str, str]:
    """Class and family; a tenant without a profile is an unknown class of its own."""
    if tenant.profile is None:
        return f"\x00{tenant.name}", ""
    return tenant.profile.workload_class, tenant.profile.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """A model per type of accelerator; without one, the utilisation sum with a wide spread."""

    by_accelerator: Mapping[str, LearnedModel] = field(default_factory=dict)

    def of(self, accelerator: str) -> LearnedModel:
        """The model of a type, or an empty one."""
        learned_model = self.by_accelerator.get(accelerator)
        return learned_model if learned_model is not None else LearnedModel(accelerator=accelerator)

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Args:
            accelerator: Type of the device.
            tenants: The mixture, each tenant at its own share (percent).

        Raises:
            ValueError: there is no tenant, or a share is not positive.
        """
        return self.of(accelerator).forecast(tenants)
