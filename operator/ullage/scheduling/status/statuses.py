# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What everyone is told in a cycle: the status of each workload, and Events where it changed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.accounting.account import Accountant
from ullage.scheduling.accounting.events import cost_news
from ullage.scheduling.capacity.savings import with_savings
from ullage.scheduling.capacity.status import spend_news
from ullage.scheduling.elastic import sizes
from ullage.scheduling.learning.recommend import Advisor
from ullage.scheduling.learning.recommendation import advice_news, advised
from ullage.scheduling.lifecycle.tier_status import tier_news, with_tier
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.view import View
from ullage.scheduling.status.report import Reporter, event
from ullage.scheduling.timeslicing.events import turn_news


def tell(
    view: View,
    reporter: Reporter,
    lifecycles: Mapping[str, LifecycleStep],
    accountant: Accountant,
    unchanged: Container[str],
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """The statuses by workload, those that did not change included, and Events of those that did.

    Who has nothing to be told, such as an object that is being deleted, is left out. The status of
    an ``unchanged`` workload stands.
    """
    statuses: dict[str, WorkloadStatus] = {}
    events: list[Emit] = []
    advisor = Advisor.of(view.snapshot)
    blames = Blames(view.snapshot)
    for uid, life in lifecycles.items():
        workload = view.snapshot.workloads[uid]
        if life.silent:
            continue
        if uid in unchanged:
            statuses[uid] = workload.status
            continue
        with blames.of(workload.ref):
            status = advised(advisor, workload, reporter.status(workload))
            status = with_tier(view, workload, accountant.booked(workload, status))
            status = with_savings(reporter.context.spending, workload, status)
            statuses[uid] = status
            if status is not workload.status:
                events.extend(_news(view, reporter, advisor, workload, status))
    blames.settle()
    return statuses, events


def _news(
    view: View,
    reporter: Reporter,
    advisor: Advisor,
    workload: WorkloadRecord,
    status: WorkloadStatus,
) -> Iterator[Emit]:
    """Events of a status that changed."""
    epoch = view.settings.epoch
    change = reporter.assignments.sizes.get(workload.ref.uid)
    news = sizes.news(workload, change, epoch) or event(workload, status, epoch)
    advice = advice_news(advisor, workload, status, epoch)
    yield from (one for one in (news, advice) if one is not None)
    yield from turn_news(workload, status, epoch)
    yield from spend_news(workload, status, epoch)
    yield from cost_news(workload, status, epoch)
    yield from tier_news(workload, status, epoch)
