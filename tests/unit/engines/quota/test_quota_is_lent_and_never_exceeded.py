# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of cohorts, beside a plain one that searches all ways to share a pool."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.quota.records import NO_TENANT, QuotaLimits, Quotas, QuotaTenant, Reclaim
from ullage.engines.quota.usage import QuotaUsage

KIND = "a100"


def limits_of(nominal: int, borrowing: int | None, lending: int | None) -> QuotaLimits:
    return QuotaLimits(
        nominal=nominal,
        borrowing=borrowing,
        lending=None if lending is None else min(lending, nominal),
    )


some_limits = st.builds(
    limits_of,
    st.integers(0, 4),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 4),
)
some_tenants = st.lists(
    st.tuples(some_limits, st.sampled_from(["x", "y", ""]), st.sampled_from(list(Reclaim))),
    min_size=1,
    max_size=4,
)


def quotas(said: list[tuple[QuotaLimits, str, Reclaim]]) -> Quotas:
    return Quotas(
        [
            QuotaTenant(name=f"t{at}", limits={KIND: limits}, cohort=cohort, reclaim=reclaim)
            for at, (limits, cohort, reclaim) in enumerate(said)
        ]
    )


def is_allowed(rules: Quotas, used: list[int]) -> bool:
    """The rules in plain words: who borrows how much, and whether enough lend it."""
    for tenant, amount in zip(rules.tenants, used, strict=True):
        limits = tenant.limits[KIND]
        borrowed = max(0, amount - limits.nominal)
        most = limits.borrowing if tenant.cohort else 0
        if most is not None and borrowed > most:
            return False
    for cohort in {tenant.cohort for tenant in rules.tenants if tenant.cohort}:
        borrowed = lent = 0
        for tenant, amount in zip(rules.tenants, used, strict=True):
            if tenant.cohort == cohort:
                limits = tenant.limits[KIND]
                borrowed += max(0, amount - limits.nominal)
                lent += min(limits.lendable, max(0, limits.nominal - amount))
        if borrowed > lent:
            return False
    return True


def usage_of(rules: Quotas, used: list[int]) -> QuotaUsage:
    usage = QuotaUsage(rules)
    for tenant, amount in enumerate(used):
        usage.add(tenant, KIND, amount)
    return usage


@pytest.mark.slow
@given(some_tenants, st.data())
def test_what_is_available_is_what_the_plain_rules_allow(
    said: list[tuple[QuotaLimits, str, Reclaim]], data: st.DataObject
) -> None:
    rules = quotas(said)
    states = [
        list(used) for used in product(range(6), repeat=len(said)) if is_allowed(rules, list(used))
    ]
    used = data.draw(st.sampled_from(states))
    usage = usage_of(rules, used)
    for tenant in range(len(said)):
        more = [
            amount
            for amount in range(20)
            if is_allowed(rules, [one + amount * (at == tenant) for at, one in enumerate(used)])
        ]
        assert usage.available(tenant, KIND) == max(more)


@given(some_tenants, st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=30))
def test_whoever_comes_and_in_whatever_order_the_rules_hold(
    said: list[tuple[QuotaLimits, str, Reclaim]], asked: list[tuple[int, int]]
) -> None:
    rules = quotas(said)
    usage = QuotaUsage(rules)
    for number, amount in asked:
        tenant = number % len(said)
        if amount <= usage.available(tenant, KIND):
            usage.add(tenant, KIND, amount)
    used = [usage.used(tenant, KIND) for tenant in range(len(said))]
    assert is_allowed(rules, used)
    for cohort in {tenant.cohort for tenant in rules.tenants}:
        of_it = [at for at, tenant in enumerate(rules.tenants) if tenant.cohort == cohort]
        nominal = sum(rules.tenants[at].limits[KIND].nominal for at in of_it)
        assert sum(used[at] for at in of_it) <= nominal
    for tenant, amount in enumerate(used):
        assert amount <= usage.most(tenant, KIND)


@given(some_tenants, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20))
def test_what_comes_and_goes_leaves_nothing_behind(
    said: list[tuple[QuotaLimits, str, Reclaim]], asked: list[tuple[int, int]]
) -> None:
    rules = quotas(said)
    usage = QuotaUsage(rules)
    for number, amount in asked:
        usage.add(number % len(said), KIND, amount)
    for number, amount in reversed(asked):
        usage.add(number % len(said), KIND, -amount)
    fresh = QuotaUsage(rules)
    for tenant in range(len(said)):
        assert usage.available(tenant, KIND) == fresh.available(tenant, KIND)


@given(some_tenants, st.data())
def test_what_is_taken_back_is_enough_for_the_nominal_quota_and_never_goes_to_and_fro(
    said: list[tuple[QuotaLimits, str, Reclaim]], data: st.DataObject
) -> None:
    rules = quotas([(limits, "x", Reclaim.ANY) for limits, _, _ in said])
    states = [
        list(used) for used in product(range(6), repeat=len(said)) if is_allowed(rules, list(used))
    ]
    usage = usage_of(rules, data.draw(st.sampled_from(states)))
    owner = data.draw(st.integers(0, len(said) - 1))
    need = usage.nominal_left(owner, KIND)
    if need <= 0:
        return
    lost: list[int] = []
    for victim in range(len(said)):
        for _ in range(usage.used(victim, KIND)):
            if need > usage.available(owner, KIND) and usage.reclaims(
                owner, need, victim, KIND, is_lower=False
            ):
                usage.add(victim, KIND, -1)
                lost.append(victim)
    assert usage.available(owner, KIND) >= need
    for victim in lost:
        assert usage.nominal_left(victim, KIND) <= 0, "no more than was borrowed"
    usage.add(owner, KIND, need)
    for victim in lost:
        assert not usage.reclaims(victim, 1, owner, KIND, is_lower=True)


@pytest.mark.parametrize("tenant", [0, NO_TENANT])
def test_no_one_takes_back_from_itself_or_from_those_without_quota(tenant: int) -> None:
    rules = quotas([(QuotaLimits(nominal=1, borrowing=None), "x", Reclaim.ANY)])
    usage = usage_of(rules, [5])
    assert not usage.reclaims(tenant, 0, 0, KIND, is_lower=True)
    assert not usage.reclaims(0, 0, NO_TENANT, KIND, is_lower=True)
    assert usage.protects(NO_TENANT, 0, KIND) is False
    assert usage.protects(0, NO_TENANT, KIND) is False


def test_a_policy_that_shrank_gives_nothing_and_breaks_nothing() -> None:
    rules = quotas(
        [
            (QuotaLimits(nominal=1, borrowing=None, lending=0), "x", Reclaim.ANY),
            (QuotaLimits(nominal=2, borrowing=None), "x", Reclaim.ANY),
        ]
    )
    usage = usage_of(rules, [0, 9])
    assert usage.available(1, KIND) == 0
    assert usage.available(0, KIND) == 1, "what is never lent is there for its owner"
