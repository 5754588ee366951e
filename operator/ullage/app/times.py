# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the operator's process, each with its reason; user settings are in ``settings``."""

from __future__ import annotations

from typing import Final

# The loop and the process that decides
CYCLE_BLOCKED_S: Final = 1.0
"""Pause before a cycle that may not decide yet is retried. Chosen."""
CYCLE_RETRY_FIRST_S: Final = 0.5
"""First pause after a cycle that failed. Chosen."""
CYCLE_RETRY_MOST_S: Final = 10.0
"""Longest pause after cycles that failed. Chosen."""
CHILD_START_S: Final = 60.0
"""Limit for a child to start and import, which is not part of deciding. Chosen."""
WATCHDOG_PATIENCE_S: Final = 0.8
"""Computing time for one object: a thousand times that of the largest; four such fit a decision.
Chosen."""
WATCHDOG_TICK_S: Final = 0.1
"""Interval of the watchdog, in computing time. Chosen."""
ASIDE_FIRST_S: Final = 300.0
"""First time for which a faulty object is set aside; it doubles. Chosen."""
ASIDE_MOST_S: Final = 3600.0
"""Longest time for which an object is set aside. Chosen."""
FAULT_SEARCH_REST_S: Final = 600.0
"""Time until the next search after one without a result. Chosen."""
DECISION_GAP_MOST_S: Final = 120.0
"""Longest gap between decisions in the metrics: beyond it the process was suspended. Chosen."""

# Leadership
FENCED_FIRST_S: Final = 1.0
"""First pause after a leadership that a newer epoch ended. Chosen."""
FENCED_MOST_S: Final = 20.0
"""Longest such pause; it doubles while that happens again. Chosen."""
CAUGHT_UP_S: Final = 1.0
"""Time after which a recovered stream has shown the writes of another leader. Chosen."""
CATCH_UP_MOST_S: Final = 10.0
"""Wait of the first decision for such streams. Chosen."""
MODELS_WAIT_S: Final = 3.0
"""Wait of the first decisions for the models of the previous leader. Chosen."""
EFFICIENCY_REPORT_S: Final = 600.0
"""Between two writes of the EfficiencyReports; nodes measure in windows of 15 minutes. Chosen."""
EFFICIENCY_LOOK_S: Final = 15.0
"""Between two looks for new EfficiencyReports. Chosen."""
REPORTS_S: Final = 5.0
"""Between two reports of learned models and of foreign pods. Chosen."""

# Health and back-pressure
LOOP_LAG_PERIOD_S: Final = 0.5
"""Between two measurements of the event loop's lag. Chosen."""
LOOP_LAG_MOST_S: Final = 5.0
"""Lag of the loop above which the process is unhealthy. Chosen."""
FAILING_S: Final = 60.0
"""Time with faults of our own above which a replica is unhealthy. Chosen."""
SELF_TEST_AGAIN_S: Final = 5.0
"""Time within which a failed self-test is repeated. Chosen."""
LATE_ANSWER_S: Final = 0.25
"""Average response time of a server at its limit; an idle one answers in a few milliseconds.
Chosen."""
LATE_LOOP_S: Final = 1.0
"""Lag of our own loop above which the streams show an old state. Chosen."""
STALE_ANSWER_S: Final = 10.0
"""Maximum age of the last answer for a valid average. Chosen."""
COMPLAINT_QUIET_S: Final = 10.0
"""Between two log lines about unreadable objects of one stream: a tenant may edit as often as it
likes, and the metric counts every time. Chosen."""
MEMORY_TRIM_S: Final = 60.0
"""Interval of returning free memory; a trim takes a thread meanwhile. Chosen."""

# Endpoints
SNAPSHOT_READ_S: Final = 60.0
"""Limit for a reader of a snapshot: a slow one would keep it alive. Chosen."""
SNAPSHOT_RETRY_S: Final = 10
"""``Retry-After`` while another reader receives a snapshot. Chosen."""
METRICS_PAGE_S: Final = 1.0
"""Time for which a page of metrics is cached: at ten thousand workloads it takes a while to render.
Chosen."""
WEB_STATE_S: Final = 2.0
"""Time for which a state of the web page is cached and shared by its readers. Chosen."""

# Services beside the loop
BACKGROUND_LOOK_S: Final = 1.0
"""Interval at which learner, searches, suggestions and routers check for due work. Chosen."""
BACKGROUND_BACKOFF_FIRST_S: Final = 10.0
"""First pause after the process of learner or suggestions failed at a task. Chosen."""
BACKGROUND_BACKOFF_MOST_S: Final = 600.0
"""Longest such pause; it doubles with each consecutive failure. Chosen."""
MODEL_WRITE_S: Final = 60.0
"""Minimum time between two writes of one type's model. Chosen."""
SUGGESTION_S: Final = 60.0
"""Limit of one answer, the start of the process included; it is some seconds of a core's work at
most. Chosen."""
SUGGESTION_REST_MOST_S: Final = 10.0
"""Longest pause after an answer. Chosen."""
SUGGESTION_IDLE_S: Final = 300.0
"""Time without a request for a point after which the process ends. Chosen."""
TUNING_ECHO_S: Final = 5.0
"""Time after which an unobserved write is requested again. Chosen."""
STRAGGLER_LOOK_S: Final = 10.0
"""Interval of looks at the ranks of all jobs; nodes report as often at most. Chosen."""
TRACE_LOOK_S: Final = 0.5
"""Interval at which requests of traces are looked at: people wait for them. Chosen."""
PROFILING_LOOK_S: Final = 30.0
"""Interval of looks for jobs of the policy's sample: no one waits for them. Chosen."""
COORDINATOR_LOOK_S: Final = 3.0
"""Time between two queries of a coordinator. Chosen."""
COORDINATOR_ANSWER_S: Final = 2.5
"""Limit of a query within one check; later answers count with the next one. Chosen."""
COORDINATOR_REST_MOST_S: Final = 60.0
"""Longest pause between two queries of a silent coordinator. Chosen."""
ROUTER_ASK_S: Final = 2.0
"""Between two answers of a router that gets requests. Chosen."""
ROUTER_REST_MOST_S: Final = 30.0
"""Longest pause between two queries of a silent router. Chosen."""
ROUTER_FRESH_S: Final = 40.0
"""Age above which an answer is obsolete. Chosen."""
ROUTER_SILENT_S: Final = 60.0
"""Silence of a router above which requests may wait unseen. Chosen."""
ROUTER_QUIET_S: Final = 5.0
"""Time without requests after which the next one triggers a cycle: its service may be asleep, ten
seconds after the last request at the earliest. Chosen."""

# Commands around an uninstall
FINALIZER_LOOK_S: Final = 2.0
"""Time between two checks for our finalizers. Chosen."""
RETIRE_LOOK_S: Final = 1.0
"""Time between two checks for nodes that are not retired yet. Chosen."""
