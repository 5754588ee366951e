# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What each loss cost, from the members' own notes; pure, so that a recording is judged again.

Steps are the members' own count. A step counts as lost when it is done again after a loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.spot_trace import Kind

WORDS: Final = ("begins", "resumed", "first", "told", "ends")
"""What members write down."""
SILENT_S: Final = 3.0
"""A member whose last step is older than this at a loss had stopped before."""
_HEART: Final = re.compile(r"heart-.+-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that a member wrote down; ``value`` is a step, where it is one."""

    what: str
    node: str
    world: int
    at_s: float
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heart:
    """The last step of one life of a member, and when it began."""

    began_s: float
    step: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss as it was played; members by uid of the pod with their nodes, just before it."""

    kind: Kind
    node: str
    at_s: float
    members: Mapping[str, str]
    overdue: int = 0
    """Pods that were still there when the machine of a notice went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a loss cost; ``None`` where nothing of it happened."""

    kind: Kind
    node: str
    hit: bool
    """A member was there."""
    reaction_s: float | None
    """From the notice to a member's learning that it has to stop."""
    recovery_s: float | None
    """From the loss to the first step of a new start."""
    lost_steps: int
    others: int
    others_restarted: int
    world: int | None
    """Members of the new start."""
    overdue: int


def read_notes(folder: Path) -> tuple[list[Note], list[Heart]]:
    """What members wrote; a line cut short by a kill is passed over."""
    notes: list[Note] = []
    path = folder / "notes"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            continue
        notes.extend(
            Note(
                what=what,
                node=said["node"],
                world=int(said["world"]),
                at_s=said["at"],
                value=int(said[what]),
            )
            for what in WORDS
            if what in said
        )
    hearts = []
    for file in sorted(folder.glob("heart-*")):
        named, words = _HEART.fullmatch(file.name), file.read_text(encoding="ascii").split()
        if named is not None and len(words) >= 2:
            began_s = int(named.group(1)) / 1e9
            hearts.append(Heart(began_s=began_s, step=int(words[0]), at_s=float(words[1])))
    return sorted(notes, key=lambda one: one.at_s), hearts


def judge(
    loss: Loss,
    after: Iterable[str],
    until_s: float,
    notes: Sequence[Note],
    hearts: Sequence[Heart],
) -> Outcome:
    """What one loss cost.

    Args:
        loss: It.
        after: Uids of the members just before the next loss, or at the end.
        until_s: When that was.
        notes: Of all members, by time.
        hearts: Of all members.
    """
    later = [one for one in notes if loss.at_s <= one.at_s < until_s]
    # the members of a step stop together: the first that hears of it tells the others
    told = next((one for one in later if one.what == "told"), None)
    first = next((one for one in later if one.what == "first"), None)
    others = [uid for uid, node in loss.members.items() if node != loss.node]
    left = set(after)
    hit = loss.node in loss.members.values()
    return Outcome(
        kind=loss.kind,
        node=loss.node,
        hit=hit,
        reaction_s=told.at_s - loss.at_s if told is not None and _is_notice(loss) else None,
        recovery_s=first.at_s - loss.at_s if first is not None else None,
        lost_steps=_lost(loss, first, hearts) if first is not None else 0,
        others=len(others),
        others_restarted=sum(uid not in left for uid in others),
        world=first.world if first is not None else None,
        overdue=loss.overdue,
    )


def _is_notice(loss: Loss) -> bool:
    return loss.kind is Kind.NOTICE


def _lost(loss: Loss, first: Note, hearts: Sequence[Heart]) -> int:
    """Steps that the start before had done and the next one does again."""
    reached = [
        one.step
        for one in hearts
        if one.began_s < loss.at_s and loss.at_s - SILENT_S <= one.at_s < first.at_s
    ]
    return max(0, max(reached, default=0) - (first.value - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the last lines of a run say."""

    loss: float
    accuracy: float


def ending(log: str) -> Ending | None:
    """Final loss and accuracy, from the example's own output; ``None`` = it did not finish."""
    losses = re.findall(r"^step (\d+)/(\d+) loss ([0-9.]+)", log, re.MULTILINE)
    accuracy = re.search(r"^test accuracy ([0-9.]+)", log, re.MULTILINE)
    if not losses or accuracy is None or losses[-1][0] != losses[-1][1]:
        return None
    return Ending(loss=float(losses[-1][2]), accuracy=float(accuracy.group(1)))
