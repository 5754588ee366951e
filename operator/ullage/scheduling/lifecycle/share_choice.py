# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The share of a service's replicas follows its objective, within ``spec.gpu.share``.

Decided with the number of replicas and kept in the status; replicas of another share are replaced
one after the other, as after an edit of ``spec.gpu``. A share that finds no room is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import ChosenShare
from ullage.engines.scaling.configurations import Configuration, Demand
from ullage.engines.scaling.share_choice import at_share, better_share, shares
from ullage.scheduling.inventory.held_shares import scaled_share, share_follows
from ullage.scheduling.model.view import Member, View

HOLD_S: Final = 600.0
"""Between two changes, and after a share found no room, at least (not measured)."""
REPAIR_S: Final = 120.0
"""The same where the objective is out of reach of the present share (not measured)."""
KNOWN_BINS: Final = 20
"""Bins of load that must be known before a share becomes smaller: five minutes."""
ROOM_S: Final = 60.0
"""A replica that waits longer for a device gives the share up."""

Seconds = Callable[[str, int], float]
"""Relative time of a request by accelerator and percent of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareQuestion:
    """All that a choice rests on.

    Attributes:
        now: What most replicas are.
        demand: What must be kept, under the largest load that is reckoned with.
        bins: Of load that are known.
        seconds: Relative time of a request by share.
    """

    view: View
    service: WorkloadRecord
    members: Sequence[Member]
    now: Configuration
    demand: Demand
    bins: int
    seconds: Seconds


def chosen_share(ask: ShareQuestion) -> ChosenShare | None:
    """The share that replicas are to have; that of before, to the very object, where it stays."""
    service, now = ask.service, ask.view.now
    if not share_follows(service):
        return None
    before = _before(ask)
    if before is not None and before.percent and _finds_no_room(ask):
        return ChosenShare(time=whole_second(now))
    since = before.time if before is not None else 0.0
    age_s = now - since if since <= now else HOLD_S  # a clock went back
    if not ask.now.share_percent or (_changes(ask, before) and age_s < HOLD_S):
        return before
    share = service.gpu.share
    assert share is not None  # the share of one without could not follow
    others = [configured(ask, one) for one in shares(share.min_percent, share.max_percent)]
    found = better_share(ask.now, others, ask.demand)
    if found is None:
        return before
    percent = found.configuration.share_percent
    if percent > ask.now.share_percent:
        due = age_s >= (HOLD_S if before is not None and not before.percent else REPAIR_S)
    else:
        due = age_s >= HOLD_S and ask.bins >= KNOWN_BINS
    return ChosenShare(percent=percent, time=whole_second(now)) if due else before


def _before(ask: ShareQuestion) -> ChosenShare | None:
    """The share of before, within bounds that may have changed since."""
    record, held_to = ask.service.status.scaling, scaled_share(ask.service)
    before = record.share if record is not None else None
    if before is None or held_to is None or held_to.max_percent == before.percent:
        return before
    return replace(before, percent=held_to.max_percent)


def configured(ask: ShareQuestion, percent: int) -> Configuration:
    """What a replica with a share would be."""
    return at_share(ask.now, percent, lambda share: ask.seconds(ask.now.accelerator, share))


def _finds_no_room(ask: ShareQuestion) -> bool:
    return any(
        member.gated
        and not member.held
        and not member.foreign_gates  # of other controllers, such as Kueue
        and ask.view.now - member.pod.created > ROOM_S
        for member in ask.members
    )


def _changes(ask: ShareQuestion, before: ChosenShare | None) -> bool:
    """Whether replicas of another share are still there."""
    wanted = before.percent if before is not None else 0
    return bool(wanted) and any(
        held.slice.percent != wanted for member in ask.members for held in member.held
    )
