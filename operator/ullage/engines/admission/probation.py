# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides on trials: their classes, devices, durations and outcomes.

Rows come only from co-locations, so without trials an unknown class would stay unknown. A trial is
small, short, guarded and charged to the class's own budget. Pure; it must never risk a latency
objective, and never run two trials on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.api.reasons import Reason
from ullage.engines.admission.query import Account, AdmissionQuery
from ullage.engines.admission.records import Refusal, Tenant
from ullage.engines.admission.times import PROBATION_LEAST_S, PROBATION_MOST_S
from ullage.engines.admission.verdict import RiskSettings, Verdict

HEADROOM: Final = 1.10
"""Smallest objective of a tenant beside a trial, as a multiple of the slowdown by its share alone:
neighbours slow each step further, by 4 to 9 % where it was measured (derived)."""
LEAST_WINDOWS: Final = 4
"""Windows with a finished step or request that a trial needs to succeed."""
VIOLATIONS: Final = 2
OF_WINDOWS: Final = 3
"""A violation is two windows above an objective among three counted, as for the guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A share on trial: ``percent`` for at most ``seconds``."""

    percent: int
    seconds: float


class ProbationOutcome(StrEnum):
    """State of a trial."""

    GOES_ON = "GoesOn"
    COMMIT = "Commit"
    ROLL_BACK = "RollBack"


def needs_trial(verdict: Verdict, account: Account) -> bool:
    """True when a newcomer may join other tenants on trial only."""
    if verdict.admitted:
        return account.faults > 0
    return verdict.reason is Reason.NEED_PROFILE


def may_probe(
    verdict: Verdict, query: AdmissionQuery, account: Account, settings: RiskSettings
) -> Trial | Refusal:
    """The trial of a newcomer that was refused for lack of rows, or whose class has faults.

    Args:
        verdict: The refusal, or the admission.
        query: The newcomer on the device of the verdict, with its residents.
        account: Cost of the class's trials so far.
        settings: Settings with the budget of a class, seconds.

    Returns:
        A trial with its share (percent) and length (seconds), or a refusal.

    Raises:
        ValueError: the verdict is about another newcomer.
    """
    if verdict.newcomer != query.newcomer.name:
        raise ValueError(f"the verdict is about {verdict.newcomer}")
    if not needs_trial(verdict, account):
        return Refusal(verdict.reason or Reason.NEED_PROFILE, verdict.text or "it needs no trial")
    other = next((resident for resident in query.residents if resident.probation), None)
    if other is not None:
        return Refusal(Reason.NEED_PROFILE, f"{other.name} is on trial on the device already")
    beside = next((tenant for tenant in query.residents if tenant.latency), None)
    if beside is not None:
        return Refusal(
            Reason.NEED_PROFILE,
            f"no one is tried out beside the latency objective of {beside.name}",
        )
    # the share of the verdict has the best forecast for every objective
    percent = verdict.tenants[-1].percent
    tight = next((tenant for tenant in query.mixture(percent) if _is_tight(tenant)), None)
    if tight is not None:
        return Refusal(
            Reason.NEED_PROFILE,
            f"no one is tried out where the {tight.percent} % of {tight.name} alone cost what its "
            f"objective of {tight.max_slowdown:g} allows: a larger share leaves room for a trial",
        )
    profile = query.newcomer.profile
    rows = profile.rows if profile is not None else 0
    left_s = account.left_s(settings.probation_seconds_per_class, rows)
    if left_s < PROBATION_LEAST_S:
        return Refusal(
            Reason.NEED_PROFILE,
            f"class {account.workload_class} has {left_s:.0f} s of trial left and one takes "
            f"{PROBATION_LEAST_S:.0f} s; it needs a whole device until new rows exist",
        )
    return Trial(percent=percent, seconds=min(left_s, PROBATION_MOST_S))


def end_of_trial(
    windows: Sequence[bool | None], *, elapsed_s: float, trial: Trial
) -> ProbationOutcome:
    """State of a trial after these windows.

    The trial is rolled back at once after two violations in three counted windows, and at its end
    without enough counted windows.

    Args:
        windows: Oldest first. ``True`` = a tenant of the device was above its objective, ``None``
            = no tenant finished a step or a request, which does not count.
        elapsed_s: Seconds since the trial began.
        trial: Share and time limit of the trial.
    """
    counted = [window for window in windows if window is not None]
    for last in range(VIOLATIONS, len(counted) + 1):
        if sum(counted[max(0, last - OF_WINDOWS) : last]) >= VIOLATIONS:
            return ProbationOutcome.ROLL_BACK
    calm = len(counted) >= LEAST_WINDOWS and not any(counted[-OF_WINDOWS:])
    if elapsed_s >= PROBATION_LEAST_S and calm:
        return ProbationOutcome.COMMIT
    return ProbationOutcome.ROLL_BACK if elapsed_s >= trial.seconds else ProbationOutcome.GOES_ON


def _is_tight(tenant: Tenant) -> bool:
    """True when a share below the measured demand uses up the objective without neighbours."""
    demand = tenant.profile.fingerprint.sm if tenant.profile is not None else None
    if demand is None or tenant.max_slowdown is None:
        return False
    return HEADROOM * demand / (tenant.percent / 100) > tenant.max_slowdown
