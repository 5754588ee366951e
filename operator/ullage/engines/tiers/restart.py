# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the maps that an operator continues from after a restart.

The keeper receives maps before any member and before the job's status, so it wins. It must never
let a transition begin before both name the same epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.engines.tiers.records import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """State that the next situation takes over.

    Attributes:
        standing: The maps to continue from; to be written into the status if that names others.
        settled: Both name the same epoch.
        heard: The latest epoch that anyone may have heard of.
    """

    standing: Standing | None
    settled: bool
    heard: int


def agree(status: Standing | None, keeper: Standing | None, *, keeper_lost: bool = False) -> Agreed:
    """The maps that hold.

    Args:
        status: As the job's status says.
        keeper: As the keeper says; ``None`` = it knows none.
        keeper_lost: It does not answer and is gone: the status is all there is.
    """
    heard = max((one.epoch for one in (status, keeper) if one is not None), default=0)
    if keeper is None:
        unknown = status is not None and bool(status.backups) and not keeper_lost
        return Agreed(standing=status, settled=not unknown, heard=heard)
    same = status is not None and status.epoch == keeper.epoch
    return Agreed(standing=keeper, settled=same, heard=heard)
