# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The wait before the next attempt: it doubles with each consecutive failure, up to a limit."""

from __future__ import annotations

from typing import Final

_MOST_DOUBLINGS: Final = 30
"""A float has no power of two beyond 1023, and no limit of ours needs as many."""


def doubled_s(first_s: float, times: int, most_s: float) -> float:
    """Seconds to wait: ``first_s``, doubled this many times, at most ``most_s``."""
    return min(first_s * 2.0 ** min(times, _MOST_DOUBLINGS), most_s)
