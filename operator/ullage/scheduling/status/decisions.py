# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The record of a decision: written again only when it decides something else.

Its time, hash and texts are of the moment of the decision; figures that move while nothing is
decided stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.contract import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import DecisionRecord, RefusalLine
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.candidates import Candidate
from ullage.scheduling.placement.predicted_figures import Part

_MOST_NAMED = 3

ALONE: Final = ", alone until its latency is measured"
"""Last words about a place that no one joins for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What was decided for a workload in this cycle."""

    reason: Reason
    text: Callable[[], str]
    """Made only when the record is written."""
    chosen: str = ""
    runner_up: str = ""
    lines: tuple[RefusalLine, ...] = ()
    note: str = ""
    """What else is said of a place, as long as it holds; the last words of the text."""


def recorded(
    view: View,
    before: DecisionRecord | None,
    ruling: Ruling,
    inputs_hash: Callable[[], str],
) -> DecisionRecord:
    """The record of a ruling; that of before when the ruling is the same."""
    if before is not None and _same(before, ruling):
        return before
    return DecisionRecord(
        time=whole_second(view.now),
        epoch=view.settings.epoch,
        inputs_hash=inputs_hash(),
        chosen=ruling.chosen,
        runner_up=ruling.runner_up,
        reason=ruling.reason,
        message=ruling.text(),
        refusals=ruling.lines,
    )


def chosen_text(parts: Sequence[Part]) -> str:
    """Where a workload sits, in one line."""
    named = ", ".join(
        f"{one.node}/{one.slice.gpu} {one.slice.percent} %" for one in parts[:_MOST_NAMED]
    )
    more = len(parts) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def spot_text(inventory: Inventory, candidate: Candidate | None) -> str:
    """A place that was not taken, in one line."""
    if candidate is None:
        return ""
    named = ", ".join(
        f"{inventory.place_name(site)} {candidate.percent} %"
        for site in candidate.sites[:_MOST_NAMED]
    )
    more = len(candidate.sites) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _same(before: DecisionRecord, ruling: Ruling) -> bool:
    return (
        before.chosen == ruling.chosen
        and before.message.endswith(ALONE) == (ruling.note == ALONE)
        and before.runner_up == ruling.runner_up
        and before.reason is ruling.reason
        and {one.reason for one in before.refusals} == {one.reason for one in ruling.lines}
    )
