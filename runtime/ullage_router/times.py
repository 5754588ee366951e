# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the router, each with its reason."""

from __future__ import annotations

from typing import Final

ENDING_LOOK_S: Final = 0.1
"""Interval between two checks if the router is to end. Chosen."""
THREAD_SWITCH_S: Final = 0.001
"""Longest delay of the loop by a learning thread. Chosen."""
ARRIVALS_WINDOW_S: Final = 15
"""Averaging window of arrivals. Chosen."""
LEARN_S: Final = 1.0
"""Interval between two updates of the learned run times. Chosen."""
EXPIRE_S: Final = 0.02
"""Interval between two checks for expired requests while no replica is free. Chosen."""
LEAVES_EARLY_S: Final = 0.02
"""A client's deadline may precede ours, which starts on arrival of its call, by at most this time.
Not measured."""
APART_S: Final = 60.0
"""Time in which raw and JSON inputs share no batch after a replica refused a mixed one. Chosen."""
RETRY_AFTER_MOST_S: Final = 60
"""Clients of OpenAI's library retry after half a second if the delay is above 60 s (below 3.0), or
give up above 120 s (since)."""
HANG_LEAST_S: Final = 0.05
"""Minimum time of a hanging batch. Chosen."""
RESOLVE_S: Final = 5.0
"""Limit of one lookup of a name. Chosen."""
REFRESH_S: Final = 0.25
"""Interval between two updates of the predicted ends of running answers. Chosen."""
CACHE_LOOK_S: Final = 0.5
"""Interval between two reads of a replica's page of metrics. Chosen."""
CACHE_PAGE_S: Final = 2.0
"""Limit of reading a replica's page of metrics. Chosen."""
PING_S: Final = 30.0
"""Idle time after which a connection is pinged. Chosen."""
KEPT_IDLE_S: Final = 4.0
"""An idle connection is kept for less than the five seconds after which common servers close it."""
LOAD_WAIT_MOST_S: Final = 30
"""Longest wait for a change that a reader of the load may request. Chosen."""
REPLICA_CONNECT_S: Final = 1.0
"""Limit of connecting to a replica. Chosen."""
RUN_LEAST_S: Final = 1e-6
"""Time counted for a request that took no longer than ``c0``."""
METRICS_PAGE_AGE_S: Final = 1.0
"""Largest age of the cached page of metrics. Chosen."""
LINGER_S: Final = 1.0
"""Time to read the rest of a refused body. Chosen."""
