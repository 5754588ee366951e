# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The last failure that was counted of a gang: ``status.lastFailure``, as a record.

A lost node often makes other members fail first. When the loss is seen shortly afterwards, by this
leader or the next, this record says which counted failures to take back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.wire_fields import (
    INT32_MAX,
    KEPT,
    NEEDED,
    OPTIONAL,
    Listed,
    Moment,
    count,
    distinct,
)

MOST_NODES: Final = 256
"""Nodes that one record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """A failure that was counted; it is uncounted if the node of another member turns out lost."""

    time: Moment
    """When it was counted."""
    count: Annotated[int, count(INT32_MAX), NEEDED]
    """How many of the restarts it accounts for: failures within 90 s of each other are one."""
    nodes: Annotated[tuple[str, ...], Listed(most=MOST_NODES), KEPT, OPTIONAL, distinct(MOST_NODES)]
    """Nodes of the members that did not fail."""
