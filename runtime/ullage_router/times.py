# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the router, each with its reason."""

from __future__ import annotations

from typing import Final

ENDING_LOOK_S: Final = 0.1
"""Between two looks at whether the router is to end. Chosen."""
THREAD_SWITCH_S: Final = 0.001
"""A thread that learns leaves the loop waiting for so long at most. Chosen."""
ARRIVALS_WINDOW_S: Final = 15
"""Arrivals are averaged over so long. Chosen."""
LEARN_S: Final = 1.0
"""Between two times that run times are learned from what was seen. Chosen."""
EXPIRE_S: Final = 0.02
"""Between two looks for requests that are past their deadline while no replica is free. Chosen."""
LEAVES_EARLY_S: Final = 0.02
"""A client that leaves at its deadline does so before ours, which begins when its call arrives: by
at most so long. Not measured."""
APART_S: Final = 60.0
"""Raw and JSON inputs share no batch for so long after a replica refused one of both. Chosen."""
RETRY_AFTER_MOST_S: Final = 60
"""Clients of OpenAI's library come again after half a second where they are told more than 60 s
(below 3.0), or give up above 120 s (since)."""
HANG_LEAST_S: Final = 0.05
"""No batch that took less counts as hanging. Chosen."""
RESOLVE_S: Final = 5.0
"""Limit of one lookup of a name. Chosen."""
REFRESH_S: Final = 0.25
"""Between two updates of the predicted ends of running answers. Chosen."""
CACHE_LOOK_S: Final = 0.5
"""Between two looks at a replica's page of metrics. Chosen."""
CACHE_PAGE_S: Final = 2.0
"""Limit of reading a replica's page of metrics. Chosen."""
PING_S: Final = 30.0
"""A connection that is silent for so long is asked whether it is still there. Chosen."""
KEPT_IDLE_S: Final = 4.0
"""An idle connection is kept for less than the five seconds after which common servers close it."""
LOAD_WAIT_MOST_S: Final = 30
"""Longest wait for a change that a reader of the load may ask for. Chosen."""
REPLICA_CONNECT_S: Final = 1.0
"""Limit of connecting to a replica. Chosen."""
RUN_LEAST_S: Final = 1e-6
"""A request that took no longer than ``c0`` counts as so many seconds."""
METRICS_PAGE_AGE_S: Final = 1.0
"""The page of metrics is made again after so long. Chosen."""
LINGER_S: Final = 1.0
"""For the rest of a body that was refused. Chosen."""
