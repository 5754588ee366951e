# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The last failure that was counted of a gang: ``status.lastFailure``, as a record.

A lost node often makes other members fail first. When the loss is seen shortly afterwards, by this
leader or the next, this record says which counted failures to take back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.wire_fields import INT32_MAX, KEPT, NEEDED, Listed, Moment, count

MOST_NODES: Final = 256
"""Nodes that one record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """Failures that were counted and may turn out to be the doing of a lost node.

    ``time`` is when the last of them was counted, ``count`` how many of ``restarts`` they are,
    ``nodes`` where the other members were, all of them well then; sorted.
    """

    time: Moment
    count: Annotated[int, count(INT32_MAX), NEEDED]
    nodes: Annotated[tuple[str, ...], Listed(most=MOST_NODES), KEPT]
