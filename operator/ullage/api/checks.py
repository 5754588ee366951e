# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a node on the wire: what its agent tried, the result, and how to fix it.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.wire_fields import NEEDED, OPTIONAL, Name, at_most, cut, known_word

MAX_CHECKS: Final = 32
_LINE: Final = 400
"""Characters of a message or a remedy."""


class CheckState(StrEnum):
    """Result of a check."""

    OK = "Ok"
    """It holds."""
    FAILED = "Failed"
    """It does not hold."""
    UNCONFIRMED = "Unconfirmed"
    """Nothing has shown it yet, or nothing can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck(Wire):
    """One check of the node, for `kubectl ullage doctor`."""

    name: Annotated[Name, at_most(63)]
    """Name of the check."""
    state: Annotated[CheckState, known_word(CheckState), NEEDED]
    """`Ok`, `Failed`, or `Unconfirmed`: nothing has shown it yet, or nothing can."""
    message: Annotated[str, cut(_LINE, "…"), OPTIONAL] = ""
    """What was found."""
    remedy: Annotated[str, cut(_LINE, "…"), OPTIONAL] = ""
    """How to fix or confirm it."""
