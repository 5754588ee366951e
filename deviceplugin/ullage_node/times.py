# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the node agent, the guard and the MPS supervisor, each with its reason."""

from __future__ import annotations

from typing import Final

# The agent, its files and the API server
FIRST_SPEC_S: Final = 2.0
"""Longest wait for the first spec before registration, so that a start finds its slice. Chosen."""
LOOK_STALLED_S: Final = 30.0
"""Age of the last reading of the containers at which the agent is unhealthy. Chosen."""
PODS_SETTLE_S: Final = 0.2
"""Time to batch changes of pods before the next comparison with kubelet. Chosen."""
FILE_RETRY_S: Final = 5.0
"""Pause after a failed write of a file or directory. Chosen."""
LAST_REPORT_S: Final = 1.0
"""Limit of the report before containers are forgotten. Chosen."""
LOCK_RETRY_S: Final = 0.5
"""Pause between two tries to be the node's only agent. Chosen."""
TOKEN_REREAD_S: Final = 60.0
"""Age at which the token of the service account is read again; kubelet rotates it. Chosen."""
WATCH_S: Final = 45
"""Life of one watch; short streams bound every stall. Chosen."""
API_BACKOFF_FIRST_S: Final = 0.5
"""First pause after a watch or a write that the API server refused. Chosen."""
WATCH_BACKOFF_MOST_S: Final = 10.0
"""Longest pause between two tries to watch. Chosen."""
SHORT_WATCH_S: Final = 1.0
"""A watch that ends sooner is followed by a pause, to avoid a hot loop. Chosen."""
PUBLISH_BACKOFF_MOST_S: Final = 5.0
"""Longest pause between two tries to write the status. Chosen."""
STATUS_SETTLE_S: Final = 0.05
"""Wait for more changes before the status is written. Chosen."""
ROWS_APART_S: Final = 10.0
"""Minimum time between two writes caused by observations or loads only. Chosen."""
STILL_AFTER_PERIODS: Final = 10
"""Readings of the containers in a row that are alike, before the agent reads less often. Chosen."""
STILL_PERIODS: Final = 5
"""Periods between two readings then: what ends without a sign is noticed as much later. Chosen."""
OBSERVE_S: Final = 5.0
"""Limit of one reading of all containers. Chosen."""
EVENT_QUIET_S: Final = 600.0
"""Minimum time between two equal Events. Chosen."""
DAY_S: Final = 86_400
"""Longest duration that a setting may have."""
REQUEST_PAUSE_S: Final = 10.0
"""Longest pause inside one request line of a socket. Chosen."""

# Devices
PROBE_S: Final = 5.0
"""Longest wait for one answer of a probe. Chosen."""
FLAP_WINDOW_S: Final = 600.0
"""Interval in which changes of health count as flapping. Chosen."""
RECOVERY_MOST_S: Final = 600.0
"""Longest fault-free time before a flapping device is used again. Chosen."""
SAME_FAULT_S: Final = 60.0
"""A fault repeated within it is the same one. Chosen."""
FAULT_KEPT_S: Final = 7 * 86_400.0
"""A fault stays in the status for a week. Chosen."""
HOOK_TIMEOUT_S: Final = 5
"""Limit of the hook that limits a container's CPU; the runtime kills it then. Chosen."""
EMULATED_MOVE_MOST_S: Final = 8.0
"""Longest standstill of a move; the guard allows :data:`FREEZE_MOST_S`."""
CUDA_LOCK_MS: Final = 10_000
"""Time for submitted CUDA work to end. Chosen."""
CUDA_MOVE_S: Final = 120.0
"""Longest checkpoint or restore of one process. Chosen."""
CUDA_CHECK_S: Final = 1.0
"""Limit of the check that the program can run. Chosen."""
CUDA_ANSWER_S: Final = 280.0
"""Limit for all processes of a container, less than the agent's own (:data:`MOVE_MOST_S`)."""
CLIENT_GONE_S: Final = 2.0
"""Time for a terminated client to leave the list. Chosen."""
CLIENT_GONE_PAUSE_S: Final = 0.2
"""Pause between two checks for a terminated client. Chosen."""
GPM_GAP_MOST_S: Final = 10.0
"""Largest gap between two samples that are compared. Chosen."""
HOST_LOOK_S: Final = 2.0
"""Longest wait for a reader in the host's namespace; NVML itself gets less. Chosen."""
MPS_REPORT_AGE_S: Final = 4.0
"""Largest age of a valid report; one is requested every second. Chosen."""
NVML_S: Final = 1.5
"""Longest wait for the library: a probe answers within 2 s, whatever the driver does. Chosen."""
THROTTLED_S: Final = 60.0
"""Time of throttling by heat or power after which it is a fault. Chosen."""
MIG_READER_AWAY_S: Final = 30.0
"""Time without the reader of MIG devices after which these are unhealthy: it restarts, or is
replaced in an upgrade. Chosen."""
UNLISTED_S: Final = 4.0
"""Time for a process that uses a device to appear among the clients: the list is read after the
processes, and a context exists before its first kernel. Chosen."""
CLIENTS_AGE_S: Final = 8.0
"""Largest age of a list of clients as proof; a healthy server is read every 5 s. Chosen."""

# Starts of containers, and kubelet
OWNER_PAUSE_S: Final = 0.15
"""Pause between two queries to kubelet for the owner of slots. Chosen."""
OWNER_S: Final = 1.0
"""Limit of all these queries together, well below kubelet's 30 s. Chosen."""
POD_READ_S: Final = 1.0
"""Limit of reading the pod that starts. Chosen."""
LEFTOVERS_S: Final = 1.0
"""Limit of reading containers that held the slots before. Chosen."""
PREPARE_S: Final = 2.0
"""Limit of a backend's preparation of a start. Chosen."""
LISTING_S: Final = 2.0
"""Limit of kubelet's list outside of starts. Chosen."""
DETACH_APART_S: Final = 0.5
"""Time between two checks for clients to detach. Chosen."""
DETACH_RESERVE_S: Final = 12.0
"""Kept free at the end of the grace period, half of it at most: one client takes 10 s at worst."""
DETACH_RETRY_S: Final = 2.0
"""Pause after a failed detach. Chosen."""
DELETION_LATE_S: Final = 60.0
"""Longest delay until a running agent sees a deletion. A clock that puts the kill further back is
wrong: the processes still exist. Chosen."""
UNVERIFIED_FIRST_S: Final = 10.0
"""Time for a new container's limits to be verified. Chosen."""
UNVERIFIED_LATER_S: Final = 30.0
"""Longest gap in the verification of a container verified before. Chosen."""
ABSENT_S: Final = 5.0
"""Time without a process after which an attached container has ended. Chosen."""
REMOVAL_PAUSE_S: Final = 0.5
"""Interval between two passes of removal, which uses less than a tenth of a core. Chosen."""
TRASH_S: Final = 20.0
"""Limit of one attempt to remove containers' files; the next attempt continues. Chosen."""
REGISTER_S: Final = 5.0
"""Limit of a registration with kubelet. Chosen."""
ALLOCATABLE_S: Final = 2.0
"""Limit of reading kubelet's allocatable slots. Chosen."""
LEAVING_PAUSE_S: Final = 0.05
"""Pause between two checks for the end of the plugin's server. Chosen."""
REGISTER_BACKOFF_FIRST_S: Final = 0.2
"""First pause after a failed registration. Chosen."""
REGISTER_BACKOFF_MOST_S: Final = 5.0
"""Longest pause between two registrations. Chosen."""

# Device time of containers
USAGE_WINDOW_S: Final = 900.0
"""Length of a window of use; a finding needs two of them, so half an hour. Chosen."""
USAGE_WINDOW_LEAST_S: Final = 10.0
"""Shortest such window that a setting may ask for: less is no evidence of anything. Chosen."""
SAMPLE_AGE_MOST_S: Final = 5.0
"""Age of a sample of a device from which its counters are not used. Chosen."""

# The guard
FREEZE_MOST_S: Final = 10.0
"""Longest freeze of a container, whatever is requested. Chosen."""
GUARD_HEARTBEAT_S: Final = 1.0
"""Interval between two heartbeats of the agent to the guard. Chosen."""
AGENT_SILENCE_S: Final = 10.0
"""Silence after which the agent counts as dead and all containers are thawed. Chosen."""
FREEZER_S: Final = 1.5
"""Limit of one request to the freezer. Chosen."""
CGROUP_FREEZE_S: Final = 0.5
"""Limit of the kernel's freezing of a cgroup. Chosen."""
CGROUP_POLL_S: Final = 0.001
"""Pause between two checks of a freezing cgroup. Chosen."""
WINDOWS_LOOK_S: Final = 0.25
"""Interval between two checks of the windows; a tenth of a brake's limit. Chosen."""
GUARD_REST_S: Final = 1.0
"""Interval between two checks of agent and freezer without objectives and freezes. Chosen."""
GUARD_STILL_S: Final = 5.0
"""Time without a step or request after which the guard rests between checks, too. Chosen."""
GUARD_RECONNECT_S: Final = 5.0
"""Pause before reconnecting to a guard that did not answer. Chosen."""
PAUSE_LATE_S: Final = 2.0
"""Time for the freezer's answer before the pause has failed. Chosen."""
CLEAN_OVERLAP_S: Final = 0.05
"""A window that began this much before the freeze still counts as clean. Chosen."""
FREEZER_TICK_S: Final = 0.25
"""Interval between two ticks of the freezer while a container is frozen. Chosen."""
WATCHDOG_LOOK_S: Final = 0.5
"""Interval between two checks of the guard by the watchdog. Chosen."""
WATCHDOG_GRACE_S: Final = 1.0
"""Delay of the watchdog after the guard in thawing overdue containers. Chosen."""
FORK_PAUSE_S: Final = 1.0
"""Interval between two attempts to start the guard while the kernel refuses a process. Chosen."""
WINDOWS_KEPT_S: Final = 300.0
"""Largest age of a relevant window. Chosen."""
STEP_WINDOW_S: Final = 1.0
"""Minimum length of a window of steps. Chosen."""
GUARD_WARM_UP_S: Final = 5.0
"""Time after its start in which a container is not judged. Chosen."""

# Lanes
GREETING_S: Final = 10.0
"""Time for a new connection to greet. Chosen."""
STALL_LEAST_S: Final = 1.0
"""Minimum age of a stalled step. Chosen."""
ACCEPT_AGAIN_S: Final = 0.1
"""Pause after a failed accept, for example when out of file descriptors. Chosen."""
TURN_PATIENCE_S: Final = 0.005
"""Time that a lane waits for the job whose turn it is; a loop over batches is faster. Chosen."""
MOVE_MOST_S: Final = 300.0
"""Longest suspend or resume: 80 GiB take some ten seconds, drained work minutes. Chosen."""
LANE_TIMES_AGE_S: Final = 1.0
"""Largest age of jobs' waiting and running times after a restart. Chosen."""
GREET_AGAIN_S: Final = 30.0
"""Time for known processes to greet again after a restart of the agent. Chosen."""
LANES_TICK_S: Final = 0.5
"""Longest time between two ticks of all lanes. Chosen."""
SUSPEND_UNSEEN_S: Final = 10.0
"""Longest wait of a suspend for a reading of its container's processes. Chosen."""

# MPS
MPS_LOOK_S: Final = 1.5
"""Limit of a report of the supervisor. Chosen."""
MPS_FRESH_LOOK_S: Final = 3.0
"""The same with a fresh query of its daemons. Chosen."""
MPS_CHANGE_S: Final = 1.8
"""Limit of a change on which the start of a container waits. Chosen."""
MPS_TERMINATE_S: Final = 16.0
""":data:`TERMINATE_S` plus a reading before and after it."""
MPS_RETIRE_S: Final = 20.0
"""Limit of ending all servers. Chosen."""
CONTROL_S: Final = 2.0
"""Longest wait for an answer of a control daemon about its state. Chosen."""
TERMINATE_S: Final = 10.0
"""Longest wait for the end of a client; the command blocks until its contexts are gone. Chosen."""
QUIT_S: Final = 3.0
"""Limit of ending a server or a control daemon. Chosen."""
SERVER_LOOK_S: Final = 5.0
"""Interval between two checks of a healthy server. Chosen."""
SERVER_UNSETTLED_LOOK_S: Final = 1.0
"""Interval between two checks of any other. Chosen."""
SERVER_YOUNG_LOOK_S: Final = 0.1
"""Interval between two checks of a newly started one: containers may wait for it. Chosen."""
DAEMON_LISTEN_S: Final = 5.0
"""Time for a new daemon to listen. Chosen."""
SERVER_START_S: Final = 15.0
"""Time for a server to initialise. Chosen."""
DAEMON_MUTE_S: Final = 8.0
"""Longest time without a valid answer of a living daemon. Chosen."""
SERVER_FAULT_S: Final = 20.0
"""Time for clients of a faulted server to exit; a clean exit of all repairs it. Chosen."""
CLIENT_QUEUE_S: Final = 10.0
"""Longest wait of a client for a server while no new client is served. Chosen."""
SERVER_HEALED_S: Final = 30.0
"""Guaranteed recovery time, the sum of the times above."""
SERVER_EVICT_S: Final = 4.0
"""Limit for all clients together, before their server restarts. Chosen."""
DAEMON_STOP_S: Final = 2.0
"""Time for a daemon to exit before it is killed. Chosen."""
DAEMON_BACKOFF_FIRST_S: Final = 0.5
"""First pause before a daemon is started again. Chosen."""
DAEMON_BACKOFF_MOST_S: Final = 8.0
"""Longest pause between two starts of a daemon. Chosen."""
DAEMON_STEADY_S: Final = 60.0
"""Run time after which a daemon counts as stable and its back-off is reset. Chosen."""
DAEMON_PROBE_PAUSE_S: Final = 0.2
"""Pause between two queries of a test daemon. Chosen."""
KILLED_S: Final = 2.0
"""Longest wait for a killed program. Chosen."""
MPS_SURVEY_S: Final = 30.0
"""Interval between two probes of the installation and of foreign daemons. Chosen."""
MPS_FRESH_S: Final = 2.5
"""Longest wait of a report for a daemon's fresh answer; a list carries its age. Chosen."""
MPS_FIRST_S: Final = 1.0
"""Longest wait of a report for the first probe of the installation. Chosen."""

# Interruption notices
GCE_WAIT_S: Final = 20
"""Longest delay of an answer requested from the metadata server. Chosen."""
NOTICE_BACKOFF_MOST_S: Final = 30.0
"""Longest pause between two polls for a notice. Chosen."""

# Telemetry
RECORD_AHEAD_NS: Final = 10**9
"""Allowed lead of a record's time: it may be written while it is read. Chosen."""
STEP_MOST_NS: Final = 86_400 * 10**9
"""Longest plausible step time: a day. Chosen."""
BUCKET_MOST_S: Final = 1e9
"""Thirty years: not a latency. With the next limit, all values from a page fit the API."""
LATENCY_SUM_MOST_S: Final = 1e12
"""Thirty years of a thousand requests at once."""
STRETCH_S: Final = 30.0
"""Length of a steady stretch that becomes an observation. Chosen."""
STRETCH_CARRIED_S: Final = 600.0
"""Longest count of steps that are too long for one stretch. Chosen."""
UNREPORTED_WARM_UP_S: Final = 30.0
"""Warm-up of a container that reports no steps, since it was first seen. Chosen."""
LOOK_GAP_S: Final = 5.0
"""Largest gap between two snapshots of a stretch. Chosen."""
LOAD_SPAN_S: Final = 15.0
"""Span over which a load is measured, if pages reach back that far. Chosen."""
LOAD_SPAN_LEAST_S: Final = 4.0
"""A shorter span holds too few requests. Chosen."""
LOAD_SPAN_MOST_S: Final = 60.0
"""Longest span, after failed reads of pages. Chosen."""
PAGE_STALE_S: Final = 15.0
"""Largest age of a relevant page. Chosen."""
SAME_ROW_S: Final = 600.0
"""Time in which an equal row of the same mixture is dropped. Chosen."""
PACE_WINDOW_NS: Final = 60 * 10**9
"""Length of the window, extended to at least ``WINDOW_STEPS`` steps. Chosen."""
PACE_SPAN_LEAST_NS: Final = 5 * 10**9
"""Shortest stretch that gives a time alone: the CPU counter is read up to one period after the step
that it is compared with. Chosen."""
OWN_AVERAGE_LEAST_NS: Final = 10**9
"""Shortest steps whose own average is used: ten periods of a CPU quota. Derived."""
RANK_SPAN_NS: Final = 30 * 10**9
"""Shortest stretch that the figures of a rank are a mean of, once it has run that long. Chosen."""
RANKS_APART_S: Final = 5.0
"""Interval between two readings of the records of ranks: 16 of a container take 0.2 ms. Chosen."""
PAGE_READ_S: Final = 1.0
"""Limit of reading one page of metrics. Chosen."""
SCRAPE_TICK_S: Final = 0.25
"""Interval between two checks for due pages. Chosen."""
SCRAPE_IDLE_S: Final = 1.0
"""Interval between two checks for targets while there are none. Chosen."""
PAGE_PERIOD_MOST_S: Final = 5.0
"""A page is read at least this often, also for longer windows. Chosen."""
SAMPLE_S: Final = 1.0
"""Interval between two samples of the devices' counters. Chosen."""
LATENCY_WINDOW_LEAST_S: Final = 2.0
"""Shorter windows hold too few requests; a pause of the guard lasts ten seconds at most. Chosen."""

# Step traces
TRACE_LOOK_S: Final = 0.5
"""Interval at which orders that are under way are looked at: people wait for them. Chosen."""
TRACE_IDLE_S: Final = 3600.0
"""The same while there are none. Chosen."""
TRACE_STEP_AGE_S: Final = 5.0
"""Age at which a reported step is renewed, until the first step to trace is named. Chosen."""
TRACE_UNHOOKED_S: Final = 5.0
"""Time in which a program that counts steps shows that it has the hook. Chosen."""
TRACE_CONTAINER_S: Final = 5.0
"""Time without a container of the pod after which its order has failed. Chosen."""
TRACE_CLEAN_S: Final = 60.0
"""Time for which the files of an order that was taken back are removed again. Chosen."""
ANALYSIS_CPU_S: Final = 30
"""CPU time of the analysis of one file; 200 MB take about 4 s. Chosen."""
ANALYSIS_S: Final = 120.0
"""Longest analysis of one file by the clock. Chosen."""

# Volumes
IO_WINDOW_S: Final = 5.0
"""Length of a window of the volumes; a container starves after three. Chosen."""
IO_SAMPLE_S: Final = 0.25
"""Interval between two samples of waiting processes, where the kernel counts no waits. Chosen."""
