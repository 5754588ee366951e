# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, written again only when the decision changes.

Its time, hash and texts are those of the decision; figures that change later are in other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import DecisionRecord, RefusalLine
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.candidates import Candidate
from ullage.scheduling.placement.predicted_figures import Part

_MOST_NAMED: Final = 3
_IDENTITY_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The decision about a workload in this cycle; texts are built when the record is written."""

    reason: Reason
    text: Callable[[], str]
    parts: Sequence[Part] = ()
    """Slices that it has or gets; empty = it waits."""
    runner_up: str = ""
    lines: tuple[RefusalLine, ...] = ()
    alone: bool = False
    """True while no other workload may join it."""

    @property
    def identity(self) -> str:
        """Digest of the decision: slices, reason, runner-up and reasons of refusals."""
        digest = sha256(f"{self.reason} {self.alone} {self.runner_up}\n".encode())
        digest.update(" ".join(sorted({line.reason for line in self.lines})).encode())
        for part in self.parts:
            digest.update(f"\n{part.node} {part.slice.gpu} {part.slice.percent}".encode())
        return digest.hexdigest()[:_IDENTITY_DIGITS]


def recorded(
    view: View,
    before: DecisionRecord | None,
    ruling: Ruling,
    inputs_hash: Callable[[], str],
) -> DecisionRecord:
    """The record of a ruling; the previous record if the ruling is the same."""
    identity = ruling.identity
    if before is not None and before.identity == identity:
        if (
            ruling.reason is not Reason.WAITING_FOR_GATE
            or (text := ruling.text()) == before.message
        ):
            return before
        return replace(before, message=text)  # it names the members that still have gates
    return DecisionRecord(
        time=whole_second(view.now),
        epoch=view.settings.epoch,
        inputs_hash=inputs_hash(),
        chosen=chosen_text(ruling.parts),
        runner_up=ruling.runner_up,
        reason=ruling.reason,
        message=ruling.text(),
        refusals=ruling.lines,
        alone=ruling.alone,
        identity=identity,
    )


def chosen_text(parts: Sequence[Part]) -> str:
    """Slices of a workload in one line."""
    named = ", ".join(
        f"{part.node}/{part.slice.gpu} {part.slice.percent} %" for part in parts[:_MOST_NAMED]
    )
    more = len(parts) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def placed_text(parts: Sequence[Part], *, alone: bool) -> str:
    """Message about the placement of a workload."""
    if not parts:
        return "nothing to place"
    until = ", alone until its latency is measured" if alone else ""
    return f"placed on {chosen_text(parts)}{until}"


def spot_text(inventory: Inventory, candidate: Candidate | None) -> str:
    """A candidate that was not chosen, in one line."""
    if candidate is None:
        return ""
    named = ", ".join(
        f"{inventory.place_name(site)} {candidate.percent} %"
        for site in candidate.sites[:_MOST_NAMED]
    )
    more = len(candidate.sites) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named
