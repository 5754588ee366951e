# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who may join a device, at which share, and what the answer says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fakes.admission import (
    CrowdForecaster,
    admit,
    certified,
    device,
    newcomer,
    resident,
    tenant,
    uncertified,
)
from ullage.api.reasons import Reason
from ullage.engines.admission.filters import (
    CheckedDevice,
    Newcomer,
    Resident,
    check_device,
    check_newcomer,
    figures_of,
    first_refusal,
    request_for,
    usable_contexts,
)
from ullage.engines.admission.limits import percent_fits
from ullage.engines.admission.query import shares_between
from ullage.engines.admission.records import (
    ClassProfile,
    Fingerprint,
    Forecast,
    Group,
    Refusal,
    Rung,
    ShareCurve,
)
from ullage.engines.admission.verdict import Basis, RiskSettings

BASIS = Basis(forecaster=CrowdForecaster(), thresholds=certified())
BUSY = device(resident(tenant("old", 40)))
JOINS = newcomer(tenant("new"))


def test_an_admitted_newcomer_gets_a_share_and_every_figure_behind_it() -> None:
    verdict = admit(BUSY, JOINS, BASIS)
    assert verdict.admitted
    assert 10 <= verdict.percent <= 60
    assert [one.name for one in verdict.tenants] == ["old", "new"]
    own = verdict.tenants[-1]
    assert own.predicted == pytest.approx(math.exp(own.mean))
    assert own.upper > own.predicted
    assert verdict.z == min(one.z for one in verdict.tenants) >= verdict.required == 1.0
    assert (verdict.group, verdict.rung) == (Group.KNOWN, Rung.GP)
    assert verdict.band == "<=1.6"
    assert verdict.chosen is not None
    assert verdict.chosen.percent == verdict.percent
    assert verdict.runner_up is not None
    assert verdict.chosen.net >= verdict.runner_up.net
    assert "utilisation sum" in verdict.text


def test_a_first_tenant_joins_an_empty_device() -> None:
    verdict = admit(device(), newcomer(tenant("new", use=0.3), 30, 60), BASIS)
    assert verdict.admitted
    assert verdict.required == pytest.approx(1.645)


def refusal_after_checks(where: CheckedDevice, who: Newcomer) -> Refusal | None:
    check_device(where)
    check_newcomer(who)
    return first_refusal(who, where)


def refused_for(where: CheckedDevice, who: Newcomer) -> Reason | None:
    refusal = first_refusal(who, where)
    assert refusal is not None
    assert refusal.text
    return refusal.reason


@pytest.mark.parametrize(
    ("where", "who", "reason"),
    [
        (BUSY, replace(JOINS, trust_domain="other"), Reason.TRUST_DOMAIN),
        (device(resident(tenant("old", 40), enforced=False)), JOINS, Reason.ENFORCEMENT_MISSING),
        (replace(BUSY, contexts=1), JOINS, Reason.CONTEXT_LIMIT),
        (BUSY, newcomer(tenant("new"), 70, 80), Reason.PERCENT_LIMIT),
        (BUSY, newcomer(tenant("new"), 61, 80), Reason.PERCENT_LIMIT),
        (BUSY, newcomer(tenant("new"), memory_mib=15_000), Reason.MEMORY_WOULD_OVERFLOW),
    ],
)
def test_a_broken_limit_is_named(where: CheckedDevice, who: Newcomer, reason: Reason) -> None:
    assert refused_for(where, who) is reason


def test_an_objective_that_no_device_meets_needs_no_forecast() -> None:
    forecaster = CrowdForecaster()
    verdict = admit(BUSY, newcomer(tenant("new", slo=0.9)), replace(BASIS, forecaster=forecaster))
    assert (verdict.reason, verdict.percent) == (Reason.SLO_INFEASIBLE, 0)
    assert (verdict.binding, forecaster.asked) == ("new", 0)


def test_shares_add_up_to_the_limit_and_no_percent_more() -> None:
    for least, short in ((59, -1), (60, 0), (61, 1)):
        asked = newcomer(tenant("new"), least, 80)
        assert percent_fits(figures_of(BUSY, asked), request_for(asked, BUSY)) == short


def test_the_first_broken_rule_is_the_one_that_is_named() -> None:
    worst = replace(
        device(resident(tenant("old", 90), memory_mib=15_900, enforced=False)), contexts=0
    )
    assert refused_for(worst, replace(JOINS, trust_domain="other")) is Reason.TRUST_DOMAIN
    assert refused_for(worst, JOINS) is Reason.ENFORCEMENT_MISSING


def test_memory_counts_contexts_limits_peaks_and_shares() -> None:
    exact = newcomer(tenant("new"), memory_mib=16_000 - 1_512 - 1_024, contexts=2)
    assert admit(BUSY, exact, BASIS).admitted
    assert (
        refused_for(BUSY, replace(exact, memory_mib=exact.memory_mib + 1))
        is Reason.MEMORY_WOULD_OVERFLOW
    )
    by_share = newcomer(tenant("new"), 10, 60, memory_mib=0)
    full = device(resident(tenant("old", 40), memory_mib=11_000))
    verdict = admit(full, by_share, BASIS)
    assert verdict.admitted
    assert 16_000 * verdict.percent // 100 <= 16_000 - 11_512
    tiny = newcomer(tenant("new"), 3, 60, memory_mib=0)
    assert refused_for(BUSY, tiny) is Reason.MEMORY_WOULD_OVERFLOW


@pytest.mark.parametrize(("memory_mib", "refused"), [(25_600, True), (25_650, False)])
def test_a_share_holds_a_mebibyte_beside_its_contexts(memory_mib: int, refused: bool) -> None:
    """Two percent are 512 MiB, which a context takes, or one more."""
    here = replace(device(), memory_mib=memory_mib)
    assert (first_refusal(newcomer(tenant("new"), 2, 2, memory_mib=0), here) is not None) == refused


def test_some_contexts_of_a_server_are_kept_back() -> None:
    assert [usable_contexts(limit) for limit in (48, 60, 2)] == [44, 56, 0]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (10, 60, (10, 20, 30, 40, 50, 60)),
        (15, 38, (15, 20, 30, 38)),
        (25, 25, (25,)),
        (30, 20, ()),
    ],
)
def test_shares_to_try_are_tenths_and_bounds(
    least: int, most: int, expected: tuple[int, ...]
) -> None:
    assert shares_between(least, most) == expected


def test_a_refusal_names_who_binds_and_the_missing_slack() -> None:
    tight = device(resident(replace(tenant("tenant-a", 50), max_slowdown=1.10)))
    verdict = admit(tight, newcomer(tenant("new"), 50, 50), BASIS)
    assert verdict.reason is Reason.PREDICTED_SLO_BREACH
    assert verdict.binding == "tenant-a"
    assert verdict.text.startswith("tenant-a predicted 1.25x > 1.10x at 50 %; needs ")
    required = math.exp(verdict.tenants[0].mean + verdict.required * verdict.tenants[0].sd)
    assert verdict.missing_points == pytest.approx(100 * (required - 1.10))
    loose = replace(tight.residents[0].tenant, max_slowdown=1.10 + verdict.missing_points / 100)
    relaxed = replace(tight, residents=(resident(replace(loose, max_slowdown=1.3143)),))
    assert admit(relaxed, newcomer(tenant("new"), 50, 50), BASIS).admitted


@pytest.mark.parametrize(
    ("old", "new", "binds"), [(2.0, None, "old"), (None, 2.0, "new"), (None, None, "")]
)
def test_an_admission_names_whose_margin_is_least(
    old: float | None, new: float | None, binds: str
) -> None:
    here = device(resident(tenant("old", 40, slo=old)))
    verdict = admit(here, newcomer(tenant("new", slo=new)), BASIS)
    assert verdict.admitted
    assert verdict.binding == binds


def test_a_mean_within_the_objective_but_not_its_margin_is_told_apart() -> None:
    close = device(resident(replace(tenant("tenant-a", 50), max_slowdown=1.27)))
    verdict = admit(close, newcomer(tenant("new"), 50, 50), BASIS)
    assert verdict.text.startswith(
        "tenant-a predicted 1.25x (1.31x with its margin) > 1.27x at 50 %; needs 5 points more"
    )


def test_without_rows_it_says_how_many_are_missing() -> None:
    verdict = admit(BUSY, JOINS, replace(BASIS, thresholds=uncertified(11)))
    assert verdict.reason is Reason.NEED_PROFILE
    assert "rows 11 of 32" in verdict.text
    assert (verdict.rows, verdict.rows_needed) == (11, 32)
    unknown = admit(BUSY, JOINS, replace(BASIS, thresholds={}))
    assert unknown.reason is Reason.NEED_PROFILE
    assert (unknown.rows, unknown.rows_needed) == (0, 0)


def test_no_one_with_an_objective_needs_no_certificate() -> None:
    easy = device(resident(tenant("old", 40, slo=None)))
    basis = replace(BASIS, thresholds=uncertified())
    verdict = admit(easy, newcomer(tenant("new", slo=None)), basis)
    assert verdict.admitted
    assert verdict.z == math.inf
    assert verdict.risk == 0.0


def test_a_mixture_worse_than_one_after_the_other_is_not_worth_it() -> None:
    basis = replace(BASIS, forecaster=CrowdForecaster(toll=3.0))
    free = device(resident(tenant("old", 40, slo=None)))
    verdict = admit(free, newcomer(tenant("new", slo=None), 60, 60), basis)
    assert verdict.reason is Reason.NOT_WORTH_SHARING
    assert "at least 100% is asked" in verdict.text
    settings = RiskSettings(min_combined_percent=0.0)
    verdict = admit(
        free, newcomer(tenant("new", slo=None), 60, 60), replace(basis, settings=settings)
    )
    assert verdict.reason is Reason.NOT_WORTH_SHARING
    assert "not more than 1.00 without new" in verdict.text


def test_weights_count_in_what_a_device_is_worth_before_and_after() -> None:
    busy = device(resident(tenant("old", 40, slo=None, weight=3.0)))
    verdict = admit(busy, newcomer(tenant("new", slo=None, weight=2.0)), BASIS)
    assert verdict.chosen is not None
    old, new = (math.exp(-max(one.mean, 0.0)) for one in verdict.tenants)
    assert verdict.chosen.value == pytest.approx(3 * old + 2 * new)
    assert verdict.chosen.gain == pytest.approx(3 * old + 2 * new - 3)


def test_the_chance_that_it_has_to_leave_costs_by_its_weight() -> None:
    basis = replace(BASIS, forecaster=CrowdForecaster(sd=0.1))
    verdict = admit(BUSY, newcomer(tenant("new", weight=2.0), 30, 30), basis)
    assert verdict.chosen is not None
    risk = 0.5 * math.erfc(verdict.z / math.sqrt(2))
    assert risk > 1e-4
    assert verdict.chosen.eviction_risk == pytest.approx(2 * basis.settings.eviction_weight * risk)
    careful = replace(basis, settings=RiskSettings(eviction_weight=0.0))
    free = admit(BUSY, newcomer(tenant("new", weight=2.0), 30, 30), careful)
    assert free.chosen is not None
    assert free.chosen.net > verdict.chosen.net


BAD = ClassProfile(workload_class="c", fingerprint=Fingerprint(sm=math.nan))


@pytest.mark.parametrize(
    ("where", "who", "what"),
    [
        (BUSY, newcomer(tenant("new", slo=math.nan)), "max_slowdown"),
        (BUSY, newcomer(tenant("new", slo=-1.0)), "max_slowdown"),
        (BUSY, newcomer(tenant("new", use=math.nan)), "utilisation"),
        (BUSY, newcomer(tenant("new", weight=-1.0)), "weight"),
        (BUSY, newcomer(replace(tenant("new"), profile=BAD)), "class c: sm"),
        (
            BUSY,
            newcomer(
                replace(
                    tenant("new"),
                    profile=ClassProfile(
                        workload_class="c", curve=ShareCurve(fixed_s=-1, scaled_s=1)
                    ),
                )
            ),
            "class c: fixed_s",
        ),
    ],
)
def test_impossible_figures_are_named(where: CheckedDevice, who: Newcomer, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        admit(where, who, BASIS)


@pytest.mark.parametrize(
    ("where", "who", "what"),
    [
        (BUSY, newcomer(tenant("new"), 60, 50), "above the most"),
        (BUSY, newcomer(tenant("new"), 0, 50), "outside 1..100"),
        (BUSY, newcomer(tenant("new"), 10, 101), "outside 1..100"),
        (BUSY, newcomer(tenant("new"), memory_mib=-1), "memory of new"),
        (BUSY, newcomer(tenant("new"), contexts=0), "contexts of new"),
        (replace(BUSY, memory_mib=0), JOINS, "memory of GPU-1"),
        (device(resident(tenant("old", 0))), JOINS, "old: share 0 %"),
        (device(resident(tenant("old"), memory_mib=-5)), JOINS, "memory of old"),
    ],
)
def test_impossible_figures_of_limits_are_named(
    where: CheckedDevice, who: Newcomer, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        refusal_after_checks(where, who)


@pytest.mark.parametrize("mean", [math.nan, math.inf])
def test_a_forecast_that_is_no_number_is_never_admitted_on(mean: float) -> None:
    class Broken(CrowdForecaster):
        def forecast(self, accelerator: str, tenants: object) -> Forecast:
            return Forecast(mean=(mean, 0.1), sd=(0.1, 0.1), group=Group.KNOWN, rung=Rung.GP)

    with pytest.raises(ValueError, match="forecast of old is no number"):
        admit(BUSY, JOINS, Basis(forecaster=Broken(), thresholds=certified()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("eps_percent", 0.0),
        ("eps_percent", math.nan),
        ("confidence_percent", 100.0),
        ("fragmentation_weight", -1.0),
        ("min_combined_percent", math.inf),
    ],
)
def test_settings_outside_their_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        RiskSettings(**{name: value})


def test_two_residents_of_the_same_name_keep_their_own_figures() -> None:
    twins = device(resident(tenant("same", 20)), resident(tenant("same", 30)))
    verdict = admit(twins, newcomer(tenant("same"), 10, 20), BASIS)
    assert [one.percent for one in verdict.tenants[:-1]] == [20, 30]
    assert isinstance(twins.residents[0], Resident)
