# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the node agent, the guard and the MPS supervisor, each with its reason."""

from __future__ import annotations

from typing import Final

# The agent, its files and the API server
FIRST_SPEC_S: Final = 2.0
"""Registration waits for the first spec, so that the first start finds its slice. Chosen."""
LOOK_STALLED_S: Final = 30.0
"""Age of the last look at the containers from which on the agent is unhealthy. Chosen."""
PODS_SETTLE_S: Final = 0.2
"""Changes of pods gather so long before the next comparison with kubelet. Chosen."""
FILE_RETRY_S: Final = 5.0
"""Pause after a file or folder that could not be written. Chosen."""
LAST_REPORT_S: Final = 1.0
"""Limit of the report before containers are forgotten; it is worth no longer wait. Chosen."""
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
"""A watch that ends sooner is followed by a pause: another one would be a hot loop. Chosen."""
PUBLISH_BACKOFF_MOST_S: Final = 5.0
"""Longest pause between two tries to write the status. Chosen."""
STATUS_SETTLE_S: Final = 0.05
"""Wait for more changes before the status is written. Chosen."""
ROWS_APART_S: Final = 10.0
"""Least time between two writes for the sake of observations or loads. Chosen."""
OBSERVE_S: Final = 5.0
"""Limit of one reading of all containers. Chosen."""
EVENT_QUIET_S: Final = 600.0
"""An Event that was sent is not sent again for so long. Chosen."""
DAY_S: Final = 86_400
"""Longest duration that a setting may have."""
REQUEST_PAUSE_S: Final = 10.0
"""Longest pause inside one request line of a socket. Chosen."""

# Devices
PROBE_S: Final = 5.0
"""Longest wait for one answer of a probe. Chosen."""
FLAP_WINDOW_S: Final = 600.0
"""Changes of health within it count as flapping. Chosen."""
RECOVERY_MOST_S: Final = 600.0
"""Longest time that a device which flapped must be well before it is used again. Chosen."""
SAME_FAULT_S: Final = 60.0
"""A fault that comes again within it is the same one. Chosen."""
FAULT_KEPT_S: Final = 7 * 86_400.0
"""A fault stays in the status for a week. Chosen."""
HOOK_TIMEOUT_S: Final = 5
"""Limit of the hook that limits a container's CPU; the runtime kills it then. Chosen."""
EMULATED_MOVE_MOST_S: Final = 8.0
"""Longest standstill of a move; the guard allows :data:`FREEZE_MOST_S`."""
CUDA_LOCK_MS: Final = 10_000
"""CUDA work that was submitted may take so long to end. Chosen."""
CUDA_MOVE_S: Final = 120.0
"""Longest checkpoint or restore of one process. Chosen."""
CUDA_CHECK_S: Final = 1.0
"""Limit of the try that the program runs at all. Chosen."""
CUDA_ANSWER_S: Final = 280.0
"""For all processes of a container, less than the agent waits in all (:data:`MOVE_MOST_S`)."""
CLIENT_GONE_S: Final = 2.0
"""A terminated client may still stand in the list for so long. Chosen."""
CLIENT_GONE_PAUSE_S: Final = 0.2
"""Pause between two looks for a terminated client. Chosen."""
GPM_GAP_MOST_S: Final = 10.0
"""Samples further apart say nothing of now. Chosen."""
HOST_LOOK_S: Final = 2.0
"""Longest wait for a reader in the host's namespace; NVML itself gets less. Chosen."""
MPS_REPORT_AGE_S: Final = 4.0
"""Oldest report that is believed; one is asked for every second. Chosen."""
NVML_S: Final = 1.5
"""Longest wait for the library: a probe answers within 2 s, whatever the driver does. Chosen."""
THROTTLED_S: Final = 60.0
"""Heat or power may hold a device's clocks down for so long before it is a fault. Chosen."""
MIG_READER_AWAY_S: Final = 30.0
"""The reader of MIG devices may be away for so long before these count as not well: it is started
again, or replaced in an upgrade. Chosen."""
UNLISTED_S: Final = 4.0
"""A process may use a device for so long before it must stand among the clients: the list is read
after the processes, and a context is there before its first kernel. Chosen."""
CLIENTS_AGE_S: Final = 8.0
"""Oldest list of clients that proves anything; a healthy server is asked every 5 s. Chosen."""

# Starts of containers, and kubelet
OWNER_PAUSE_S: Final = 0.15
"""Pause between two questions to kubelet for the owner of slots. Chosen."""
OWNER_S: Final = 1.0
"""Limit of all these questions together; kubelet's 30 s are never used up. Chosen."""
POD_READ_S: Final = 1.0
"""Limit of reading the pod that starts. Chosen."""
LEFTOVERS_S: Final = 1.0
"""Limit of a look at containers that held the slots before. Chosen."""
PREPARE_S: Final = 2.0
"""Limit of a backend's preparation of a start. Chosen."""
LISTING_S: Final = 2.0
"""Limit of kubelet's list outside of starts. Chosen."""
DETACH_APART_S: Final = 0.5
"""Time between two looks for clients to end. Chosen."""
DETACH_RESERVE_S: Final = 12.0
"""Kept free at the end of the grace period, half of it at most: one client takes 10 s at worst."""
DETACH_RETRY_S: Final = 2.0
"""Pause after a detach that failed. Chosen."""
DELETION_LATE_S: Final = 60.0
"""So late at most is a deletion seen while the agent is there. A clock that says that the kill is
longer ago is wrong: the processes are still there. Chosen."""
UNVERIFIED_FIRST_S: Final = 10.0
"""A new container may run for so long before its limits are verified. Chosen."""
UNVERIFIED_LATER_S: Final = 30.0
"""Verification may be away for so long from one that was verified before. Chosen."""
ABSENT_S: Final = 5.0
"""An attached container without a process for so long counts as ended. Chosen."""
REMOVAL_PAUSE_S: Final = 0.5
"""Between two passes while something is left: removing stays below a tenth of a core. Chosen."""
TRASH_S: Final = 20.0
"""Limit of one attempt to remove what containers left; the next attempt continues. Chosen."""
REGISTER_S: Final = 5.0
"""Limit of a registration with kubelet. Chosen."""
ALLOCATABLE_S: Final = 2.0
"""Limit of asking kubelet which slots it believes in. Chosen."""
LEAVING_PAUSE_S: Final = 0.05
"""Pause between two looks for the end of the plugin's server. Chosen."""
REGISTER_BACKOFF_FIRST_S: Final = 0.2
"""First pause after a registration that failed. Chosen."""
REGISTER_BACKOFF_MOST_S: Final = 5.0
"""Longest pause between two registrations. Chosen."""

# The guard
FREEZE_MOST_S: Final = 10.0
"""No container stands still for longer, whatever anyone asks for. Chosen."""
GUARD_HEARTBEAT_S: Final = 1.0
"""Between two words of the agent to the guard. Chosen."""
AGENT_SILENCE_S: Final = 10.0
"""An agent that says nothing for so long is taken for dead: everyone runs again. Chosen."""
FREEZER_S: Final = 1.5
"""Limit of one request to the freezer. Chosen."""
CGROUP_FREEZE_S: Final = 0.5
"""Limit of the kernel's freezing of a cgroup. Chosen."""
CGROUP_POLL_S: Final = 0.001
"""Pause between two looks at a cgroup that freezes. Chosen."""
WINDOWS_LOOK_S: Final = 0.25
"""Between two looks at the windows; a tenth of what a brake may take. Chosen."""
GUARD_REST_S: Final = 1.0
"""Between two looks of agent and freezer while no one has an objective or stands still. Chosen."""
GUARD_RECONNECT_S: Final = 5.0
"""Pause before the guard is called again that did not answer. Chosen."""
PAUSE_LATE_S: Final = 2.0
"""The freezer may owe an answer for so long before the pause has failed. Chosen."""
CLEAN_OVERLAP_S: Final = 0.05
"""A window that began this much before the containers stood still is clean all the same. Chosen."""
FREEZER_TICK_S: Final = 0.25
"""Between two ticks of the freezer while someone stands still. Chosen."""
WATCHDOG_LOOK_S: Final = 0.5
"""Between two looks of the watchdog at the guard. Chosen."""
WATCHDOG_GRACE_S: Final = 1.0
"""The watchdog releases what is overdue so much later than the guard. Chosen."""
FORK_PAUSE_S: Final = 1.0
"""Between two tries to start the guard while the kernel refuses a process. Chosen."""
WINDOWS_KEPT_S: Final = 300.0
"""Windows further back tell nothing of now. Chosen."""
STEP_WINDOW_S: Final = 1.0
"""Least length of a window of steps. Chosen."""
GUARD_WARM_UP_S: Final = 5.0
"""A container that started is not judged for so long. Chosen."""

# Lanes
GREETING_S: Final = 10.0
"""A connection may be silent for so long before it greets. Chosen."""
STALL_LEAST_S: Final = 1.0
"""No step is called stalled before. Chosen."""
ACCEPT_AGAIN_S: Final = 0.1
"""Pause after an accept that failed, as when file descriptors run out. Chosen."""
TURN_PATIENCE_S: Final = 0.005
"""A lane waits so long for the job whose turn it is; a loop over batches is back sooner. Chosen."""
MOVE_MOST_S: Final = 300.0
"""Longest suspend or resume: 80 GiB take some ten seconds, drained work minutes. Chosen."""
LANE_TIMES_AGE_S: Final = 1.0
"""Oldest times that jobs waited and ran, after a restart. Chosen."""
GREET_AGAIN_S: Final = 30.0
"""After a restart of the agent, known processes may take so long to greet again. Chosen."""
LANES_TICK_S: Final = 0.5
"""Longest time between two ticks of all lanes. Chosen."""
SUSPEND_UNSEEN_S: Final = 10.0
"""A suspend waits so long for a look at the processes of its container. Chosen."""

# MPS
MPS_LOOK_S: Final = 1.5
"""Limit of a report of the supervisor. Chosen."""
MPS_FRESH_LOOK_S: Final = 3.0
"""The same where it asks its daemons first. Chosen."""
MPS_CHANGE_S: Final = 1.8
"""Limit of a change that the start of a container waits for. Chosen."""
MPS_TERMINATE_S: Final = 16.0
"""A little more than :data:`TERMINATE_S`, with a look before and after it."""
MPS_RETIRE_S: Final = 20.0
"""Limit of ending all servers. Chosen."""
CONTROL_S: Final = 2.0
"""Longest wait for an answer of a control daemon about its state. Chosen."""
TERMINATE_S: Final = 10.0
"""Longest wait for the end of a client; the command blocks until its contexts go. Chosen."""
QUIT_S: Final = 3.0
"""Limit of ending a server or a control daemon. Chosen."""
SERVER_LOOK_S: Final = 5.0
"""Between two looks at a healthy server. Chosen."""
SERVER_UNSETTLED_LOOK_S: Final = 1.0
"""Between two looks at any other. Chosen."""
SERVER_YOUNG_LOOK_S: Final = 0.1
"""Between two looks at one that was started just now: containers may wait for it. Chosen."""
DAEMON_LISTEN_S: Final = 5.0
"""A new daemon may need so long until it listens. Chosen."""
SERVER_START_S: Final = 15.0
"""A server may initialise for so long. Chosen."""
DAEMON_MUTE_S: Final = 8.0
"""A living daemon may give no good answer for so long. Chosen."""
SERVER_FAULT_S: Final = 20.0
"""Clients of a faulted server may stay so long; a clean exit of all heals it. Chosen."""
CLIENT_QUEUE_S: Final = 10.0
"""A client may wait so long for a server while none of its kind is served. Chosen."""
SERVER_HEALED_S: Final = 30.0
"""The promise that the times above add up to."""
SERVER_EVICT_S: Final = 4.0
"""Limit for all clients together, before their server is started again. Chosen."""
DAEMON_STOP_S: Final = 2.0
"""A daemon that is told to end is killed after so long. Chosen."""
DAEMON_BACKOFF_FIRST_S: Final = 0.5
"""First pause before a daemon is started again. Chosen."""
DAEMON_BACKOFF_MOST_S: Final = 8.0
"""Longest pause between two starts of a daemon. Chosen."""
DAEMON_STEADY_S: Final = 60.0
"""A daemon that ran so long counts as a success; the back-off begins again. Chosen."""
DAEMON_PROBE_PAUSE_S: Final = 0.2
"""Pause between two questions to a daemon that is only tried. Chosen."""
KILLED_S: Final = 2.0
"""A killed program is waited for so long. Chosen."""
MPS_SURVEY_S: Final = 30.0
"""Between two looks at what is installed and who else runs a daemon. Chosen."""
MPS_FRESH_S: Final = 2.5
"""A report waits so long for a daemon's fresh answer; an old list says that it is old. Chosen."""
MPS_FIRST_S: Final = 1.0
"""A report waits so long for the first look at what is installed. Chosen."""

# Interruption notices
GCE_WAIT_S: Final = 20
"""The metadata server may hold an answer back for so long. Chosen."""
NOTICE_BACKOFF_MOST_S: Final = 30.0
"""Longest pause between two questions for a notice. Chosen."""

# Telemetry
RECORD_AHEAD_NS: Final = 10**9
"""A record may be written while it is read. Chosen."""
STEP_MOST_NS: Final = 86_400 * 10**9
"""Longest step time that is believed: a day. Chosen."""
BUCKET_MOST_S: Final = 1e9
"""Thirty years: no latency. With the next limit, whatever is made of a page fits the API."""
LATENCY_SUM_MOST_S: Final = 1e12
"""Thirty years of a thousand requests at once."""
STRETCH_S: Final = 30.0
"""Length of a steady stretch that becomes an observation. Chosen."""
STRETCH_CARRIED_S: Final = 600.0
"""Steps that are too long for one stretch are counted for so long. Chosen."""
UNREPORTED_WARM_UP_S: Final = 30.0
"""Warm-up of a container that reports no steps, since it was first seen. Chosen."""
LOOK_GAP_S: Final = 5.0
"""Looks further apart miss what happened between. Chosen."""
LOAD_SPAN_S: Final = 15.0
"""A load is measured over so long, where pages reach back as far. Chosen."""
LOAD_SPAN_LEAST_S: Final = 4.0
"""A shorter span holds too few requests. Chosen."""
LOAD_SPAN_MOST_S: Final = 60.0
"""A longer span, after pages that could not be read, mixes too much. Chosen."""
PAGE_STALE_S: Final = 15.0
"""An older page says nothing of now. Chosen."""
SAME_ROW_S: Final = 600.0
"""A row keeps an equal one of its mixture away for so long. Chosen."""
PACE_WINDOW_NS: Final = 60 * 10**9
"""So far back is looked, at least as many steps as ``WINDOW_STEPS``. Chosen."""
PACE_SPAN_LEAST_NS: Final = 5 * 10**9
"""A shorter stretch says nothing of the time alone: the CPU counter is read up to one reading
period after the step that it is set against. Chosen."""
PAGE_READ_S: Final = 1.0
"""Limit of reading one page of metrics. Chosen."""
SCRAPE_TICK_S: Final = 0.25
"""Between two looks for pages that are due. Chosen."""
SCRAPE_IDLE_S: Final = 1.0
"""Between two looks for targets while there are none. Chosen."""
PAGE_PERIOD_MOST_S: Final = 5.0
"""A page is read at least this often, also for longer windows. Chosen."""
SAMPLE_S: Final = 1.0
"""Between two samples of the devices' counters. Chosen."""
LATENCY_WINDOW_LEAST_S: Final = 2.0
"""Shorter windows hold too few requests; a pause of the guard lasts ten seconds at most. Chosen."""
