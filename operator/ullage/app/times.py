# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the operator's process, each with its reason; what users set is in ``settings``."""

from __future__ import annotations

from typing import Final

# The loop and the process that decides
CYCLE_BLOCKED_S: Final = 1.0
"""A cycle that may not decide yet is tried again after it. Chosen."""
CYCLE_RETRY_FIRST_S: Final = 0.5
"""First pause after a cycle that failed. Chosen."""
CYCLE_RETRY_MOST_S: Final = 10.0
"""Longest pause after cycles that failed. Chosen."""
CHILD_START_S: Final = 60.0
"""A child may take so long to start and import, which is no part of deciding. Chosen."""
WATCHDOG_PATIENCE_S: Final = 0.8
"""Computing time for one object: a thousand times what the largest takes; four such fit a decision.
Chosen."""
WATCHDOG_TICK_S: Final = 0.1
"""Between two looks of the watchdog, in computing time. Chosen."""
ASIDE_FIRST_S: Final = 300.0
"""An object whose decisions fail is set aside for so long at first; it doubles. Chosen."""
ASIDE_MOST_S: Final = 3600.0
"""Longest time for which an object is set aside. Chosen."""
FAULT_SEARCH_REST_S: Final = 600.0
"""After a search without a result the next one waits so long. Chosen."""
DECISION_GAP_MOST_S: Final = 120.0
"""A longer gap between decisions counts as this in the metrics: the process was away. Chosen."""

# Leadership
FENCED_FIRST_S: Final = 1.0
"""First pause after a leadership that a newer epoch ended. Chosen."""
FENCED_MOST_S: Final = 20.0
"""Longest such pause; it doubles while that happens again. Chosen."""
CAUGHT_UP_S: Final = 1.0
"""A stream that works again for so long has shown what another leader wrote while it did not.
Chosen."""
CATCH_UP_MOST_S: Final = 10.0
"""The first decision waits so long for such streams. Chosen."""
MODELS_WAIT_S: Final = 3.0
"""The first decisions wait so long for the models of the leader before. Chosen."""
REPORTS_S: Final = 5.0
"""Between two reports of learned models and of foreign pods. Chosen."""

# Health and back-pressure
LOOP_LAG_PERIOD_S: Final = 0.5
"""Between two measurements of the event loop's lag. Chosen."""
LOOP_LAG_MOST_S: Final = 5.0
"""A loop that lags more makes the process unhealthy. Chosen."""
FAILING_S: Final = 60.0
"""Faults of our own for so long make a replica unhealthy. Chosen."""
SELF_TEST_AGAIN_S: Final = 5.0
"""A self-test that failed is made again within this time. Chosen."""
LATE_ANSWER_S: Final = 0.25
"""Average answer of a server that is at its limit; one at ease answers in a few milliseconds.
Chosen."""
LATE_LOOP_S: Final = 1.0
"""Lag of our own loop from which on the streams show an old state. Chosen."""
STALE_ANSWER_S: Final = 10.0
"""An average without a fresh answer says nothing after this long. Chosen."""
COMPLAINT_QUIET_S: Final = 10.0
"""Between two log lines about unreadable objects of one stream: a tenant may edit as often as it
likes, and the metric counts every time. Chosen."""
MEMORY_TRIM_S: Final = 60.0
"""Between two times that free memory is returned; a trim takes a thread meanwhile. Chosen."""

# Endpoints
SNAPSHOT_READ_S: Final = 60.0
"""A reader who takes longer gets no more: it would keep an old snapshot alive. Chosen."""
SNAPSHOT_RETRY_S: Final = 10
"""``Retry-After`` while another reader is given a snapshot. Chosen."""
METRICS_PAGE_S: Final = 1.0
"""Age of a page of metrics that is served again: at ten thousand workloads it takes a while to
make. Chosen."""
WEB_STATE_S: Final = 2.0
"""Age of a state of the web page that is served again: readers of one moment share it. Chosen."""

# Services beside the loop
BACKGROUND_LOOK_S: Final = 1.0
"""Between two looks of learner, searches, suggestions and routers for work that is due. Chosen."""
BACKGROUND_BACKOFF_FIRST_S: Final = 10.0
"""First pause after the process of learner or suggestions failed at a task. Chosen."""
BACKGROUND_BACKOFF_MOST_S: Final = 600.0
"""Longest such pause; it doubles with each failure in a row. Chosen."""
MODEL_WRITE_S: Final = 60.0
"""Least time between two writes of one type's model. Chosen."""
SUGGESTION_S: Final = 60.0
"""Limit of one answer, the start of the process included; it is some seconds of a core's work at
most. Chosen."""
SUGGESTION_REST_MOST_S: Final = 10.0
"""Longest rest after an answer. Chosen."""
SUGGESTION_IDLE_S: Final = 300.0
"""The process ends when no search wanted a point for so long. Chosen."""
TUNING_ECHO_S: Final = 5.0
"""A write that is not seen after so long is asked for again. Chosen."""
COORDINATOR_LOOK_S: Final = 3.0
"""Between two questions to a coordinator. Chosen."""
COORDINATOR_ANSWER_S: Final = 2.5
"""Answers that take longer count with the next look. Chosen."""
COORDINATOR_REST_MOST_S: Final = 60.0
"""Longest pause between two questions to a silent coordinator. Chosen."""
ROUTER_ASK_S: Final = 2.0
"""Between two answers of a router that gets requests. Chosen."""
ROUTER_REST_MOST_S: Final = 30.0
"""Longest pause between two questions to a silent router. Chosen."""
ROUTER_FRESH_S: Final = 40.0
"""An older answer says nothing of now. Chosen."""
ROUTER_SILENT_S: Final = 60.0
"""Requests may wait unseen in a router that has not answered for so long. Chosen."""
ROUTER_QUIET_S: Final = 5.0
"""A request after so long without any is news: it may find its service asleep, which is so after
ten seconds at the earliest. Chosen."""

# Commands around an uninstall
FINALIZER_LOOK_S: Final = 2.0
"""Between two looks for finalizers of ours. Chosen."""
RETIRE_LOOK_S: Final = 1.0
"""Between two looks for nodes that are not retired yet. Chosen."""
