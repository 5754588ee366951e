# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds whose objects may have something outside of themselves, and how these end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.handlers import pools, searches, services, trainings
from ullage.handlers.ends import Life
from ullage.handlers.mirror import HasLife
from ullage.ports import CAPACITY_POOL, Kind

LIVES: Final[tuple[Life, ...]] = (services.LIFE, trainings.LIFE, searches.LIFE, pools.LIFE)
KINDS: Final[Mapping[Kind, HasLife]] = {life.kind: life.lives for life in LIVES}
FOLLOWED: Final = frozenset({CAPACITY_POOL})
"""Kinds whose objects have timers, whether or not there is anything outside of them."""
