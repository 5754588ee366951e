# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of the share and the accelerator of a service's replicas by its objective.

It is made with the number of replicas, within the spec, and stored in the status. Replicas of
another kind are replaced one by one, as after an edit of ``spec.gpu``. A kind without room is
abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import ChosenShare
from ullage.cluster.records.workload import WorkloadRecord
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
"""Bins of load required before a share becomes smaller: five minutes."""

Seconds = Callable[[str, int], float]
"""Relative time of a request by accelerator and percent of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Kinds of replicas that a service may have.

    Attributes:
        seconds: Relative time of a request by accelerator and share.
        prices: Price of a device-hour by accelerator, of those that the service may use and on
            which its request time is known.
        barred: Accelerators on which its objective cannot be kept.
        room: Number of replicas that would find a device now, by accelerator and share.
    """

    seconds: Seconds
    prices: Mapping[str, float]
    barred: Collection[str]
    room: Callable[[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareQuestion:
    """Inputs of a choice.

    Attributes:
        now: Configuration of most replicas.
        demand: The objective under the largest expected load.
        bins: Number of known bins of load.
        kinds: Kinds of replicas that the service may have.
    """

    view: View
    service: WorkloadRecord
    members: Sequence[Member]
    now: Configuration
    demand: Demand
    bins: int
    kinds: Kinds


def chosen_share(ask: ShareQuestion) -> ChosenShare | None:
    """The desired share of replicas; the previous object without a change."""
    service, now = ask.service, ask.view.now
    if not accelerator_follows(service):
        return None
    before = _before(ask)
    waits = any(
        member.gated
        and not member.held
        and not member.foreign_gates  # of other controllers, such as Kueue
        and now - member.pod.created > SHARE_ROOM_S
        for member in ask.members
    )
    if before is not None and before.percent and waits:
        return ChosenShare(time=whole_second(now))
    since = before.time if before is not None else 0.0
    age_s = now - since if since <= now else SHARE_HOLD_S  # a clock went back
    if not ask.now.share_percent or (_changes(ask, before) and age_s < SHARE_HOLD_S):
        return before
    better = _better(ask)
    if better is None:
        return before
    if not ranked([ask.now], ask.demand)[0].keeps:
        due = age_s >= (
            SHARE_HOLD_S if before is not None and not before.percent else SHARE_REPAIR_S
        )
    else:
        due = age_s >= SHARE_HOLD_S and ask.bins >= KNOWN_BINS
    if not due:
        return before
    moves = better.accelerator != ask.now.accelerator
    pinned = before is not None and before.percent and before.accelerator
    return ChosenShare(
        percent=better.share_percent,
        accelerator=better.accelerator if moves or pinned else "",
        time=whole_second(now),
    )


def _better(ask: ShareQuestion) -> Configuration | None:
    """A better configuration; another accelerator only when every replica finds a device."""
    others = _others(ask)
    while (better := better_share(ask.now, others, ask.demand)) is not None:
        candidate = better.configuration
        if candidate.accelerator == ask.now.accelerator:
            return candidate
        if ask.kinds.room(candidate.accelerator, candidate.share_percent) >= better.replicas:
            return candidate
        others = [other for other in others if other.accelerator != candidate.accelerator]
    return None


def _others(ask: ShareQuestion) -> list[Configuration]:
    """Configurations to compare; other accelerators only when all have a price.

    A range within which replicas take what fits does not define their share on another accelerator.
    """
    share = ask.service.gpu.share
    percents: tuple[int, ...] = (ask.now.share_percent,)
    if share is not None and share_follows(ask.service):
        percents = shares(share.min_percent, share.max_percent)
    elif share is not None and share.min_percent < share.max_percent:
        return []
    accelerator, prices = ask.now.accelerator, ask.kinds.prices
    types = (
        sorted(prices.keys() - (set(ask.kinds.barred) - {accelerator}))
        if accelerator in prices
        else [accelerator]
    )
    return [of_kind(ask.now, ask.kinds, model, each) for model in types for each in percents]


def of_kind(now: Configuration, kinds: Kinds, accelerator: str, percent: int) -> Configuration:
    """The configuration of a replica with a share of an accelerator, at its price if known."""
    price = kinds.prices.get(accelerator, 1.0)
    return configured(now, accelerator, percent, kinds.seconds, price)


def _before(ask: ShareQuestion) -> ChosenShare | None:
    """The previous share, within bounds that may have changed since."""
    record, held_to = ask.service.status.scaling, scaled_share(ask.service)
    before = record.share if record is not None else None
    if before is None:
        return None
    percent = held_to.max_percent if held_to is not None else before.percent
    on = before.accelerator if (before.accelerator,) == accelerators_asked(ask.service) else ""
    stays = (percent, on) == (before.percent, before.accelerator)
    return before if stays else replace(before, percent=percent, accelerator=on)


def _changes(ask: ShareQuestion, before: ChosenShare | None) -> bool:
    """True while replicas of another share or accelerator exist."""
    if before is None or not before.percent:
        return False
    return any(
        held.slice.percent != before.percent
        or before.accelerator not in ("", model_of(ask.view, held.node, held.slice.gpu))
        for member in ask.members
        for held in member.held
    )
