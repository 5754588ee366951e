# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the decisions, each with its reason; constants and nothing else.

"Chosen" is a value that no measurement or derivation supports.
"""

from __future__ import annotations

from typing import Final

from ullage.engines.capacity.times import BULK_LOSS_H

HOUR_S: Final = 3600.0
SHORTEST_S: Final = 1e-9
"""Least time that others are divided by."""

# Decisions
RECHECK_S: Final = 0.05
"""Until the next decision, if this one left something undone. Chosen."""
HEARTBEAT_MAX_AGE_S: Final = 180.0
"""Age of the node agent's heartbeat from which on its node takes nothing new: three periods."""
CLOCK_AHEAD_MOST_S: Final = 300.0
"""Most that a node's clock may be ahead of ours; later entries wait for their time. Chosen."""
LAG_EXCUSED_MOST_S: Final = 600.0
"""Most lag of the API server that excuses a node or a pod: a server that is always slow must not
protect stuck ones for ever. Chosen."""

# Devices and nodes that are left out
DEVICE_REFUSED_S: Final = 600.0
"""A device that refused one pod often is left out for it. Chosen."""
NODE_STUCK_FIRST_S: Final = 60.0
"""A node to which kube-scheduler did not bind a pod is left out, the first time; the next times
double. Chosen."""
NODE_STUCK_MOST_S: Final = 3600.0
"""Longest exclusion of such a node. Chosen."""
NODE_STUCK_FORGOTTEN_S: Final = 3600.0
"""Time without such a failure after which the next one counts as the first. Chosen."""

# Nodes that come and go
NODE_COMES_S: Final = 600.0
"""From the request for a node until the node is there; clouds rarely need five minutes. Chosen."""
NODE_READY_S: Final = 900.0
"""From the creation of a node until it is ready; later, its launch has failed. Chosen."""
NODE_AGENT_S: Final = 3600.0
"""From the request for a node until its agent reports. Chosen."""
NODE_MEMBERS_S: Final = 120.0
"""From the first report of a new node's agent until members have slices there: a cycle and two
writes take seconds. Chosen."""
NODE_NEVER_READY_S: Final = 60.0
"""A node that is not ready, and whose readiness changed no later than this after its creation,
never was ready. Chosen."""
NODE_LOST_S: Final = 300.0
"""A node that stays unready for so long is gone for good. Chosen."""
INSTANCES_UNSEEN_S: Final = 7200.0
"""A look at a pool that comes later than this after the last one proves no loss. Chosen."""
ORDER_LINGERS_S: Final = 60.0
"""A node request that is past its time stays for so long, to be counted as failed. Chosen."""

# Pools
BULK_LOSS_S: Final = BULK_LOSS_H * HOUR_S
"""More of a loss may come for so long; nothing new is started in the pool meanwhile."""
LAUNCH_RETRY_FIRST_S: Final = 60.0
"""Pause of a pool where launches surely succeed, after one that failed. Chosen."""
POOL_COUNT_S: Final = 30.0
"""Least time between two writes of a number of instances that changes. Chosen."""
POOL_DRIFT_S: Final = 600.0
"""Least time between two writes of figures that only drift. Chosen."""
POOL_LOOKED_S: Final = 3600.0
"""Longest time without a write to a pool that holds instances: a new process does not know what
happened since. Chosen."""
POOL_PRICED_S: Final = 10_800.0
"""Between two writes of the time of a price that stays equal, well before it is stale. Chosen."""
DEADLINE_LOOK_S: Final = 60
"""Longest time between two looks at a deadline. Chosen."""
UNRECORDED_HOLD_S: Final = 1e9
"""Age of a choice of capacity whose beginning was not recorded."""

# Costs and quotas
COST_ENTRY_S: Final = 60.0
"""Least time between two entries that only prices or the clock ask for. Chosen."""
COST_ENTRY_PER_WORKLOAD_S: Final = 0.1
"""Each workload adds so much to it: a large cluster writes ten such entries a second. Chosen."""
COST_ENTRY_MOST_S: Final = 12 * 3600.0
"""Longest time between two entries, however small the change. Chosen."""
COST_COUNTED_MOST_S: Final = 24 * 3600.0
"""Most time that one entry counts; a longer one is a clock that jumped. Chosen."""
QUOTA_WRITE_S: Final = 10.0
"""Least time between two writes of what tenants hold. Chosen."""

# Learning
ACKNOWLEDGE_S: Final = 300.0
"""Longest wait of a few observations for their acknowledgement: carrying them costs less than the
write. Chosen."""
OBSERVATION_GIVEN_UP_S: Final = 3600.0
"""An observation that no profile takes holds up those behind it for so long. Chosen."""
PROFILE_WRITE_S: Final = 30.0
"""Least time between two writes of a profile's status. Chosen."""
MIXTURE_HALF_LIFE_S: Final = 14 * 86400.0
"""Time in which a mixture of shares loses half of its rows to others. Chosen."""
OLD_IMAGE_S: Final = 600.0
"""Rows of the former image may still arrive for so long, until its last containers end. Chosen."""
STEP_MOST_S: Final = 86_400.0
"""A longer step is not believed. Chosen."""
SPEEDS_WRITE_S: Final = 300.0
"""Least time between two writes of a profile's estimated speeds. Chosen."""

# Moves and conflicts
NEIGHBOURS_SETTLE_S: Final = 120.0
"""Workloads must share a device for so long before one gives way, or before their slowdown counts:
a pod takes as long to start and to fill the windows that a guard judges. Chosen."""
CONFLICT_NEXT_S: Final = 1.0
"""Until the next conflict is settled after a move: the moved one has its place by then. Chosen."""
CONFLICT_RETRY_S: Final = 30.0
"""Until conflicts are looked at for which a cycle had no time. Chosen."""
BETTER_CHOICE_SETTLES_S: Final = 60.0
"""Another accelerator must be better for so long before anything moves: prices and first windows
fluctuate. Chosen."""
AGREEMENT_HOLD_S: Final = 600.0
"""An agreed share binds for so long, and a job runs for so long before it may be asked for room
(again): a job restarts for others once in this time at most. Chosen."""
DOWNSIZE_RESTART_S: Final = 60.0
"""Cost of a restart beside the work since the last checkpoint, until it was measured. Chosen."""
CLEARING_MOST_S: Final = 120.0
"""Farthest that a forecast looks ahead for pods to end: their grace is what their owner asks for,
and no measurement. Chosen."""

# Gangs
GANG_RESTART_S: Final = 30.0
"""Cost of a restart until one was seen: the default grace of a checkpoint."""
GANG_HOLD_S: Final = 300.0
"""Least time between two voluntary changes of a running gang's size; as long as a stage of
reliability is held, because both cost a restart or a copy of the state. Chosen."""
GANG_ROOM_LASTS_S: Final = GANG_RESTART_S
"""Room must last for so long before a gang grows into it. Waiting as long as the change costs loses
at most twice what the best choice in hindsight would (derived: the ski-rental rule)."""
GANG_HOLD_IN_PLACE_S: Final = 30.0
""":data:`GANG_HOLD_S` where members join in place. The others are not stopped, but elastic torchrun
starts its worker processes again at each change: twice a minute at most. Chosen."""
GANG_ROOM_LASTS_IN_PLACE_S: Final = 10.0
""":data:`GANG_ROOM_LASTS_S` where members join in place: about as long as a pod takes to start and
to meet the others (derived alike)."""
GANG_PLACES_KEPT_S: Final = 120.0
"""The places of a gang are kept for so long while its old pods are gone and the new ones are not
there: pods come within seconds; where the API takes none, others may have the devices. Chosen."""
JOIN_RETRY_S: Final = 120.0
"""Pause after a member that was to join found no place: the count of the room was wrong, and each
try creates a pod and deletes it again. Chosen."""
LOSS_EXPLAINS_S: Final = 90.0
"""The loss of a node explains failures that are no older than this. By default a silent node is not
Ready after 40 or 50 s, checked every 5 s; the rest is for a busy API server. Not measured."""
POD_WRITTEN_OFF_S: Final = 30.0
"""A pod that has to go is waited for on a node that is not Ready: the default grace of Kubernetes,
after which a kubelet that still ran would have killed it."""
COORDINATOR_ENDS_S: Final = 30.0
"""A coordinator sees that its members have ended a moment later, and ends within this. Chosen."""

# Drains and replacements
DRAIN_MARGIN_S: Final = 5.0
"""Before the end of a node, by which a pod must be gone: kubelet still has to report it, or the
name stays taken until the Node object is removed. Chosen."""
DRAIN_LAST_CALL_S: Final = 20.0
"""Before the end of a node, at which replicas leave though nothing replaces them: they end their
requests and leave their Service before the machine is gone. Chosen."""
REPLACEMENT_MOST_S: Final = 120.0
"""Longest wait of a replica that harms others for its replacement: a pod has as long to be
scheduled and to start. Chosen."""

# Services
LOAD_BIN_S: Final = 15.0
"""Loads are averaged, and replicas chosen, over so long. Chosen."""
LOAD_SEASON_S: Final = 86_400.0
"""A day, from midnight UTC on."""
LOAD_STALE_S: Final = 45.0
"""Age of a heartbeat from which on its loads are old; a node reports them every 10 s. Chosen."""
LATENCY_MOST_S: Final = 3600.0
"""A longer latency is not believed. Chosen."""
LATENCY_RECORDED_MOST_MS: Final = 10**9
"""Largest prediction that a record of scaling takes."""
REPLICAS_SETTLE_S: Final = 1.0
"""From a decision to the new number of replicas: its status is written first. Chosen."""
REPLICAS_WAKE_SETTLE_S: Final = 0.25
"""The same where a request waits: a status takes less; a late one costs a second try. Chosen."""
REPLICA_LAUNCH_FIRST_S: Final = 45.0
"""Start of a replica until one was seen. Chosen."""
REPLICA_STARTS_S: Final = 600.0
"""A replica that does not answer after so long is no reason to stay awake. Chosen."""
REPLICA_LAUNCH_BOUNDS_S: Final = (5.0, REPLICA_STARTS_S)
"""Least and most that is believed of a start: a container that was started again looks slow.
Chosen."""
ROUTER_STALE_S: Final = 60.0
"""Older reports of routers do not count. Chosen."""
SHARE_HOLD_S: Final = 600.0
"""Least time between two changes of a service's share, and after a share found no room. Chosen."""
SHARE_REPAIR_S: Final = 120.0
"""The same where the objective is out of reach of the present share. Chosen."""
SHARE_ROOM_S: Final = 60.0
"""A replica that waits longer for a device gives the new share up. Chosen."""

# Turns
PAIR_PARTED_S: Final = 3600.0
"""A pair that did not hold is not tried again for so long. Chosen."""

# Searches
SEARCH_STALLED_S: Final = 600.0
"""A search is stalled when no trial has run, begun or ended for so long: longer than a node of a
pool takes to come. Chosen."""
TRIAL_LAUNCH_S: Final = 10.0
"""From the creation of a TrainingJob to the start of its program, until one was seen. Chosen."""
TRIAL_SAVE_S: Final = 10.0
"""Saving and loading of a checkpoint, until a trial was resized. Chosen."""
EPOCH_UNKNOWN_S: Final = 1.0
"""Work of an epoch until one was measured: trials count as equal then."""
TRIAL_WAITS_S: Final = 120.0
"""A TrainingJob that finds no device for so long asks for the next narrower width. Chosen."""
TRIAL_WIDTH_CAP_S: Final = 600.0
"""No trial of the search asks for more than that width for so long. Chosen."""
TRIAL_LOOK_S: Final = 30.0
"""Between two looks at a trial that runs longer than expected. Chosen."""
