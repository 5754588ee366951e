# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the runtime, each with its reason."""

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

# Members of a job
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

# Model servers
BODY_S: Final = 30.0
"""Limit of receiving the body of a request. Chosen."""
DRAIN_S: Final = 30.0
"""A server that ends waits so long for its requests. Chosen."""
UNREADY_S: Final = 1.0
"""It says so long that it is not ready before it takes no more connections. Chosen."""
