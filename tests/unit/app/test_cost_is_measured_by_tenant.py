# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of cost add up by tenant, never shrink, and never count what another process counted."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from prometheus_client.core import Metric

from builders import NOW, a_job, a_policy, a_snapshot
from ullage.api.schedulingpolicy import Tenant
from ullage.cli.cost import lines
from ullage.cli.forms import CostBy as By
from ullage.cluster.records.status import Account, SpendRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.metrics.cost import CostSums
from ullage.metrics.tenants import MOST_OF_A_NAMESPACE, TenantLabels
from ullage.process.metric_families import families
from ullage.scheduling.accounting.bills import bill_of, total
from ullage.scheduling.inventory.tenant_bindings import tenant_of
from ullage.web.state import page_state


def billed(
    name: str, total: str, *, tenant: str = "research", age_s: float = 0.0, **figures: object
) -> WorkloadRecord:
    account = Account(since=NOW, as_of=NOW, total=total, **figures)  # type: ignore[arg-type]
    job = a_job(name).with_(tenant=tenant).aged(age_s)
    return job.status(spend=SpendRecord(account=account)).build()


def values(families: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels["tenant"]): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_is_entered_is_added_once_and_stays_when_the_job_goes() -> None:
    sums = CostSums(began=NOW)
    jobs = [billed("a", "5"), billed("b", "1", tenant="")]
    for _ in range(2):
        figures = sums.figures(jobs, NOW)
    assert figures.cost == {("research", "USD"): 5.0, ("default", "USD"): 1.0}
    sums.figures([billed("a", "7"), jobs[1]], NOW)
    assert sums.figures([], NOW).cost == {("research", "USD"): 7.0, ("default", "USD"): 1.0}


def test_what_stood_there_before_is_not_counted_again() -> None:
    sums = CostSums(began=NOW)
    old = billed("old", "100", age_s=500, evictions=4)
    assert sums.figures([old], NOW).cost == {("research", "USD"): 0.0}
    newer = billed("old", "103", age_s=500, evictions=5, lost_seconds=30)
    found = sums.figures([newer], NOW)
    assert (found.cost, found.evictions) == ({("research", "USD"): 3.0}, {"research": 1.0})
    assert found.lost_seconds == {"research": 30.0}
    # a picture that is late takes nothing back
    assert sums.figures([old], NOW).cost == {("research", "USD"): 3.0}
    assert sums.figures([newer], NOW).cost == {("research", "USD"): 3.0}


def lost(sums: CostSums, seconds: int, assumed: int = 0, phase: str = "Running") -> float:
    """The counter after the books said so."""
    job = billed("a", "5", lost_seconds=seconds, assumed_seconds=assumed)
    told = replace(job, status=replace(job.status, phase=phase))
    return sums.figures([told], NOW).lost_seconds["research"]


def test_lost_work_counts_once_the_next_start_has_said_where_it_resumed() -> None:
    sums = CostSums(began=NOW)
    assert lost(sums, 0) == 0
    assert lost(sums, 1800, assumed=1800, phase="Restarting") == 0
    assert lost(sums, 1800, assumed=1800, phase="Starting") == 0
    # it had saved its work in the last moment
    assert lost(sums, 20) == 20
    # of the next loss no one says anything: what was assumed stands
    assert lost(sums, 620, assumed=600, phase="Restarting") == 20
    assert lost(sums, 620) == 620


def test_what_a_loss_is_assumed_to_have_taken_counts_when_no_start_follows() -> None:
    sums = CostSums(began=NOW)
    assert lost(sums, 600, assumed=600, phase="Restarting") == 0
    assert lost(sums, 600, assumed=600, phase="Failed") == 600


def test_a_loss_that_another_process_saw_counts_as_much_as_it_took() -> None:
    sums = CostSums(began=NOW)
    for seconds, assumed, counted in ((900, 900, 0), (70, 0, 70)):
        job = billed("old", "5", age_s=500, lost_seconds=seconds, assumed_seconds=assumed)
        assert sums.figures([job], NOW).lost_seconds == {"research": counted}


def test_savings_compare_only_what_can_be_compared() -> None:
    known = billed("a", "25", on_demand_total="100", per_hour="2.5", on_demand_per_hour="10")
    unknown = billed("b", "900", per_hour="1")
    figures = CostSums(began=NOW).figures([known, unknown], NOW)
    assert figures.savings == {"research": pytest.approx(0.75)}
    assert figures.per_hour == {("research", "USD"): 3.5}
    found = values(list(families(figures)))
    assert found["ullage_job_savings_ratio", "research"] == pytest.approx(0.75)
    assert found["ullage_job_cost_total", "research"] == 925


def test_a_bill_goes_on_between_two_entries() -> None:
    job = billed("a", "25", on_demand_total="100", per_hour="2", on_demand_per_hour="6")
    bill = bill_of(job, NOW + 1800)
    assert bill is not None
    assert (bill.spent, bill.on_demand, bill.saved) == (Decimal(26), Decimal(103), Decimal(77))


def test_a_sum_of_bills_tells_what_it_lacks() -> None:
    first = bill_of(billed("a", "25"), NOW)
    lacks = bill_of(billed("b", "", message="no price of fast"), NOW)
    assert first is not None
    assert lacks is not None
    found = total([first, lacks])
    assert (found.spent, found.unpriced, found.workloads) == (Decimal(25), 1, 2)
    assert found.message == "no price of fast"
    assert total([lacks]).spent is None
    assert total([]) == replace(total([]), workloads=0)


def test_one_namespace_makes_no_more_series_than_its_bound() -> None:
    sums = CostSums(began=NOW)
    for n in range(10):
        many = [billed(f"j{n}-{at}", "1", tenant=f"made-up-{n}-{at}") for at in range(10)]
        figures = sums.figures(many, NOW)
    assert len(figures.cost) == MOST_OF_A_NAMESPACE + 1
    assert sum(figures.cost.values()) == 100
    assert figures.cost["default", "USD"] == 100 - MOST_OF_A_NAMESPACE


def test_money_is_labelled_with_its_currency() -> None:
    found = list(families(CostSums(began=NOW, currency="EUR").figures([billed("a", "5")], NOW)))
    labels = {sample.name: sample.labels for family in found for sample in family.samples}
    money = {"ullage_job_cost_total", "ullage_job_cost_per_hour"}
    assert {name for name in labels if "currency" in labels[name]} == money
    assert all(labels[name]["currency"] == "EUR" for name in money)


BOUND = a_policy(
    tenants=(
        Tenant(name="open"),
        Tenant(name="owner", namespaces=frozenset({"default"})),
        Tenant(name="research", namespaces=frozenset({"team-b"})),
    )
)


@pytest.mark.parametrize(
    ("named", "party"),
    [
        ("", "owner"),  # the tenant that its namespace belongs to, as quota counts it
        ("owner", "owner"),
        ("open", "open"),
        ("research", "owner"),  # not open to the namespace: it pays for no work of this one
        ("invented", "owner"),
    ],
)
def test_a_bill_goes_to_the_tenant_that_quota_and_time_are_counted_for(
    named: str, party: str
) -> None:
    work = billed("a", "5", tenant=named)
    assert tenant_of(BOUND, work) == party
    sums = CostSums(began=NOW, parties=TenantLabels(policy=BOUND))
    assert sums.figures([work], NOW).cost == {(party, "USD"): 5.0}
    (line,) = lines([work], By.TENANT, NOW, BOUND)
    assert line.tenant == party
    (row,) = page_state(a_snapshot(BOUND, work), "USD")["cost"]["items"]  # type: ignore[index]
    assert row["tenant"] == party


def test_where_no_tenant_has_the_namespace_a_bill_goes_to_the_name_or_the_namespace() -> None:
    parties = TenantLabels(
        policy=a_policy(tenants=(Tenant(name="a", namespaces=frozenset({"b"})),))
    )
    assert parties.label(billed("a", "1", tenant="invented")) == "invented"
    nameless = billed("a", "1", tenant="")
    assert (parties.label(nameless), parties.tenant(nameless)) == ("default", "")


def test_tenants_of_the_policy_have_their_series_however_many_names_were_made_up() -> None:
    parties = TenantLabels(policy=a_policy(tenants=(Tenant(name="open"),)))
    for n in range(2 * MOST_OF_A_NAMESPACE):
        parties.label(billed("a", "1", tenant=f"made-up-{n}"))
    assert parties.label(billed("a", "1", tenant="one-more")) == "default"
    assert parties.label(billed("a", "1", tenant="open")) == "open"
