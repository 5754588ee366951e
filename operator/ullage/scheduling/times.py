# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the decisions, each with its reason; constants only.

"Chosen" is a value that no measurement or derivation supports.
"""

from __future__ import annotations

from typing import Final

from ullage.engines.capacity.times import BULK_LOSS_H

HOUR_S: Final = 3600.0
SHORTEST_S: Final = 1e-9
"""Minimum divisor among times."""

# Decisions
RECHECK_S: Final = 0.05
"""Time until the next decision, if this one is incomplete. Chosen."""
HEARTBEAT_MAX_AGE_S: Final = 180.0
"""Age of the node agent's heartbeat above which its node accepts nothing new: three periods."""
CLOCK_AHEAD_MOST_S: Final = 300.0
"""Maximum lead of a node's clock over ours; later entries wait for their time. Chosen."""
LAG_EXCUSED_MOST_S: Final = 600.0
"""Maximum lag of the API server that excuses a node or a pod: a server that is always slow must not
protect stuck ones for ever. Chosen."""

# Excluded devices and nodes
DEVICE_REFUSED_S: Final = 600.0
"""Exclusion of a device that refused one pod often, for that pod. Chosen."""
NODE_STUCK_FIRST_S: Final = 60.0
"""First exclusion of a node to which kube-scheduler did not bind a pod; it doubles each time.
Chosen."""
NODE_STUCK_MOST_S: Final = 3600.0
"""Longest exclusion of such a node. Chosen."""
NODE_STUCK_FORGOTTEN_S: Final = 3600.0
"""Time without such a failure after which the next one counts as the first. Chosen."""

# Added and removed nodes
NODE_COMES_S: Final = 600.0
"""From the request for a node until the node exists; clouds rarely need five minutes. Chosen."""
NODE_READY_S: Final = 900.0
"""From the creation of a node until it is ready; later, its launch has failed. Chosen."""
NODE_AGENT_S: Final = 3600.0
"""From the request for a node until its agent reports. Chosen."""
NODE_MEMBERS_S: Final = 120.0
"""From the first report of a new node's agent until members have slices there: a cycle and two
writes take seconds. Chosen."""
NODE_NEVER_READY_S: Final = 60.0
"""A node that is not ready, and whose readiness changed within this time of its creation, never was
ready. Chosen."""
NODE_LOST_S: Final = 300.0
"""Time unready after which a node counts as lost. Chosen."""
INSTANCES_UNSEEN_S: Final = 7200.0
"""Gap between two observations of a pool above which no loss is proven. Chosen."""
ORDER_LINGERS_S: Final = 60.0
"""Time for which an expired node request is kept, to be counted as failed. Chosen."""

# Pools
BULK_LOSS_S: Final = BULK_LOSS_H * HOUR_S
"""Time for which a loss may continue; nothing new is started in the pool meanwhile."""
LAUNCH_RETRY_FIRST_S: Final = 60.0
"""Pause after a failed launch, of a pool whose launches always succeed. Chosen."""
POOL_COUNT_S: Final = 30.0
"""Minimum time between two writes of a changing number of instances. Chosen."""
POOL_DRIFT_S: Final = 600.0
"""Minimum time between two writes of drifting figures only. Chosen."""
POOL_LOOKED_S: Final = 3600.0
"""Longest time without a write to a pool with instances: a new process does not know later changes.
Chosen."""
POOL_PRICED_S: Final = 10_800.0
"""Time between two writes of the time of an unchanged price, well before it is stale. Chosen."""
DEADLINE_LOOK_S: Final = 60
"""Longest time between two checks of a deadline. Chosen."""
UNRECORDED_HOLD_S: Final = 1e9
"""Age of a choice of capacity without a recorded start."""

# Costs and quotas
COST_ENTRY_S: Final = 60.0
"""Minimum time between two entries caused only by prices or the clock. Chosen."""
COST_ENTRY_PER_WORKLOAD_S: Final = 0.1
"""Addition to it per workload: a large cluster writes ten such entries a second. Chosen."""
COST_ENTRY_MOST_S: Final = 12 * 3600.0
"""Longest time between two entries, however small the change. Chosen."""
COST_COUNTED_MOST_S: Final = 24 * 3600.0
"""Maximum time counted by one entry; a longer one is a clock jump. Chosen."""
EFFICIENCY_PERIOD_S: Final = 7 * 86_400
"""Length of a row of the ledger of device time, from Monday 00:00 UTC. Chosen."""
FIRST_MONDAY_S: Final = 4 * 86_400
"""The first Monday since the epoch."""
EFFICIENCY_SLACK_S: Final = 300.0
"""Time by which counters of nodes may be older or newer than an entry: a few heartbeats. Chosen."""
EFFICIENCY_FIGURES_S: Final = 60.0
"""Age up to which metrics of device time are served again; nodes report as often. Chosen."""
QUOTA_WRITE_S: Final = 10.0
"""Minimum time between two writes of tenants' usage. Chosen."""

# Learning
ACKNOWLEDGE_S: Final = 300.0
"""Longest wait of a few observations for their acknowledgement: keeping them costs less than the
write. Chosen."""
OBSERVATION_GIVEN_UP_S: Final = 3600.0
"""Time for which an unused observation delays later ones. Chosen."""
PROFILE_WRITE_S: Final = 30.0
"""Minimum time between two writes of a profile's status. Chosen."""
MIXTURE_HALF_LIFE_S: Final = 14 * 86400.0
"""Half-life of a mixture of shares in the selection of rows. Chosen."""
OLD_IMAGE_S: Final = 600.0
"""Time for which rows of the previous image may still arrive, until its last containers end.
Chosen."""
STEP_MOST_S: Final = 86_400.0
"""A longer step is not plausible. Chosen."""
SPEEDS_WRITE_S: Final = 300.0
"""Minimum time between two writes of a profile's estimated speeds. Chosen."""

# Moves and conflicts
NEIGHBOURS_SETTLE_S: Final = 120.0
"""Time for which workloads must share a device before one yields, or before their slowdown counts:
a pod takes as long to start and to fill the windows of a guard. Chosen."""
CONFLICT_NEXT_S: Final = 1.0
"""Time until the next conflict is settled after a move: the moved one is placed by then. Chosen."""
CONFLICT_RETRY_S: Final = 30.0
"""Time until conflicts are checked that were postponed by a cycle. Chosen."""
BETTER_CHOICE_SETTLES_S: Final = 60.0
"""Time for which another accelerator must be better before a move: prices and first windows
fluctuate. Chosen."""
AGREEMENT_HOLD_S: Final = 600.0
"""Time for which an agreed share binds, and minimum run of a job before a downsizing: a job
restarts for others at most once in this time. Chosen."""
DOWNSIZE_RESTART_S: Final = 60.0
"""Cost of a restart beside the work since the last checkpoint, until it is measured. Chosen."""
CLEARING_MOST_S: Final = 120.0
"""Horizon of a forecast of pod terminations: their grace period is declared by their owner, and no
measurement. Chosen."""

# Gangs
GANG_RESTART_S: Final = 30.0
"""Cost of a restart until one was observed: the default grace period of a checkpoint."""
GANG_HOLD_S: Final = 300.0
"""Minimum time between two voluntary changes of a running gang's size; equal to that of a
reliability stage, because both cost a restart or a copy of the state. Chosen."""
GANG_ROOM_LASTS_S: Final = GANG_RESTART_S
"""Time for which room must last before a gang grows into it. Waiting as long as the change costs
loses at most twice as much as the best choice in hindsight (derived: the ski-rental rule)."""
GANG_HOLD_IN_PLACE_S: Final = 30.0
""":data:`GANG_HOLD_S` where members join in place. The others are not stopped, but elastic torchrun
restarts its worker processes at each change: twice a minute at most. Chosen."""
GANG_ROOM_LASTS_IN_PLACE_S: Final = 10.0
""":data:`GANG_ROOM_LASTS_S` where members join in place: about the time in which a pod starts and
joins the others (derived likewise)."""
GANG_PLACES_KEPT_S: Final = 120.0
"""Time for which a gang's places are kept between its old and its new pods: pods appear within
seconds; if the API rejects them, others may have the devices. Chosen."""
JOIN_RETRY_S: Final = 120.0
"""Pause after a joining member found no place: the count of the room was wrong, and each attempt
creates and deletes a pod. Chosen."""
LOSS_EXPLAINS_S: Final = 90.0
"""Maximum age of failures explained by the loss of a node. By default a silent node is not Ready
after 40 or 50 s, checked every 5 s; the rest is for a busy API server. Not measured."""
POD_WRITTEN_OFF_S: Final = 30.0
"""Wait for a pod to be deleted on a node that is not Ready: the default grace period of Kubernetes,
after which a running kubelet would have killed it."""
COORDINATOR_ENDS_S: Final = 30.0
"""Time within which a coordinator detects the end of its members, and ends. Chosen."""

# Drains and replacements
DRAIN_MARGIN_S: Final = 5.0
"""Time before the end of a node by which a pod must be deleted: kubelet still has to report it, or
the name stays in use until the Node object is removed. Chosen."""
DRAIN_LAST_CALL_S: Final = 20.0
"""Time before the end of a node at which replicas leave even without a replacement: they finish
their requests and leave their Service before the machine terminates. Chosen."""
REPLACEMENT_MOST_S: Final = 120.0
"""Longest wait of a replica that harms others for its replacement: a pod has as long to be
scheduled and to start. Chosen."""

# Services
LOAD_BIN_S: Final = 15.0
"""Interval over which loads are averaged, and replicas chosen. Chosen."""
LOAD_SEASON_S: Final = 86_400.0
"""A day, from midnight UTC on."""
LOAD_STALE_S: Final = 45.0
"""Age of a heartbeat above which its loads are stale; a node reports them every 10 s. Chosen."""
LATENCY_MOST_S: Final = 3600.0
"""A longer latency is not plausible. Chosen."""
LATENCY_RECORDED_MOST_MS: Final = 10**9
"""Largest prediction in a record of scaling."""
REPLICAS_SETTLE_S: Final = 1.0
"""From a decision to the new number of replicas: its status is written first. Chosen."""
REPLICAS_WAKE_SETTLE_S: Final = 0.25
"""The same where a request waits: a status takes less; a late one costs a second attempt.
Chosen."""
REPLICA_LAUNCH_FIRST_S: Final = 45.0
"""Start time of a replica until one was observed. Chosen."""
REPLICA_STARTS_S: Final = 600.0
"""Time without an answer after which a replica does not keep a service awake. Chosen."""
REPLICA_LAUNCH_BOUNDS_S: Final = (5.0, REPLICA_STARTS_S)
"""Plausible range of a start time: a restarted container looks slow. Chosen."""
ROUTER_STALE_S: Final = 60.0
"""Maximum age of routers' reports. Chosen."""
SHARE_HOLD_S: Final = 600.0
"""Minimum time between two changes of a service's share, and after one without room. Chosen."""
SHARE_REPAIR_S: Final = 120.0
"""The same where the objective is out of reach of the present share. Chosen."""
SHARE_ROOM_S: Final = 60.0
"""Wait for a device after which a replica gives up the new share. Chosen."""

# Turns
PAIR_PARTED_S: Final = 3600.0
"""Time before a failed pair is tried again. Chosen."""

# Searches
SEARCH_STALLED_S: Final = 600.0
"""A search is stalled when no trial ran, started or ended for this time: longer than the arrival of
a pool's node. Chosen."""
TRIAL_LAUNCH_S: Final = 10.0
"""From the creation of a TrainingJob to the start of its program, until one was observed.
Chosen."""
TRIAL_SAVE_S: Final = 10.0
"""Saving and loading of a checkpoint, until a trial was resized. Chosen."""
EPOCH_UNKNOWN_S: Final = 1.0
"""Work of an epoch until one was measured: trials are then equal."""
TRIAL_WAITS_S: Final = 120.0
"""Wait for a device after which a TrainingJob requests the next narrower width. Chosen."""
TRIAL_WIDTH_CAP_S: Final = 600.0
"""Time for which no trial of the search requests more than that width. Chosen."""
TRIAL_LOOK_S: Final = 30.0
"""Time between two checks of a trial that runs longer than expected. Chosen."""

# Slow ranks
STRAGGLER_HELD_S: Final = 15.0
"""Time for which a rank is slow until its owner is told; its figures are means of up to a minute
already. Chosen."""
STRAGGLER_SHOWN_S: Final = 60.0
"""The same while the status names another rank or cause: it changes once a minute at most.
Chosen."""
STRAGGLER_PAUSE_S: Final = 30.0
"""Time without slowness after which a rank counts as slow from then on only: it must be slow
throughout to be replaced. Chosen."""
SLOW_NODE_S: Final = 3600.0
"""Time for which a job leaves out a node that made a rank of it slow. Chosen."""
REPLACEMENTS_APART_S: Final = 60.0
"""Time between two replacements of slow members in the cluster, in which the first has taken its
place. Chosen."""
REPLACEMENTS_COUNT_S: Final = 86_400.0
"""Time in which replacements of slow members count against the most of them. Chosen."""
STRAGGLER_GONE_S: Final = 60.0
"""Time without a slow rank after which there is none. Chosen."""
STRAGGLER_QUIET_S: Final = 1800.0
"""Time after which the owner is told the same again. Chosen."""

# Step traces
TRACE_WAITS_S: Final = 600.0
"""From the creation of a request until it fails, if its pods are not there or others are traced.
Chosen."""
TRACED_JOB_COMES_S: Final = 60.0
"""The same for a job that does not exist; pods that start are waited for as long, beside others
that run. Chosen."""
TRACE_ANSWER_S: Final = 20.0
"""Time in which an agent that reports answers an order; one that does not is too old. Chosen."""
AGENT_SILENT_S: Final = 60.0
"""The same for an agent that does not report at all. Chosen."""
STEPS_COME_S: Final = 120.0
"""From the question for a pod's step until its first step. Chosen."""
TRACE_LEAD_S: Final = 2.0
"""Time between the arrival of an order at a program and its first step. Chosen."""
TRACE_PUBLISH_LEAST_S: Final = 1.0
"""Least time that an order takes to a program: times in a status are whole seconds. Chosen."""
TRACE_PUBLISH_MOST_S: Final = 6.0
"""Largest such time that is planned for; agents renew the step that they report. Chosen."""
TRACE_ENDS_S: Final = 60.0
"""Time for export, analysis and report after the last step. Chosen."""
TRACE_MOST_S: Final = 1800.0
"""From the order until what is missing is given up, however slow the steps are. Chosen."""
TRACE_AGE_MOST_S: Final = 7 * 86_400
"""Age from which a trace says nothing of the device time of its job any more. Chosen."""
SAMPLED_SHOWN_S: Final = 60.0
"""Time for which a request of the sample that the API does not show counts as under way. Chosen."""
