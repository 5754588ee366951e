# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the runtime, each with its reason."""

from __future__ import annotations

from typing import Final

# Lanes
LANE_RETRY_LEAST_S: Final = 0.05
"""First pause before reconnecting to the node. Chosen."""
LANE_RETRY_MOST_S: Final = 2.0
"""Longest pause between two connection attempts. Chosen."""
LANE_RELEASE_S: Final = 5.0
"""Longest attempt to report the end of a step to the node. Chosen."""
LANE_QUICK_S: Final = 0.005
"""A program that returned this quickly for its last step does not wait for the answer to the end of
the next one: it receives it with the next grant, which halves the cost of turns. Chosen."""
RECORD_RETRY_NS: Final = 1_000_000_000
"""Pause after a failed attempt to open the record. Chosen."""

# Ranks
TIMED_APART_NS: Final = 40_000_000
"""Interval between two timed steps; longer steps are all timed. Chosen: the cost is below 0.1 %."""

THROTTLED_APART_NS: Final = 1_000_000_000
"""Interval of reading how long the container was stopped at its CPU limit. Chosen."""
REPORT_APART_NS: Final = 500_000_000
"""Interval of reports of a rank that may divide batches; one costs some milliseconds. Chosen."""
REPORT_APART_OF_RANK_NS: Final = 5_000_000
"""Part of it for each rank of the job: rank 0 serves and reads the reports of all. Chosen."""

# Traces
TRACE_AT_EXIT_S: Final = 2.0
"""Longest wait of an ending program for its trace, well within a grace period. Chosen."""

# Members of a job
BEAT_S: Final = 0.5
"""Heartbeat interval; a coordinator gives up a member after :data:`SILENT_S`. Chosen."""
SILENT_S: Final = 4 * BEAT_S
"""Silence after which a member is lost, as its connection may stay open for minutes. Chosen."""
MEMBER_CONNECT_S: Final = 3.0
"""Limit of one attempt: the name may still resolve to a deleted pod without a reset. Chosen."""
JOIN_S: Final = 60.0
"""Longest wait for a coordinator: its pod may start after ours. Chosen."""
JOIN_RETRY_S: Final = 0.2
"""Pause between two attempts to join. Chosen."""
NOTICE_GRACE_S: Final = 25.0
"""Default grace after a notice, within the 30 s of Kubernetes."""
STORE_S: Final = 10.0
"""Limit of one exchange with the state store. Chosen."""

# Model servers
BODY_S: Final = 30.0
"""Limit of receiving the body of a request. Chosen."""
DRAIN_S: Final = 30.0
"""Longest wait of a stopping server for its requests. Chosen."""
UNREADY_S: Final = 1.0
"""Time of reporting not ready before it stops accepting connections. Chosen."""

# Data loaders
LOADER_EPOCH_LEAST_NS: Final = 500_000_000
"""Shortest epoch that says something about the workers of a loader. Chosen."""
LOADER_TIMEOUT_LEAST_S: Final = 60.0
"""Shortest wait for the first batch of workers that the program did not ask for. Chosen."""
