# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of what every process has: listeners, tasks, access; each with its reason."""

from __future__ import annotations

from typing import Final

# Connections
FIRST_BYTE_S: Final = 5.0
"""A connection that sends nothing for so long is closed. Chosen."""
TLS_HANDSHAKE_S: Final = 5.0
"""Limit of a handshake. Chosen."""
ANSWER_SEND_S: Final = 30.0
"""A reader that takes longer for an answer is cut off. Chosen."""
CONNECTION_QUIET_S: Final = 1.0
"""A connection that is quiet for so long makes room for others where there is none. Chosen."""
ROOM_LOOK_S: Final = 0.25
"""Between two looks for room while callers wait for it. Chosen."""
KEEPALIVE_S: Final = 60.0
"""An idle connection is kept for so long. Chosen."""
ACCEPT_RETRY_S: Final = 0.1
"""Pause after an accept that failed, as when file descriptors run out. Chosen."""
CERTIFICATE_LOOK_S: Final = 10.0
"""Between two looks at the certificate's files; kubelet takes a minute to bring a new Secret.
Chosen."""

# Tasks
TASK_RETRY_FIRST_S: Final = 0.5
"""First pause before a failed task begins again; the pauses double. Chosen."""
TASK_RETRY_MOST_S: Final = 20.0
"""Longest pause before a failed task begins again. Chosen."""
TASK_UNHEALTHY_S: Final = 60.0
"""Failures over so long make the process unhealthy; as long without one, healthy. Chosen."""

# Access by token
ACCESS_ALLOWED_S: Final = 60.0
"""A right that was taken away may still be used for so long. Chosen."""
ACCESS_DENIED_S: Final = 10.0
"""A refusal is repeated without a review for so long. Chosen."""
ACCESS_REVIEW_S: Final = 5.0
"""Limit of both reviews, the wait for a turn included. Chosen."""
