# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the handlers, each with its reason."""

from __future__ import annotations

from typing import Final

REVIEW_SNAPSHOT_S: Final = 5.0
"""Maximum age of a snapshot used to answer a review. Chosen."""
END_LOOK_S: Final = 0.5
"""Time between two checks for ending objects. Chosen."""
END_EVENT_S: Final = 5.0
"""Time between two checks for objects beyond the bound, which get an Event. Chosen."""
END_RETRY_S: Final = 5.0
"""Time after which a refused or lost deletion is requested again. Chosen."""
END_LEAST_S: Final = 15.0
"""For each end that a leader begins, however old the deletion is: without an operator, nothing was
counted or deleted. Enough to read a status and to request deletions three times. Chosen."""
END_FAILED_S: Final = 2.0
"""Pause after a failure of our own. Chosen."""
THREAD_ENDS_S: Final = 2.0
"""Time from the stop flag to the end of the thread; a longer one is stuck. Chosen."""
PATCH_RETRIES_S: Final = (0.5, 1, 2, 4, 8)
"""Pauses before a failed patch is resent; then its object is skipped for a while. Chosen."""
POOL_LOOK_S: Final = 5.0
"""Time between two checks of a pool. Chosen."""
POOL_LOOK_SHARED_S: Final = 1.0
"""One check covers all pools, so timers that fire within this time share it. Chosen."""
POOL_REWRITE_S: Final = 60.0
"""Time after which a write not shown by the API is repeated. Chosen."""
POOL_RETRY_S: Final = 60.0
"""Pause of a pool that could not be checked. Chosen."""
