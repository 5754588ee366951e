# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the handlers, each with its reason."""

from __future__ import annotations

from typing import Final

REVIEW_SNAPSHOT_S: Final = 5.0
"""Oldest snapshot that a review is answered from. Chosen."""
END_LOOK_S: Final = 0.5
"""Between two looks for objects that end. Chosen."""
END_EVENT_S: Final = 5.0
"""Between two looks for objects beyond the bound, which get an Event. Chosen."""
END_RETRY_S: Final = 5.0
"""A deletion that was refused or lost is requested again after it. Chosen."""
END_LEAST_S: Final = 15.0
"""For each end that a leader begins, however old the deletion is: while no operator ran, nothing
was counted or asked to go. Enough to read a status and to ask for deletions three times. Chosen."""
END_FAILED_S: Final = 2.0
"""Pause after a failure of our own. Chosen."""
THREAD_ENDS_S: Final = 2.0
"""From the stop flag to the end of the thread; one that takes longer is stuck. Chosen."""
PATCH_RETRIES_S: Final = (0.5, 1, 2, 4, 8)
"""Pauses before a failed patch is sent again; then its object is left alone for a while. Chosen."""
POOL_LOOK_S: Final = 5.0
"""Between two looks at a pool. Chosen."""
POOL_LOOK_SHARED_S: Final = 1.0
"""One look covers all pools, so timers that fire within this time share it. Chosen."""
POOL_REWRITE_S: Final = 60.0
"""A write that the API does not show is repeated after it. Chosen."""
POOL_RETRY_S: Final = 60.0
"""Pause of a pool that could not be looked at. Chosen."""
