# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine's own time, behind the ``Clock`` seam. The only place that reads it."""

from __future__ import annotations

import time


class SystemClock:
    """Wall clock and monotonic clock of this process."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
