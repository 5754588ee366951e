# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Calibrates the safety margin below which nothing is admitted, from past co-locations.

A predictor's own spread is over-confident for work it has not seen, so the margin is calibrated on
observations: for each novelty group and band of objectives, the smallest margin at which the
violations *among the admitted* stay within the risk budget, by a test that is valid for few rows.
Pure arithmetic; the start of a run of tests must never depend on a label.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Final

from ullage.engines.admission.records import Group

GRID: Final = tuple(round(4.0 - 0.1 * step, 1) for step in range(41))
"""Margins to try, strict to loose, fixed before any row is seen. Below 0 the mean itself breaks an
objective, so no looser margin is tried."""

LOOSER_CONFIDENCE: Final = 0.95
"""Minimum confidence of every test after the first: a run of tests ends by chance, and each looser
margin admits pairs that break objectives more often (not measured)."""
LEAST_TRIALS: Final = 45
"""See :func:`trials_needed`. With 29, the requirement at 10 %, a device type with 48 observed pairs
broke 17 % of the objectives it admitted."""
_ROUNDING: Final = 1e-9


HARDER: Final = (Group.SEEN_PAIR, Group.KNOWN, Group.NEW_CONFIG, Group.NEW_FAMILY)
"""Groups of two tenants, the best known first."""


class Band(StrEnum):
    """Bands of the tightest objective on a device; each is calibrated separately."""

    TIGHT = "<=1.3"
    CLOSE = "<=1.6"
    MEDIUM = "<=2.5"
    WIDE = ">2.5"


EDGES: Final = ((1.3, Band.TIGHT), (1.6, Band.CLOSE), (2.5, Band.MEDIUM))
"""Upper edges, slowdowns; anything above the last is wide."""


def band_of(tightest: float) -> Band:
    """The band of the tightest allowed slowdown on a device (``inf`` = no tenant has an objective).

    Raises:
        ValueError: it is not a positive number.
    """
    if not tightest > 0:
        raise ValueError(f"an objective must be a positive slowdown, not {tightest:g}")
    return next((band for edge, band in EDGES if tightest <= edge + 1e-9), Band.WIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One past co-location: its predicted margin and its outcome.

    ``z`` is the smallest margin of its tenants, (log SLO - mean) / sd; ``violated`` is true when
    any tenant exceeded its objective.
    """

    z: float
    violated: bool
    group: Group
    band: Band
    pair: tuple[str, ...] = ()
    """Classes of the tenants, sorted."""
    trial: tuple[str, ...] = ()
    """Identifies the rows that were left out; scores of a trial count as one (``()`` = its own)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The smallest margin that is admitted; ``inf`` = nothing is.

    Attributes:
        value: The margin, in standard deviations.
        rows: Distinct pairs of classes that it rests on.
        admitted: Pairs among them that it admits, rounded down.
        violations: Admitted pairs that broke an objective, rounded up.
        needed: Minimum of admitted pairs that can certify the budget; 0 = enough pairs.
        pooled: Harder groups whose pairs were added because the group itself has too few.
    """

    value: float
    rows: int
    admitted: int
    violations: int
    needed: int = 0
    pooled: tuple[Group, ...] = ()

    @property
    def refuses(self) -> bool:
        """True when no mixture passes."""
        return math.isinf(self.value)


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
    """Minimum of admitted rows that certify ``eps`` with this number of violations among them.

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


def trials_needed(eps: float, confidence: float) -> int:
    """Minimum of admitted trials for a certificate.

    Enough for one violation, and never fewer than ``LEAST_TRIALS``: with few trials a certificate
    can be luck although the risk is too high, and every admission under it is wrong then (derived).

    Args:
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the certificate, 0..1.
    """
    return max(LEAST_TRIALS, rows_needed(1, eps, confidence))


def thresholds(
    scored: Iterable[Scored], *, eps: float, confidence: float
) -> Mapping[tuple[Group, Band], Threshold]:
    """The threshold of every group and band; a pair without rows refuses.

    A group with too few rows also uses those of the next harder groups of two tenants: a margin
    certified for less known work holds for better known work (derived).

    Args:
        scored: Past co-locations; rows without a finite margin do not count.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the certificate, 0..1.

    Raises:
        ValueError: the risk or the confidence is not between 0 and 1.
    """
    _check_risk(eps, confidence)
    by_key: dict[tuple[Group, Band], list[Scored]] = {key: [] for key in product(Group, Band)}
    for score in scored:
        if math.isfinite(score.z):
            by_key[score.group, score.band].append(score)
    return {key: _pooled(key, by_key, eps=eps, confidence=confidence) for key in by_key}


def _pooled(
    key: tuple[Group, Band],
    by_key: Mapping[tuple[Group, Band], Sequence[Scored]],
    *,
    eps: float,
    confidence: float,
) -> Threshold:
    group, band = key
    rows = list(by_key[key])
    threshold = result = fixed_sequence(rows, eps=eps, confidence=confidence)
    harder = HARDER[HARDER.index(group) + 1 :] if group in HARDER else ()
    for count, other in enumerate(harder, start=1):
        if not result.needed:
            break
        pairs = {scored.pair for scored in rows if scored.pair}
        rows += [scored for scored in by_key[other, band] if scored.pair not in pairs]
        result = fixed_sequence(rows, eps=eps, confidence=confidence)
        result = replace(result, pooled=harder[:count])
    return threshold if result.refuses else result


def fixed_sequence(rows: Sequence[Scored], *, eps: float, confidence: float) -> Threshold:
    """The loosest margin that an unbroken run of exact tests certifies.

    The first test is at the first margin of the grid that admits enough trials, chosen by the
    margins alone. Each further test is looser and needs more confidence; the first failure ends
    the run.

    Args:
        rows: Past co-locations of one group and band, each with a finite margin.
        eps: Allowed share of violations among the admitted, 0..1.
        confidence: Confidence of the first test, 0..1; of the others at least
            ``LOOSER_CONFIDENCE``.

    Returns:
        A threshold from ``GRID``; ``inf`` where no test passes.

    Raises:
        ValueError: the risk or the confidence is not between 0 and 1.
    """
    weighed = list(zip(rows, weights(rows), strict=True))
    in_grid = _count(weight for scored, weight in weighed if scored.z >= GRID[-1])
    start = trials_needed(eps, confidence)
    passed: Threshold | None = None
    for value in GRID:
        admitted = [(scored, weight) for scored, weight in weighed if scored.z >= value]
        count = _count(weight for _, weight in admitted)
        if count < start:
            continue
        wrong = math.fsum(weight for scored, weight in admitted if scored.violated)
        violations = math.ceil(wrong - _ROUNDING)
        asked = confidence if passed is None else max(confidence, LOOSER_CONFIDENCE)
        if binomial_tail(violations, count, eps) > 1 - asked:
            break
        passed = Threshold(value=value, rows=distinct(rows), admitted=count, violations=violations)
    if passed is not None:
        return passed
    needed = start if in_grid < start else 0
    return Threshold(value=math.inf, rows=distinct(rows), admitted=0, violations=0, needed=needed)


def weights(rows: Sequence[Scored]) -> list[float]:
    """The weight of each score within its trial.

    A pair is scored in every fold that leaves it out, and at several shares, which adds no
    evidence. Errors of pairs of the same two families, left out together, are not independent
    (derived).
    """
    counts = Counter(row.trial for row in rows)
    return [1.0 / counts[row.trial] if row.trial else 1.0 for row in rows]


def distinct(rows: Sequence[Scored]) -> int:
    """Number of independent trials among the scores."""
    return _count(weights(rows))


def _count(parts: Iterable[float]) -> int:
    return math.floor(math.fsum(parts) + _ROUNDING)


def _check_risk(eps: float, confidence: float) -> None:
    if not (0 < eps < 1 and 0 < confidence < 1):
        raise ValueError(
            f"risk {eps:g} and confidence {confidence:g} must lie between 0 and 1 (as fractions)"
        )
