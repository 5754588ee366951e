# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Options of a reader of traces besides the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage_simulate.speeds import SpeedTable, built_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """Options of reading a file.

    Attributes:
        table: Speeds of kinds of work.
        seed: Seed of all draws.
        select: Only lines in which these columns have these values.
        types: Types of the cluster; services, whose time does not depend on speed, run on all.
    """

    table: SpeedTable = field(default_factory=built_in)
    seed: int = 0
    select: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ()
