# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the clients of the API server, coordinators and routers, and of the pods made."""

from __future__ import annotations

from typing import Final

# Reading the API server
FIRST_WATCH_S: Final = 5
"""Length of the first watch after a failure; each that ends well is followed by one of twice the
time. A server that has just started may open a watch and never send what changes. Chosen."""
SHORT_WATCH_S: Final = 0.5
"""A watch that ends sooner, without an event, is a failure: another at once would spin. Chosen."""
STREAM_UNSYNCED_S: Final = 60.0
"""A stream that has been failing for so long is no longer in step with the server. Chosen."""
STREAM_FROZEN_S: Final = 165.0
"""Every request ends in less time, so a stream that neither receives nor fails for so long is
stuck: three watches of 55 s."""
KIND_ABSENT_S: Final = 60.0
"""Between two looks for a kind that the API server does not serve. Chosen."""
LISTS_APART_S: Final = 10.0
"""Two lists that are needed within this time are one too many. Chosen."""
RETRY_AFTER_MOST_S: Final = 60.0
"""Longest pause taken from ``Retry-After``. Chosen."""
STREAK_SETTLED_S: Final = 5.0
"""A failure within this time of a success continues the streak before it. Chosen."""
EXEC_REFRESH_S: Final = 60
"""Between two questions to a kubeconfig's credential plugin whether its token expired. Chosen."""

# Writing to it
APPLY_UNSEEN_S: Final = 30.0
"""An apply whose result the watch cannot confirm is trusted for so long. Chosen."""
LEASE_ATTEMPT_S: Final = 3.0
"""Longest time that one look at the Lease and its renewal take together. Chosen."""
LEASE_OWNER_S: Final = 1.0
"""Of it, to read the owner of the Lease. Chosen."""

# Coordinators and routers
COORDINATOR_ANSWER_S: Final = 2.0
"""Limit of a coordinator's answer. Chosen."""
ROUTER_WAIT_S: Final = 10
"""A router answers within so long, though nothing arrives. Chosen."""
ROUTER_ANSWER_S: Final = ROUTER_WAIT_S + 3.0
"""Limit of a router's answer."""

# Pods
DEFAULT_GRACE_S: Final = 30
"""Termination grace that Kubernetes gives where a pod states none."""
TORCHRUN_LAST_CALL_S: Final = 10
"""torchrun's wait for more members once the fewest have met, below the most: its own 30 s are lost
at every change, and a later member joins by a change of its own. Chosen."""
COORDINATOR_AWAY_S: Final = 30
"""A coordinator on a node that does not answer counts as lost after it; its members cannot go on
without it anyway. Chosen."""
ROUTER_START_S: Final = 120
"""Until a router that never answered is started again, as the operator's other pods. Chosen."""
ROUTER_LINGER_S: Final = 5
"""Between SIGTERM and the last new connection: endpoints take as long to be withdrawn. Chosen."""
ROUTER_DRAIN_S: Final = 30
"""For requests with a replica when the router ends; held ones may wait before that. Chosen."""
ROUTER_SPARE_S: Final = 10
"""Between the end of the drain and kubelet's SIGKILL. Chosen."""
ROUTER_DEADLINE_MOST_MS: Final = 60_000
"""Latest deadline that a request may name, unless the objective is later. Chosen."""
ROUTER_GENERATION_S: Final = 600
"""Limit of a generative server's answer in one piece, and of each part of another. Chosen."""
