# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predictors side by side, each fitted on the training rows only.

From "no one disturbs anyone" to the product's own prior with its Gaussian process. What is
measured alone (fingerprints, share curves) is known to all of them; co-located rows only as far
as they are in the training fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.gpu.measured import Measured
from bench.share_curve import fit_share_curve
from ullage.engines.admission import pair_gp
from ullage.engines.admission.bias import fit_bias
from ullage.engines.admission.features import class_features
from ullage.engines.admission.pair_gp import PairFit, Rows
from ullage.engines.admission.prior import Side, base, memory_bound, own_share
from ullage.engines.admission.records import ClassProfile, Fingerprint, Tenant
from ullage.engines.admission.utilisation import UtilisationSum

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Predicted = tuple[Floats, Floats]
"""Mean and spread of the log slowdown; a spread of NaN = the predictor claims none."""

GP_FIT: Final = PairFit(iterations=25, max_rows=200)
KNEES: Final = tuple(round(0.5 + 0.01 * step, 2) for step in range(71))
ROBUST_START: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is known of every class alone; ``shares`` from percent to the fraction seen."""

    profiles: Mapping[str, ClassProfile]
    index: Mapping[str, int]
    features: Floats
    shares: Mapping[int, float]

    @classmethod
    def of(cls, rows: Sequence[Measured]) -> World:
        """From the solo windows of all rows."""
        alone = [one for one in rows if not one.others and one.rate is None]
        names = sorted({one.tenant for one in alone})
        profiles = {name: _profile([one for one in alone if one.tenant == name]) for name in names}
        return cls(
            profiles=profiles,
            index={name: number for number, name in enumerate(names)},
            features=class_features(list(profiles.values())),
            shares={one.percent: one.share for one in rows},
        )

    def side(self, name: str, percent: int) -> Side:
        """One tenant as the prior sees it."""
        profile = self.profiles[name]
        use = profile.fingerprint.sm
        return Side(
            share=self.shares[percent],
            utilisation=1.0 if use is None else use,
            fingerprint=profile.fingerprint,
            curve=profile.curve,
        )

    def sides(self, row: Measured) -> list[Side]:
        """The tenants of a row's window, its own first."""
        return [self.side(name, percent) for name, percent in self.members(row)]

    def members(self, row: Measured) -> list[tuple[str, int]]:
        """Names and percents of a row's window, its own first."""
        return [(row.tenant, row.percent), *row.others]


def _profile(alone: Sequence[Measured]) -> ClassProfile:
    """Curve over all shares; counters of the windows on the whole device."""
    times: dict[float, list[float]] = {}
    for one in alone:
        times.setdefault(one.share, []).append(one.mean_ms / 1000)
    whole = [one.counters for one in alone if one.percent == 100]

    def seen(name: str) -> float | None:
        values = [one[name] for one in whole if name in one]
        return median(values) / 100 if values else None

    busy = seen("gpm_gfx")
    return ClassProfile(
        workload_class=alone[0].tenant,
        family=alone[0].family,
        batch=alone[0].batch,
        curve=fit_share_curve(list(times), [median(found) for found in times.values()]),
        fingerprint=Fingerprint(
            sm=seen("gpm_sm"), dram=seen("gpm_dram"), tensor=seen("gpm_tensor"),
            fp32=seen("gpm_fp32"), fp16=seen("gpm_fp16"), occupancy=seen("gpm_occ"),
            kernel_idle=None if busy is None else max(0.0, 1 - busy),
        ),
    )  # fmt: skip


Predict = Callable[[Sequence[Measured]], Predicted]
Predictor = Callable[[World, Sequence[Measured]], Predict]


def _plain(formula: Callable[[World, Measured], float]) -> Predictor:
    """A predictor that learns nothing."""

    def fit(world: World, train: Sequence[Measured]) -> Predict:
        def predict(rows: Sequence[Measured]) -> Predicted:
            means = np.array([math.log(max(1.0, formula(world, one))) for one in rows])
            return means, np.full(len(rows), np.nan)

        return predict

    return fit


def _no_interference(world: World, row: Measured) -> float:
    return own_share(world.side(row.tenant, row.percent))


def _fair_share(world: World, row: Measured) -> float:
    return float(len(row.others) + 1)


def _utilisation_sum(world: World, row: Measured) -> float:
    tenants = [
        Tenant(name=str(place), percent=percent, utilisation=world.side(name, percent).utilisation)
        for place, (name, percent) in enumerate(world.members(row))
    ]
    return UtilisationSum().predict(tenants[1:], tenants[0], row.percent)[-1]


def _additive(world: World, row: Measured) -> float:
    """Own ceiling times the fuller of the two sums, SM (each at most its share) and DRAM."""
    sides = world.sides(row)
    prints = [one.fingerprint or Fingerprint() for one in sides]
    compute = math.fsum(
        min(one.share, seen.sm or 0.0) for one, seen in zip(sides, prints, strict=True)
    )
    memory = math.fsum(one.dram or 0.0 for one in prints)
    return _no_interference(world, row) * max(1.0, compute, memory)


def _prior(world: World, row: Measured) -> float:
    return math.exp(base(world.sides(row))[0][0])


def with_knee(sides: Sequence[Side], knee: float) -> float:
    """The prior's slowdown of the first side with the knee free; NaN without counters.

    The same form as ``engines.admission.prior.contention``, which fixes the knee.
    """
    compute = traffic = 0.0
    for one in sides:
        seen = one.fingerprint
        if seen is None or seen.sm is None or seen.dram is None or one.curve is None:
            return math.nan
        slower = one.curve.seconds(1.0) / one.curve.seconds(one.share)
        compute += min(one.share, seen.sm)
        traffic += min(knee, seen.dram) * slower
    first = sides[0].fingerprint
    bound = memory_bound(first) if first is not None else None
    if first is None or bound is None:
        return math.nan
    idle = min(1.0, first.kernel_idle or 0.0)
    crowd, full = max(1.0, compute), max(1.0, traffic / knee)
    return own_share(sides[0]) * (idle + (1 - idle) * ((1 - bound) * crowd + bound * full))


def find_knee(world: World, rows: Sequence[Measured]) -> float | None:
    """The knee with the least mean absolute log error; ``None`` without counters or rows."""
    pairs = [(world.sides(one), math.log(one.slowdown)) for one in rows if one.others]
    if not pairs or math.isnan(with_knee(pairs[0][0], ROBUST_START)):
        return None

    def error(knee: float) -> float:
        return math.fsum(abs(math.log(with_knee(sides, knee)) - seen) for sides, seen in pairs)

    return min(KNEES, key=error)


def _prior_knee(world: World, train: Sequence[Measured]) -> Predict:
    knee = find_knee(world, train)

    def formula(world: World, row: Measured) -> float:
        return _prior(world, row) if knee is None else with_knee(world.sides(row), knee)

    return _plain(formula)(world, train)


def _inputs(world: World, rows: Sequence[Measured]) -> tuple[Rows, Floats]:
    """Kernel inputs of pair rows, and the prior's log slowdown."""
    victim = np.array([world.index[one.tenant] for one in rows], np.int64)
    aggressor = np.array([world.index[one.others[0][0]] for one in rows], np.int64)
    logs = np.array([math.log(_prior(world, one)) for one in rows])
    own = np.array([one.share for one in rows])
    other = np.array([world.shares[one.others[0][1]] for one in rows])
    extra = np.stack([2 * own, 2 * other, logs], axis=1)
    found = Rows(
        victim=victim,
        aggressor=aggressor,
        victim_features=np.hstack([world.features[victim], extra]),
        aggressor_features=np.hstack([world.features[aggressor], extra]),
    )
    return found, logs


def _seen(rows: Sequence[Measured]) -> Floats:
    return np.log([one.slowdown for one in rows])


def _bias(world: World, train: Sequence[Measured]) -> Predict:
    inputs, logs = _inputs(world, train)
    model = fit_bias(inputs.victim, inputs.aggressor, _seen(train) - logs, len(world.index))

    def predict(rows: Sequence[Measured]) -> Predicted:
        asked, base_logs = _inputs(world, rows)
        means = base_logs + model.predict(asked.victim, asked.aggressor)
        return np.maximum(means, 0.0), np.full(len(rows), model.sd)

    return predict


def _gp(world: World, train: Sequence[Measured]) -> Predict:
    train = train[-pair_gp.MAX_ROWS :]
    inputs, logs = _inputs(world, train)
    target = _seen(train) - logs
    posterior = pair_gp.condition(inputs, target, pair_gp.fit(inputs, target, GP_FIT))

    def predict(rows: Sequence[Measured]) -> Predicted:
        asked, base_logs = _inputs(world, rows)
        means, spreads = posterior.predict(asked)
        return np.maximum(base_logs + means, 0.0), spreads

    return predict


PREDICTORS: Final[Mapping[str, Predictor]] = {
    "no interference": _plain(_no_interference),
    "fair share": _plain(_fair_share),
    "utilisation sum": _plain(_utilisation_sum),
    "additive max(SM, DRAM)": _plain(_additive),
    "prior": _plain(_prior),
    "prior, knee fitted": _prior_knee,
    "prior + bias": _bias,
    "prior + GP": _gp,
}
MISSING: Final[Mapping[str, str]] = {
    "gpu-lets linear": "needs L2 counters, which GPM does not give",
    "iGniter form": "needs L2 counters, which GPM does not give",
    "GBDT": "needs a library that the engines may not import",
}
"""Baselines of the plan that these rows cannot feed."""
