# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations for the clients of the API server, coordinators and routers, and for created pods."""

from __future__ import annotations

from typing import Final

# Reading the API server
FIRST_WATCH_S: Final = 5
"""Length of the first watch after a failure; each success doubles the next one. A server that has
just started may open a watch and never send changes. Chosen."""
SHORT_WATCH_S: Final = 0.5
"""A watch that ends sooner, without an event, is a failure: an immediate retry would spin.
Chosen."""
STREAM_UNSYNCED_S: Final = 60.0
"""A stream that has been failing for this long is out of sync with the server. Chosen."""
STREAM_FROZEN_S: Final = 165.0
"""Every request ends in less time, so a stream that neither receives nor fails for this long is
stuck: three watches of 55 s."""
KIND_ABSENT_S: Final = 60.0
"""Time between two checks for a kind that the API server does not serve. Chosen."""
LISTS_APART_S: Final = 10.0
"""Minimum time between two lists. Chosen."""
RETRY_AFTER_MOST_S: Final = 60.0
"""Longest pause accepted from ``Retry-After``. Chosen."""
STREAK_SETTLED_S: Final = 5.0
"""A failure within this time of a success continues the previous streak. Chosen."""
EXEC_REFRESH_S: Final = 60
"""Time between two calls of a kubeconfig's credential plugin for an expired token. Chosen."""

# Writing to it
APPLY_UNSEEN_S: Final = 30.0
"""Time for which an apply is trusted that the watch cannot confirm. Chosen."""
LEASE_ATTEMPT_S: Final = 3.0
"""Limit of one read of the Lease with its renewal. Chosen."""
LEASE_OWNER_S: Final = 1.0
"""Part of it for reading the owner of the Lease. Chosen."""

# Coordinators and routers
COORDINATOR_ANSWER_S: Final = 2.0
"""Limit of a coordinator's answer. Chosen."""
ROUTER_WAIT_S: Final = 10
"""Limit of a router's long poll without an arrival. Chosen."""
ROUTER_ANSWER_S: Final = ROUTER_WAIT_S + 3.0
"""Limit of a router's answer."""

# Pods
DEFAULT_GRACE_S: Final = 30
"""Default termination grace period of Kubernetes."""
TORCHRUN_LAST_CALL_S: Final = 10
"""torchrun's wait for more members once the minimum has joined: its own 30 s are lost at every
change, and a later member joins by another change. Chosen."""
COORDINATOR_AWAY_S: Final = 30
"""Time after which a coordinator on a silent node counts as lost; its members cannot continue
without it anyway. Chosen."""
ROUTER_START_S: Final = 120
"""Time until a router that never answered is restarted, as for the operator's other pods.
Chosen."""
ROUTER_LINGER_S: Final = 5
"""Between SIGTERM and the last new connection: the time to withdraw endpoints. Chosen."""
ROUTER_DRAIN_S: Final = 30
"""For requests in a replica when the router ends; held ones may wait before that. Chosen."""
ROUTER_SPARE_S: Final = 10
"""Between the end of the drain and kubelet's SIGKILL. Chosen."""
ROUTER_DEADLINE_MOST_MS: Final = 60_000
"""Latest deadline of a request, unless the objective is later. Chosen."""
ROUTER_GENERATION_S: Final = 600
"""Limit of a generative server's complete answer, and of each part of a stream. Chosen."""
