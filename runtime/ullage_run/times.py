# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the runtime and the router, each with its reason; constants and nothing else."""

from __future__ import annotations

from typing import Final

# Lanes
LANE_RETRY_LEAST_S: Final = 0.05
"""First pause before the node is called again. Chosen."""
LANE_RETRY_MOST_S: Final = 2.0
"""Longest pause between two calls of the node. Chosen."""
LANE_RELEASE_S: Final = 5.0
"""A step that has ended tries for so long to tell the node so. Chosen."""
LANE_QUICK_S: Final = 0.005
"""A program that was back so soon for its last step does not wait for the answer to the end of the
next one: it hears it with the next grant, and saves half of what turns cost. Chosen."""
RECORD_RETRY_NS: Final = 1_000_000_000
"""The record is tried again so long after a failed attempt. Chosen."""

# Members of a job, its coordinator and state store
ORDER_S: Final = 60.0
"""For what members were told to do; one that is gone or silent is noticed long before. Chosen."""
LEAVE_S: Final = 5.0
"""For members to hear that they may end. Chosen."""
STATUS_ASK_S: Final = 5.0
"""From the connection to the end of the answer. Chosen."""
STATUS_PLACE_S: Final = 1.0
"""Until the thread of a connection that had to go has ended. Chosen."""
DOORWAY_TICK_S: Final = 0.25
"""So late at most are strangers closed whose time is up. Chosen."""
ACCEPT_PAUSE_S: Final = 0.05
"""After a failed accept: the process may be out of file descriptors for a while. Chosen."""
HANDSHAKE_S: Final = 5.0
"""From the connection to the client's proof; members need milliseconds. Chosen."""
BEAT_S: Final = 0.5
"""Between two signs of life; a coordinator gives up a member after :data:`SILENT_S`. Chosen."""
SILENT_S: Final = 4 * BEAT_S
"""A machine that vanishes says nothing; its connection would stay open for minutes. Chosen."""
MEMBER_CONNECT_S: Final = 3.0
"""For one attempt: the name may still lead to a pod that is gone, where no one refuses. Chosen."""
JOIN_S: Final = 60.0
"""A coordinator is looked for so long: its pod may start after ours. Chosen."""
JOIN_RETRY_S: Final = 0.2
"""Pause between two attempts to join. Chosen."""
NOTICE_GRACE_S: Final = 25.0
"""Left after a notice, unless the program says more: within the 30 s of Kubernetes."""
STORE_S: Final = 10.0
"""Limit of one exchange with the state store. Chosen."""
SEND_S: Final = 10.0
"""A member that takes nothing for so long is gone. Chosen."""
STORE_WAIT_S: Final = 1.0
"""An offer or a question waits here for so long before the peer has to ask again. Chosen."""
PUSH_STALLED_S: Final = 30.0
"""A peer that announced bytes and sends none for so long is dropped. Chosen."""

# Model servers
BODY_S: Final = 30.0
"""Limit of receiving the body of a request. Chosen."""
DRAIN_S: Final = 30.0
"""A server that ends waits so long for its requests. Chosen."""
UNREADY_S: Final = 1.0
"""It says so long that it is not ready before it takes no more connections. Chosen."""

# The router
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
