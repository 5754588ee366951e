# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who may be tried out where, and how a trial ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.admission import (
    CrowdForecaster,
    admit,
    certified,
    device,
    newcomer,
    query,
    resident,
    tenant,
    uncertified,
)
from ullage.api.reasons import Reason
from ullage.engines.admission.filters import CheckedDevice, Newcomer
from ullage.engines.admission.probation import ProbationOutcome, Trial, end_of_trial, may_probe
from ullage.engines.admission.query import Account
from ullage.engines.admission.records import ClassProfile, Fingerprint, Refusal
from ullage.engines.admission.verdict import Basis, RiskSettings

UNSURE = Basis(forecaster=CrowdForecaster(), thresholds=uncertified())
BUSY = device(resident(tenant("old", 40)))
STRANGER = newcomer(replace(tenant("new"), profile=ClassProfile(workload_class="c", rows=3)))
QUERY = query(BUSY, STRANGER)
ACCOUNT = Account(workload_class="c", rows=3)
SETTINGS = RiskSettings()
TRIAL = Trial(percent=20, seconds=60)


def asked(
    where: CheckedDevice = BUSY, who: Newcomer = STRANGER, account: Account = ACCOUNT
) -> Trial | Refusal:
    return may_probe(admit(where, who, UNSURE), query(where, who), account, SETTINGS)


def said(answer: Trial | Refusal) -> str:
    assert isinstance(answer, Refusal)
    return answer.text


def test_a_stranger_gets_a_short_trial_below_normal_priority() -> None:
    trial = asked()
    assert isinstance(trial, Trial)
    assert STRANGER.min_percent <= trial.percent <= STRANGER.max_percent
    assert trial.seconds == 60.0


def test_there_is_one_stranger_on_a_device() -> None:
    on_trial = device(resident(replace(tenant("old", 40), probation=True)))
    assert "old is on trial on the device already" in said(asked(on_trial))


def test_no_one_is_tried_out_beside_a_latency_objective() -> None:
    serving = device(resident(replace(tenant("web", 40), latency=True)))
    assert "latency objective of web" in said(asked(serving))


def measured(sm: float | None, objective: float | None) -> CheckedDevice:
    """A device with one tenant at 40 %, of a class with this demand on a whole device."""
    profile = ClassProfile(workload_class="old", fingerprint=Fingerprint(sm=sm))
    return device(
        resident(replace(tenant("old", 40), profile=profile, max_slowdown=objective)),
    )


@pytest.mark.parametrize("objective", [2.5, 2.74])
def test_no_one_is_tried_out_where_a_share_alone_costs_what_the_objective_allows(
    objective: float,
) -> None:
    assert "a larger share leaves room" in said(asked(measured(1.0, objective)))


@pytest.mark.parametrize(("sm", "objective"), [(1.0, 2.76), (0.4, 2.5), (None, 2.5), (1.0, None)])
def test_where_neighbours_may_cost_a_tenth_a_stranger_is_tried_out(
    sm: float | None, objective: float | None
) -> None:
    assert isinstance(asked(measured(sm, objective)), Trial)


def test_the_strangers_own_share_must_leave_it_a_tenth_too() -> None:
    profile = ClassProfile(workload_class="c", rows=3, fingerprint=Fingerprint(sm=1.0))
    narrow = newcomer(replace(tenant("new"), profile=profile, max_slowdown=2.5), 40, 40)
    wide = replace(narrow, min_percent=50, max_percent=50)
    assert "the 40 % of new alone" in said(asked(who=narrow))
    assert isinstance(asked(who=wide), Trial)


def test_a_class_that_faulted_is_tried_out_though_it_was_admitted() -> None:
    verdict = admit(BUSY, STRANGER, replace(UNSURE, thresholds=certified()))
    assert verdict.admitted
    trial = may_probe(verdict, QUERY, replace(ACCOUNT, faults=1), SETTINGS)
    assert isinstance(trial, Trial)
    assert trial.percent == verdict.percent


def test_a_forecast_breach_is_no_case_for_a_trial() -> None:
    crowd = replace(UNSURE, forecaster=CrowdForecaster(toll=3.0))
    answer = may_probe(admit(BUSY, STRANGER, crowd), QUERY, ACCOUNT, SETTINGS)
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.PREDICTED_SLO_BREACH


def test_who_was_admitted_needs_no_trial() -> None:
    sure = replace(UNSURE, thresholds=certified())
    verdict = admit(BUSY, STRANGER, sure)
    answer = may_probe(verdict, QUERY, ACCOUNT, SETTINGS)
    assert isinstance(answer, Refusal)


def test_a_verdict_about_another_newcomer_is_refused() -> None:
    verdict = replace(admit(BUSY, STRANGER, UNSURE), newcomer="other")
    with pytest.raises(ValueError, match="about other"):
        may_probe(verdict, QUERY, ACCOUNT, SETTINGS)


def known(rows: int) -> Newcomer:
    """The stranger when so many rows of its class exist."""
    return replace(
        STRANGER,
        tenant=replace(STRANGER.tenant, profile=ClassProfile(workload_class="c", rows=rows)),
    )


def test_a_spent_budget_ends_trials_until_new_rows_exist() -> None:
    half = Account(workload_class="c", spent_s=30, rows=5)
    second = asked(who=known(5), account=half)
    assert isinstance(second, Trial)
    assert second.seconds == 30.0
    spent = replace(half, spent_s=60, rows=6)
    last = asked(who=known(6), account=spent)
    assert "needs a whole device until new rows exist" in said(last)
    assert isinstance(asked(who=known(7), account=spent), Trial)


@pytest.mark.parametrize(
    ("windows", "elapsed_s", "outcome"),
    [
        ([], 5, ProbationOutcome.GOES_ON),
        ([False] * 19, 19, ProbationOutcome.GOES_ON),
        ([False] * 20, 20, ProbationOutcome.COMMIT),
        ([False, True, False, True], 4, ProbationOutcome.ROLL_BACK),
        ([True, None, None, True], 4, ProbationOutcome.ROLL_BACK),
        ([True, False, False, True, False, False, False], 25, ProbationOutcome.COMMIT),
        ([False] * 20 + [True], 21, ProbationOutcome.GOES_ON),
        ([True, True] + [False] * 30, 32, ProbationOutcome.ROLL_BACK),
        ([None] * 59, 59, ProbationOutcome.GOES_ON),
        ([None] * 60, 60, ProbationOutcome.ROLL_BACK),
        ([False] * 3, 60, ProbationOutcome.ROLL_BACK),
        ([False] * 59 + [True], 60, ProbationOutcome.ROLL_BACK),
    ],
)
def test_a_trial_ends_by_its_windows(
    windows: list[bool | None], elapsed_s: float, outcome: ProbationOutcome
) -> None:
    assert end_of_trial(windows, elapsed_s=elapsed_s, trial=TRIAL) is outcome
