# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Calibrates the safety margin below which nothing is admitted, from past co-locations.

A predictor's own spread is over-confident for work it has not seen, so the margin is calibrated on
what happened: for each novelty group and each band of objectives, the smallest margin at which the
violations *among the admitted* stay within the risk budget, by a test that holds for few rows.
Pure arithmetic; it must never look at a label to choose where a test begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Final

from ullage.api.words import TightSLO as TightSLO
from ullage.engines.admission.records import Group

GRID: Final = tuple(round(4.0 - 0.1 * step, 1) for step in range(41))
"""Margins tried, strict to loose, fixed before any row is seen. Below 0 the mean itself breaks an
objective, so nothing looser is ever tried."""

COVERAGE: Final = 0.95
"""Of the conformal bound, used where the test below over-shoots."""
FEASIBLE_FEW: Final = 1 / 3
"""Below this share of co-locations that keep their objectives, ..."""
ROWS_FEW: Final = 400
"""... and with fewer rows than this, selective risk over-shoots (on 351 pairs of a V100: 28.6 %
violations for a budget of 5 % where 31 % were feasible)."""
RECENCY_HALF_LIFE_S: Final = 7 * 86_400.0


HARDER: Final = (Group.SEEN_PAIR, Group.KNOWN, Group.NEW_CONFIG, Group.NEW_FAMILY)
"""Groups of two tenants, the better known first."""


class Band(StrEnum):
    """Tightest objective on a device, in bands; each is calibrated on its own."""

    TIGHT = "<=1.3"
    CLOSE = "<=1.6"
    MEDIUM = "<=2.5"
    WIDE = ">2.5"


EDGES: Final = ((1.3, Band.TIGHT), (1.6, Band.CLOSE), (2.5, Band.MEDIUM))
"""Upper edges, slowdowns; what is above the last is wide."""


def band_of(tightest: float) -> Band:
    """The band of the tightest allowed slowdown on a device (``inf`` where no one has one).

    Raises:
        ValueError: it is not a positive number.
    """
    if not tightest > 0:
        raise ValueError(f"an objective must be a positive slowdown, not {tightest:g}")
    return next((band for edge, band in EDGES if tightest <= edge + 1e-9), Band.WIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One past co-location as the predictor saw it beforehand, and how it ended.

    ``z`` is the smallest margin of its tenants, (log SLO - mean) / sd; ``violated`` says that any
    tenant was above its objective; ``residual`` is the largest (observed - mean) / sd of log
    slowdown among tenants that have an objective (``None`` = not kept).
    """

    z: float
    violated: bool
    group: Group
    band: Band
    at_s: float = 0.0
    residual: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The smallest margin that is admitted; ``inf`` = nothing is.

    ``rows`` is how many co-locations stand behind it, ``admitted`` how many of them it admits and
    ``violations`` how many of those broke an objective. ``needed`` is the least number of admitted
    rows that can certify the budget, 0 where rows are not what is missing. ``pooled`` names the
    harder groups whose rows were lent because the group's own are too few.
    """

    value: float
    rows: int
    admitted: int
    violations: int
    needed: int = 0
    pooled: tuple[Group, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether nothing passes it."""
        return math.isinf(self.value)

    def said(self) -> str:
        """In a few words, for people."""
        if not self.refuses:
            return f"{self.value:.2f}"
        return f"none yet: rows {self.rows} of {self.needed}" if self.needed else "none is safe"


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(Bin(trials, probability) <= successes), exact up to rounding.

    Args:
        successes: Upper end of the tail, inclusive.
        trials: Number of trials.
        probability: Of one success, 0..1.

    Returns:
        A probability, 0..1.

    Raises:
        ValueError: the probability is outside 0..1.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability {probability:g} is outside 0..1")
    if successes >= trials:
        return 1.0
    if successes < 0:
        return 0.0
    if probability in (0.0, 1.0):
        return 1.0 - probability
    log_p, log_q = math.log(probability), math.log1p(-probability)
    total = math.lgamma(trials + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(
                total - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
                + k * log_p + (trials - k) * log_q
            )
            for k in range(successes + 1)
        ),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def rows_needed(violations: int, eps: float, confidence: float) -> int:
    """Fewest admitted rows that certify ``eps`` with this number of violations among them.

    At 5 % and 80 %: 32 with none, 59 with one, 85 with two. Source: the exact binomial test.

    Args:
        violations: Violations among the admitted rows.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the certificate, 0..1.

    Raises:
        ValueError: the risk or the confidence is not between 0 and 1.
    """
    _check_risk(eps, confidence)
    rows = violations + 1
    while binomial_tail(violations, rows, eps) > 1 - confidence:
        rows += 1
    return rows


def thresholds(
    scored: Iterable[Scored],
    *,
    eps: float,
    confidence: float,
    tight: TightSLO = TightSLO.CONFORMAL,
) -> Mapping[tuple[Group, Band], Threshold]:
    """The threshold of every group and band; a pair without rows refuses.

    The rule is the fixed-sequence test; where few co-locations keep their objectives and rows are
    few, the conformal bound stands in for it, or nothing is admitted (``tight``). A group with
    too few rows of its own is lent those of the next harder groups of one or two tenants: what
    is certified where less is known holds where more is (derived).

    Args:
        scored: Past co-locations, each once; rows without a finite margin do not count.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the certificate, 0..1.
        tight: What happens where the test over-shoots.

    Raises:
        ValueError: the risk or the confidence is not between 0 and 1.
    """
    _check_risk(eps, confidence)
    found: dict[tuple[Group, Band], list[Scored]] = {key: [] for key in product(Group, Band)}
    for one in scored:
        if math.isfinite(one.z):
            found[one.group, one.band].append(one)
    return {
        key: _lent(
            key, found, lambda rows: _rule(rows, eps=eps, confidence=confidence, tight=tight)
        )
        for key in found
    }


def _lent(
    key: tuple[Group, Band],
    found: Mapping[tuple[Group, Band], Sequence[Scored]],
    rule: Callable[[Sequence[Scored]], Threshold],
) -> Threshold:
    group, band = key
    rows = list(found[key])
    own = rule(rows)
    harder = HARDER[HARDER.index(group) + 1 :] if group in HARDER else ()
    result = own
    for count, other in enumerate(harder, start=1):
        if not result.needed:
            break
        rows += found[other, band]
        result = replace(rule(rows), pooled=harder[:count])
    return own if result.refuses else result


def _rule(rows: Sequence[Scored], *, eps: float, confidence: float, tight: TightSLO) -> Threshold:
    if not _over_shoots(rows):
        return fixed_sequence(rows, eps=eps, confidence=confidence)
    if tight is TightSLO.REFUSE:
        return _nothing(rows, 0)
    return conformal(rows)


def _over_shoots(rows: Sequence[Scored]) -> bool:
    if not rows or len(rows) >= ROWS_FEW:
        return False
    kept = sum(not row.violated for row in rows)
    return rows[0].band is Band.TIGHT or kept < FEASIBLE_FEW * len(rows)


def fixed_sequence(rows: Sequence[Scored], *, eps: float, confidence: float) -> Threshold:
    """The loosest margin that an unbroken run of exact tests certifies.

    The first test is at the first margin of the grid with enough rows for one violation (for none,
    where there are not that many), chosen from the margins alone; each next one is looser, and
    the first that fails ends the run. Where the run starts is derived.

    Args:
        rows: Past co-locations of one group and band, each with a finite margin.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of each test, 0..1.

    Returns:
        A threshold from ``GRID``; ``inf`` where no test passes.

    Raises:
        ValueError: the risk or the confidence is not between 0 and 1.
    """
    margins = sorted((row.z for row in rows), reverse=True)
    in_grid = sum(z >= GRID[-1] for z in margins)
    least = rows_needed(0, eps, confidence)
    start = rows_needed(1, eps, confidence)
    start = start if in_grid >= start else least
    passed: Threshold | None = None
    for value in GRID:
        admitted = [scored for scored in rows if scored.z >= value]
        if len(admitted) < start:
            continue
        violations = sum(scored.violated for scored in admitted)
        if binomial_tail(violations, len(admitted), eps) > 1 - confidence:
            break
        passed = Threshold(
            value=value, rows=len(rows), admitted=len(admitted), violations=violations
        )
    return passed or _nothing(rows, least if in_grid < least else 0)


def conformal(rows: Sequence[Scored], *, coverage: float = COVERAGE) -> Threshold:
    """The margin behind which a new co-location stays with the given probability.

    Recent rows weigh more. Rows without a residual do not count; with too few for the coverage
    nothing is admitted. Source: split conformal prediction, weighted by age (derived).

    Args:
        rows: Past co-locations of one group and band.
        coverage: Probability that a new residual stays below the margin, 0..1.

    Returns:
        A threshold in units of sd of log slowdown; ``inf`` where nothing is admitted.
    """
    known = [(row.residual, row.at_s) for row in rows if row.residual is not None]
    needed = math.ceil(coverage / (1 - coverage) - 1e-9)
    if len(known) < needed:
        return _nothing(rows, needed)
    weights = recency_weights([at for _, at in known])
    bound = weighted_quantile([residual for residual, _ in known], weights, coverage)
    value = max(bound, GRID[-1])
    admitted = [scored for scored in rows if scored.z >= value]
    violations = sum(scored.violated for scored in admitted)
    if math.isinf(value):
        return _nothing(rows, needed)
    return Threshold(value=value, rows=len(rows), admitted=len(admitted), violations=violations)


def weighted_quantile(values: Sequence[float], weights: Sequence[float], coverage: float) -> float:
    """Conformal quantile: the newcomer counts as one more value, at infinity, of full weight.

    Args:
        values: Any unit, shape (n,).
        weights: Weight of each value, at least 0, shape (n,).
        coverage: Part of the weight at or below the quantile, 0..1.

    Returns:
        One of the values, in their unit; ``inf`` where they do not reach the coverage.
    """
    total = math.fsum(weights) + max(weights, default=1.0)
    seen = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        seen += weight
        if seen >= coverage * total - 1e-12:
            return value
    return math.inf


def recency_weights(
    at_s: Sequence[float], *, half_life_s: float = RECENCY_HALF_LIFE_S
) -> tuple[float, ...]:
    """Weights in (0, 1] that halve with every half-life before the newest row.

    Args:
        at_s: Time of each row, seconds, shape (n,).
        half_life_s: Seconds in which a weight halves.

    Returns:
        One weight for each row, shape (n,); 1 for the newest.
    """
    newest = max(at_s, default=0.0)
    return tuple(0.5 ** ((newest - at) / half_life_s) for at in at_s)


def _nothing(rows: Sequence[Scored], needed: int) -> Threshold:
    return Threshold(value=math.inf, rows=len(rows), admitted=0, violations=0, needed=needed)


def _check_risk(eps: float, confidence: float) -> None:
    if not (0 < eps < 1 and 0 < confidence < 1):
        raise ValueError(
            f"risk {eps:g} and confidence {confidence:g} must lie between 0 and 1 (as fractions)"
        )
