# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random admissions and departures on random devices: memory and contexts are never overcommitted.

Three thousand admissions by default; ``ULLAGE_ADMISSIONS`` sets another number. What is held is
counted here again, not by the functions that decide.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fakes.admission import (
    CrowdForecaster,
    admit,
    certified,
    device,
    newcomer,
    query,
    resident,
    tenant,
)
from ullage.engines.admission.filters import CheckedDevice, Newcomer, Resident, first_refusal
from ullage.engines.admission.margin import margin
from ullage.engines.admission.records import ClassProfile, Fingerprint, Group, Tenant
from ullage.engines.admission.verdict import Basis, RiskSettings, Verdict

pytestmark = pytest.mark.slow

ADMISSIONS = int(os.environ.get("ULLAGE_ADMISSIONS", "3000"))
PER_CASE = 500

KNOWN_CLASSES = [
    {key: one for key, one in certified(value).items() if key[0] is Group.KNOWN}
    for value in (0.0, 1.0, 2.0)
]
"""Thresholds of the one group that the forecaster here speaks of."""

SEEN = [
    ClassProfile(workload_class="c", fingerprint=Fingerprint(peak_memory_mib=peak))
    for peak in (None, None, 100.5, 3_000.0)
]
PROFILES = [*SEEN, *[None] * len(SEEN)]


@pytest.mark.parametrize("case", range(max(1, ADMISSIONS // PER_CASE)))
def test_no_admission_overcommits_memory_contexts_or_percent(case: int) -> None:
    rng = random.Random(case)
    here, basis = _random_device(rng), _random_basis(rng)
    admitted = asked = 0
    while admitted < PER_CASE:
        asked += 1
        assert asked < 100 * PER_CASE, f"case {case} admits next to no one"
        who = _random_newcomer(rng, asked)
        refusal = first_refusal(who, here)
        verdict = admit(here, who, basis) if refusal is None else None
        if verdict is not None:
            assert verdict.admitted == (verdict.percent > 0), f"case {case}, {asked}"
        if verdict is not None and verdict.admitted:
            assert who.min_percent <= verdict.percent <= who.max_percent
            here = _joined(here, who, verdict)
            _assert_nothing_is_overcommitted(here, f"case {case}, question {asked}")
            admitted += 1
            continue
        assert refusal.text if refusal is not None else verdict.text
        if here.residents and rng.random() < 0.5:
            gone = rng.randrange(len(here.residents))
            here = replace(here, residents=here.residents[:gone] + here.residents[gone + 1 :])
        elif not here.residents or rng.random() < 0.2:
            # an empty device that refuses has no more to say
            here, basis = _random_device(rng), _random_basis(rng)


def _assert_nothing_is_overcommitted(here: CheckedDevice, where: str) -> None:
    held = 0.0
    for one in here.residents:
        if one.memory_mib is None:
            held += math.floor(here.memory_mib * one.tenant.percent / 100)
        else:
            held += one.memory_mib + one.contexts * here.context_overhead_mib
    assert held <= here.memory_mib, where
    assert sum(one.contexts for one in here.residents) <= here.contexts, where
    assert sum(one.tenant.percent for one in here.residents) <= here.percent_limit, where


def _joined(here: CheckedDevice, who: Newcomer, verdict: Verdict) -> CheckedDevice:
    new = Resident(
        tenant=replace(who.tenant, percent=verdict.percent),
        memory_mib=who.memory_mib or None,
        contexts=who.contexts,
        trust_domain=who.trust_domain,
    )
    return replace(here, residents=(*here.residents, new))


def _random_device(rng: random.Random) -> CheckedDevice:
    """Now and then one where hardly anyone fits: it asks many questions for few admissions."""
    return replace(
        device(),
        memory_mib=rng.choice([1, 511, 4_096, 16_384, 16_384, 81_920, 81_920, 81_920]),
        contexts=rng.choice([0, 1, 4, 4, 44, 44, 44]),
        context_overhead_mib=rng.choice([0, 307, 512]),
        percent_limit=rng.choice([100, 100, 200, 800]),
    )


def _random_basis(rng: random.Random) -> Basis:
    return Basis(
        forecaster=CrowdForecaster(toll=rng.choice([0.0, 0.3, 1.0]), sd=rng.choice([0.0, 0.1])),
        thresholds=rng.choice(KNOWN_CLASSES),
        settings=RiskSettings(min_combined_percent=rng.choice([0, 100])),
    )


def _random_newcomer(rng: random.Random, number: int) -> Newcomer:
    least = rng.choice([1, 5, 10, 25, rng.randint(1, 100)])
    one = tenant(
        f"t{number}",
        slo=rng.choice([None, 1.05, 1.5, 2.0, 10.0]),
        use=rng.choice([0.0, 0.05, 0.3, 1.0]),
        weight=rng.choice([1.0, 0.5, 3.0]),
    )
    return newcomer(
        replace(one, profile=rng.choice(PROFILES)),
        least,
        rng.randint(least, 100),
        memory_mib=rng.choice([0, 1, 800, 5_000, 40_000]),
        contexts=rng.choice([1, 1, 2, 5]),
    )


tenants = st.builds(
    tenant,
    st.sampled_from(["a", "b", "c"]),
    st.integers(5, 60),
    slo=st.sampled_from([None, 1.2, 1.5, 2.0, 4.0]),
    use=st.sampled_from([0.1, 0.4, 0.9]),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
)
crowds = st.lists(tenants, max_size=3).map(
    lambda all_: device(*(resident(one) for one in all_), percent_limit=250)
)
bounds = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(sorted)
bases = st.builds(
    lambda toll, sd, required, floor, risk: Basis(
        forecaster=CrowdForecaster(toll=toll, sd=sd),
        thresholds=certified(required),
        settings=RiskSettings(min_combined_percent=floor, eviction_weight=risk),
    ),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([0.0, 1.0, 2.5]),
    st.sampled_from([0.0, 80.0, 100.0]),
    st.sampled_from([0.0, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(crowds, tenants, bounds, bases)
def test_the_share_is_the_one_that_trying_all_would_choose(
    here: CheckedDevice, one: Tenant, between: list[int], basis: Basis
) -> None:
    least, most = between
    who = newcomer(one, least, most)
    verdict = admit(here, who, basis) if first_refusal(who, here) is None else None
    assert (verdict.percent if verdict is not None else 0) == _by_trying_all(
        here, one, (least, most), basis
    )


def _by_trying_all(here: CheckedDevice, one: Tenant, between: tuple[int, int], basis: Basis) -> int:
    """Sections of the rule written out plainly: margin, worth, largest net, smaller share."""
    present = [each.tenant for each in here.residents]
    top = min(between[1], here.percent_limit - sum(each.percent for each in present))
    tried = {between[0], top, *range(10, 101, 10)} if top >= between[0] else set()
    before = _value(present, basis)[0]
    best = (-math.inf, 0)
    for percent in sorted(share for share in tried if between[0] <= share <= top):
        mixture = [*present, replace(one, percent=percent)]
        forecast = basis.forecaster.forecast("v100", mixture)
        zs = [
            _margin(math.log(each.max_slowdown) - mean, sd)
            for each, mean, sd in zip(mixture, forecast.mean, forecast.sd, strict=True)
            if each.max_slowdown is not None
        ]
        z = min(zs, default=math.inf)
        asked = 1.645 if not present else basis.thresholds[next(iter(basis.thresholds))].value
        value, combined = _value(mixture, basis)
        worth = value > before + 1e-9
        if present:
            worth &= combined >= basis.settings.min_combined_percent / 100 - 1e-9
        if (zs and z < asked) or not worth:
            continue
        risk = one.weight * basis.settings.eviction_weight * math.erfc(z / math.sqrt(2)) / 2
        if value - before - risk > best[0] + 1e-9:
            best = (value - before - risk, percent)
    return best[1]


def _margin(slack: float, sd: float) -> float:
    return slack / sd if sd else math.copysign(math.inf, slack + 1e-6)


def _value(mixture: list[Tenant], basis: Basis) -> tuple[float, float]:
    if not mixture:
        return 0.0, 0.0
    means = basis.forecaster.forecast("v100", mixture).mean
    speeds = [math.exp(-max(0.0, mean)) for mean in means]
    weighted = math.fsum(one.weight * speed for one, speed in zip(mixture, speeds, strict=True))
    return weighted, math.fsum(speeds)


@settings(max_examples=150, deadline=None)
@given(crowds, tenants, bounds, bases, st.floats(0.3, 1.0), st.data())
def test_a_tighter_objective_never_admits_more(
    here: CheckedDevice,
    one: Tenant,
    between: list[int],
    basis: Basis,
    by: float,
    data: st.DataObject,
) -> None:
    """The newcomer's objective or any resident's is tightened; nothing else changes."""
    with_slo = replace(one, max_slowdown=one.max_slowdown or 3.0)
    who = newcomer(with_slo, *between)
    loose = {share for share in query(here, who).shares if _safe(here, who, share, basis)}
    index = data.draw(st.integers(0, len(here.residents)))
    if index == len(here.residents):
        tight = replace(with_slo, max_slowdown=max(1.0, with_slo.max_slowdown * by))
        who = newcomer(tight, *between)
    else:
        held = here.residents[index]
        slo = max(1.0, (held.tenant.max_slowdown or 3.0) * by)
        tightened = replace(held, tenant=replace(held.tenant, max_slowdown=slo))
        here = replace(
            here,
            residents=(*here.residents[:index], tightened, *here.residents[index + 1 :]),
        )
    left = {share for share in query(here, who).shares if _safe(here, who, share, basis)}
    assert left <= loose


def _safe(here: CheckedDevice, who: Newcomer, percent: int, basis: Basis) -> bool:
    mixture = query(here, who).mixture(percent)
    forecast = basis.forecaster.forecast("v100", mixture)
    return margin(mixture, forecast, basis.thresholds).passes


@settings(max_examples=100, deadline=None)
@given(crowds, tenants, bounds, bases)
def test_the_same_question_has_the_same_answer_byte_for_byte(
    here: CheckedDevice, one: Tenant, between: list[int], basis: Basis
) -> None:
    who = newcomer(one, *between)
    assume(first_refusal(who, here) is None)
    assert repr(admit(here, who, basis)) == repr(admit(here, who, basis))
