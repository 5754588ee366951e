# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The share and the accelerator of a service's replicas follow its objective, within its spec.

Decided with the number of replicas and kept in the status; replicas of another kind are replaced
one after the other, as after an edit of ``spec.gpu``. A kind that finds no room is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import ChosenShare
from ullage.engines.scaling.configurations import Configuration, Demand, ranked
from ullage.engines.scaling.share_choice import better_share, configured, shares
from ullage.scheduling.inventory.held_shares import (
    accelerator_follows,
    accelerators_asked,
    scaled_share,
    share_follows,
)
from ullage.scheduling.lifecycle.service_load import model_of
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import SHARE_HOLD_S, SHARE_REPAIR_S, SHARE_ROOM_S

KNOWN_BINS: Final = 20
"""Bins of load that must be known before a share becomes smaller: five minutes."""

Seconds = Callable[[str, int], float]
"""Relative time of a request by accelerator and percent of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """What replicas may be.

    Attributes:
        seconds: Relative time of a request by accelerator and share.
        prices: Of a device for an hour, by accelerator: of those that the service may use and
            on which its time is known.
        barred: Accelerators on which its objective cannot be kept.
        room: How many replicas of a share of an accelerator would find a device now.
    """

    seconds: Seconds
    prices: Mapping[str, float]
    barred: Collection[str]
    room: Callable[[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareQuestion:
    """All that a choice rests on.

    Attributes:
        now: What most replicas are.
        demand: What must be kept, under the largest load that is reckoned with.
        bins: Of load that are known.
        kinds: What replicas may be.
    """

    view: View
    service: WorkloadRecord
    members: Sequence[Member]
    now: Configuration
    demand: Demand
    bins: int
    kinds: Kinds


def chosen_share(ask: ShareQuestion) -> ChosenShare | None:
    """What replicas are to have; the choice of before, to the very object, where it stays."""
    service, now = ask.service, ask.view.now
    if not accelerator_follows(service):
        return None
    before = _before(ask)
    if before is not None and before.percent and _finds_no_room(ask):
        return ChosenShare(time=whole_second(now))
    since = before.time if before is not None else 0.0
    age_s = now - since if since <= now else SHARE_HOLD_S  # a clock went back
    if not ask.now.share_percent or (_changes(ask, before) and age_s < SHARE_HOLD_S):
        return before
    found = _found(ask)
    if found is None:
        return before
    if not ranked([ask.now], ask.demand)[0].keeps:
        due = age_s >= (
            SHARE_HOLD_S if before is not None and not before.percent else SHARE_REPAIR_S
        )
    else:
        due = age_s >= SHARE_HOLD_S and ask.bins >= KNOWN_BINS
    if not due:
        return before
    moves = found.accelerator != ask.now.accelerator
    held = before is not None and before.percent and before.accelerator
    return ChosenShare(
        percent=found.share_percent,
        accelerator=found.accelerator if moves or held else "",
        time=whole_second(now),
    )


def _found(ask: ShareQuestion) -> Configuration | None:
    """What is better than what replicas are; another accelerator only where all find a device."""
    others = _others(ask)
    while (found := better_share(ask.now, others, ask.demand)) is not None:
        one = found.configuration
        if one.accelerator == ask.now.accelerator:
            return one
        if ask.kinds.room(one.accelerator, one.share_percent) >= found.replicas:
            return one
        others = [other for other in others if other.accelerator != one.accelerator]
    return None


def _others(ask: ShareQuestion) -> list[Configuration]:
    """What replicas might be; other accelerators only where all have a price.

    A range of which replicas get what fits says nothing of their share on another accelerator.
    """
    share = ask.service.gpu.share
    percents: tuple[int, ...] = (ask.now.share_percent,)
    if share is not None and share_follows(ask.service):
        percents = shares(share.min_percent, share.max_percent)
    elif share is not None and share.min_percent < share.max_percent:
        return []
    here, prices = ask.now.accelerator, ask.kinds.prices
    types = sorted(prices.keys() - (set(ask.kinds.barred) - {here})) if here in prices else [here]
    return [of_kind(ask.now, ask.kinds, one, each) for one in types for each in percents]


def of_kind(now: Configuration, kinds: Kinds, accelerator: str, percent: int) -> Configuration:
    """What a replica with a share of an accelerator would be, at its price if it has one."""
    price = kinds.prices.get(accelerator, 1.0)
    return configured(now, accelerator, percent, kinds.seconds, price)


def _before(ask: ShareQuestion) -> ChosenShare | None:
    """The share of before, within bounds that may have changed since."""
    record, held_to = ask.service.status.scaling, scaled_share(ask.service)
    before = record.share if record is not None else None
    if before is None:
        return None
    percent = held_to.max_percent if held_to is not None else before.percent
    on = before.accelerator if (before.accelerator,) == accelerators_asked(ask.service) else ""
    stays = (percent, on) == (before.percent, before.accelerator)
    return before if stays else replace(before, percent=percent, accelerator=on)


def _finds_no_room(ask: ShareQuestion) -> bool:
    return any(
        member.gated
        and not member.held
        and not member.foreign_gates  # of other controllers, such as Kueue
        and ask.view.now - member.pod.created > SHARE_ROOM_S
        for member in ask.members
    )


def _changes(ask: ShareQuestion, before: ChosenShare | None) -> bool:
    """Whether replicas of another share or accelerator are still there."""
    if before is None or not before.percent:
        return False
    return any(
        held.slice.percent != before.percent
        or before.accelerator not in ("", model_of(ask.view, held.node, held.slice.gpu))
        for member in ask.members
        for held in member.held
    )
