# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations common to all processes: listeners, tasks, access; each with its reason."""

from __future__ import annotations

from typing import Final

# Connections
FIRST_BYTE_S: Final = 5.0
"""Time without data after which a connection is closed. Chosen."""
TLS_HANDSHAKE_S: Final = 5.0
"""Limit of a handshake. Chosen."""
ANSWER_SEND_S: Final = 30.0
"""Limit for reading an answer. Chosen."""
CONNECTION_QUIET_S: Final = 1.0
"""Idle time after which a connection may be closed for others when slots are short. Chosen."""
ROOM_LOOK_S: Final = 0.25
"""Time between two checks for a free slot while clients wait. Chosen."""
KEEPALIVE_S: Final = 60.0
"""Keep-alive of an idle connection. Chosen."""
ACCEPT_RETRY_S: Final = 0.1
"""Pause after a failed accept, as when file descriptors run out. Chosen."""
CERTIFICATE_LOOK_S: Final = 10.0
"""Time between two checks of the certificate's files; kubelet takes a minute to update a Secret.
Chosen."""

# Tasks
TASK_RETRY_FIRST_S: Final = 0.5
"""First pause before a failed task restarts; the pauses double. Chosen."""
TASK_RETRY_MOST_S: Final = 20.0
"""Longest pause before a failed task restarts. Chosen."""
TASK_UNHEALTHY_S: Final = 60.0
"""Failures for this long make the process unhealthy; as long without one, healthy. Chosen."""

# Access by token
ACCESS_ALLOWED_S: Final = 60.0
"""Time for which an allowed review is cached: a revoked right works as long. Chosen."""
ACCESS_DENIED_S: Final = 10.0
"""Time for which a refusal is cached. Chosen."""
ACCESS_REVIEW_S: Final = 5.0
"""Limit of both reviews, including the wait for a turn. Chosen."""
