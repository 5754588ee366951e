# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Shortens an exception's text for a condition, a log line or a metrics page."""

from __future__ import annotations

import re
from typing import Final

MOST_CHARACTERS: Final = 300
"""Maximum length: texts of exceptions may quote tenants' data, at any length."""
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")


def fault_text(error: BaseException) -> str:
    """Type and text of an exception, in one line of at most ``MOST_CHARACTERS``."""
    words = _ADDRESS.sub("0x…", shortened(str(error)))  # equal faults have equal texts
    return shortened(f"{type(error).__name__}: {words}".rstrip(": "))


def shortened(text: str) -> str:
    """A text in one line of at most ``MOST_CHARACTERS``."""
    words = " ".join(text[: 2 * MOST_CHARACTERS].split())
    return words if len(words) <= MOST_CHARACTERS else words[: MOST_CHARACTERS - 1] + "…"
