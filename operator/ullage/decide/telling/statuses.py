# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What everybody is told in a cycle: the status of each workload, and Events where it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ullage.decide.accounting.account import Accountant
from ullage.decide.accounting.news import cost_news
from ullage.decide.advice.recommend import Advisor
from ullage.decide.advice.recommended import advice_news, advised
from ullage.decide.elastic import sizes
from ullage.decide.faults import Blames
from ullage.decide.lives.life import Life
from ullage.decide.model import Emit
from ullage.decide.rounds.news import turn_news
from ullage.decide.spending.savings import with_savings
from ullage.decide.spending.telling import spend_news
from ullage.decide.telling.report import Reporter, event
from ullage.decide.tiers.telling import tier_news, with_tier
from ullage.decide.view import View
from ullage.state.records import WorkloadRecord
from ullage.state.status.records import WorkloadStatus


def tell(
    view: View, reporter: Reporter, lives: Mapping[str, Life], accountant: Accountant
) -> tuple[dict[str, WorkloadStatus], list[Emit]]:
    """The statuses by workload, those that did not change included, and Events of those that did.

    Who has nothing to be told, such as an object that is being deleted, is left out.
    """
    statuses: dict[str, WorkloadStatus] = {}
    events: list[Emit] = []
    advisor = Advisor.of(view.snapshot)
    blames = Blames(view.snapshot)
    for uid in sorted(lives):
        workload = view.snapshot.workloads[uid]
        if lives[uid].silent:
            continue
        with blames.of(workload.ref):
            status = advised(advisor, workload, reporter.status(workload))
            status = with_tier(view, workload, accountant.booked(workload, status))
            status = with_savings(reporter.desk.spending, workload, status)
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
    change = reporter.allotment.sizes.get(workload.ref.uid)
    news = sizes.news(workload, change, epoch) or event(workload, status, epoch)
    advice = advice_news(advisor, workload, status, epoch)
    yield from (one for one in (news, advice) if one is not None)
    yield from turn_news(workload, status, epoch)
    yield from spend_news(workload, status, epoch)
    yield from cost_news(workload, status, epoch)
    yield from tier_news(workload, status, epoch)
