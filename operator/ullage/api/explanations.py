# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What every reason and condition means, and what a person can do about it.

``docs/reference/reasons.md`` and ``kubectl ullage explain`` print these texts, so a word on
somebody's screen always has an answer. Standard library only; must never decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explained import ConditionExplanation as ConditionExplanation
from ullage.api.explained import Explanation as Explanation
from ullage.api.explained import say
from ullage.api.explanations_cost import COST
from ullage.api.explanations_rounds import ROUNDS
from ullage.api.explanations_sharing import SHARING
from ullage.api.reasons import ConditionType, Reason

_WAITING: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITING_FOR_DECISION: say(
        "The workload was accepted and no decision about it has been made yet.",
        "Wait a moment. If it stays, look whether the operator runs and leads: its /readyz and "
        "the condition SolverDegraded of the SchedulingPolicy `default` say so.",
    ),
    Reason.SUSPENDED: say(
        "spec.suspend is true: the pods are gone and hold no device.",
        "Set spec.suspend to false to let it run again.",
    ),
    Reason.NO_CAPACITY: say(
        "Every suitable device is taken.",
        "Wait, ask for less (gpu.count, gpu.share.minPercent), allow more accelerators, or add "
        "nodes; `kubectl ullage why` names the device that misses by least.",
    ),
    Reason.NO_NODE_MATCHES: say(
        "No managed node passes the pod's node selector, affinity, taints and resource requests.",
        "Compare the template with the nodes labelled ullage.dev/node=true: labels, taints, and "
        "free CPU and memory.",
    ),
    Reason.NODE_AFFINITY_CONFLICT: say(
        "The template's node affinity already pins another node or matches none, so the pod "
        "cannot be sent to the chosen one.",
        "Remove matchFields and empty terms from the template's required node affinity.",
    ),
    Reason.UNKNOWN_ACCELERATOR: say(
        "An entry of spec.accelerators is neither a DeviceProfile nor a device of any node.",
        "Use a key that `kubectl get gpunodes.ullage.dev -o yaml` shows under devices[].model, "
        "or create the DeviceProfile.",
    ),
    Reason.GANG_TOO_LARGE: say(
        "Even an empty cluster has fewer suitable devices than all members need together.",
        "Lower spec.replicas or gpu.count, allow more accelerators, or add nodes.",
    ),
    Reason.MODE_UNSUPPORTED: say(
        "No suitable device offers the requested mode; an NVIDIA device offers Fractional only "
        "where MPS serves it.",
        "Use gpu.mode Exclusive, allow other accelerators, or turn MPS on for the node.",
    ),
    Reason.PREDICTED_SLO_BREACH: say(
        "Sharing the device would slow this workload or a neighbour beyond its objective, says "
        "the prediction.",
        "Raise slo.maxSlowdown, ask for another share, declare a WorkloadProfile if it uses less "
        "than assumed, or wait for a neighbour to end.",
    ),
    Reason.MEMORY_WOULD_OVERFLOW: say(
        "The memory asked for, with the context's overhead, exceeds what the device has left; on "
        "every empty device it means that it can never fit.",
        "Lower gpu.memory.limit or allow an accelerator with more memory.",
    ),
    Reason.CONTEXT_LIMIT: say(
        "The device already serves as many containers as may share it.",
        "Wait for one to end, or allow other devices.",
    ),
    Reason.PERCENT_LIMIT: say(
        "The shares on the device would add up to more than packing.maxPercentSum.",
        "Lower gpu.share.minPercent, wait, or raise packing.maxPercentSum in the SchedulingPolicy.",
    ),
    Reason.TRUST_DOMAIN: say(
        "The device is shared by workloads of another trust domain.",
        "Give workloads that may share a device the same spec.trustDomain; without one only "
        "workloads of the same namespace share.",
    ),
    Reason.GANG_INCOMPLETE: say(
        "Some members have room but not all of them, and a gang starts whole or not at all.",
        "Wait, or lower spec.replicas; the message counts the members that found a place.",
    ),
    Reason.RESERVATION_REFUSED: say(
        "The node refused a slice that the operator had chosen; another place is being sought.",
        "Nothing at first. If it repeats, the message carries the node's own reason.",
    ),
    Reason.RESERVATION_EXPIRED: say(
        "The node did not acknowledge the slices of the gang in time, so they were taken back.",
        "Nothing at first. If it repeats, look at the node agent's pod and the heartbeat of the "
        "GPUNode.",
    ),
    Reason.NODE_UNHEALTHY: say(
        "The node is not ready, or its agent has not reported for three heartbeats.",
        "Look at the Node and at the node agent's pod on it.",
    ),
    Reason.DEVICE_UNHEALTHY: say(
        "The device reports errors and is given to nobody until it has been clean for a while.",
        "Look at devices[].health and the conditions of the GPUNode; it returns by itself once "
        "the fault clears.",
    ),
    Reason.CREATE_REFUSED: say(
        "The API server refused to create a pod, Deployment or Service; the message is its own.",
        "Correct what the message names: the template, a quota, or an admission policy.",
    ),
    Reason.NAME_CONFLICT: say(
        "An object that is not ours holds a name that this workload needs; nothing was "
        "overwritten.",
        "Rename the workload, or remove the object that the message names.",
    ),
    Reason.NO_PORT: say(
        "The first container of the template names no port, so there is nothing to serve.",
        "Add containers[0].ports with a containerPort.",
    ),
    Reason.RESIZE_PENDING: say(
        "The work runs with another share or amount of memory than spec.gpu now asks for; a "
        "container is never resized while it runs.",
        "Set sharing.resizable to Restart to have it restarted for it (a job needs "
        "spec.checkpoint), restart it yourself, or wait: where it says so, room is missing.",
    ),
    Reason.RESIZING: say(
        "The work starts again because spec.gpu asks for another share or amount of memory, and "
        "sharing.resizable is Restart.",
        "Nothing: a job goes on from its checkpoint, replicas leave once their replacement serves.",
    ),
    Reason.NO_ROOM_TO_SURGE: say(
        "The rolling update waits: there is no free slice for one more replica, and stopping the "
        "only one would drop requests.",
        "Free a slice, add a second replica, or wait.",
    ),
    Reason.HELD_FOR_ANOTHER: say(
        "Room is being kept for a workload that has waited longer than the skip limit.",
        "Wait; raise gangSkipLimit in the SchedulingPolicy to hold room later.",
    ),
    Reason.MULTI_GPU: say(
        "The workload asks for a share of more than one device; only one device at a time is "
        "shared.",
        "Set gpu.count to 1, or use gpu.mode Exclusive.",
    ),
    Reason.ENFORCEMENT_MISSING: say(
        "A tenant of the device runs without verified limits, so nobody may join it there.",
        "Wait until its limits are verified or it is evicted; `kubectl ullage top` shows which.",
    ),
    Reason.SLO_INFEASIBLE: say(
        "The objective cannot be met even alone on a whole device of this kind.",
        "Raise the objective above what the message gives as solo time, or allow a faster "
        "accelerator.",
    ),
    Reason.LOAD_INFEASIBLE: say(
        "The offered load alone breaks the objective: it is the queue, not a neighbour.",
        "Add replicas, lower spec.load, or raise the objective.",
    ),
    Reason.NEED_PROFILE: say(
        "Too few co-locations like this one were observed to certify the risk budget (the message "
        "counts them), or work that promises a latency is alone until its latency is measured.",
        "Wait for a probation or for the measurement, declare or import profiles of the class, or "
        "use gpu.mode Exclusive.",
    ),
    Reason.NOT_WORTH_SHARING: say(
        "The tenants together would get less done than without the newcomer, or less than one "
        "after the other.",
        "Wait for another device, or lower risk.minCombinedPercent in the SchedulingPolicy.",
    ),
}


_LIFE: Final[Mapping[Reason, Explanation]] = {
    Reason.PLACED: say("Every member has its slices.", "Nothing; status.placement lists them."),
    Reason.RESERVING: say(
        "The slices are chosen and their nodes are asked to hold them.",
        "Nothing; it takes seconds.",
    ),
    Reason.STARTING: say(
        "All slices are held; the pods are being bound and started.",
        "Nothing. If it lasts, look at the pods' events: image pulls take place here.",
    ),
    Reason.RUNNING: say("Every member runs.", "Nothing."),
    Reason.LOST_RACE: say(
        "kubelet did not admit the pod because something else took the room first; the pod is "
        "made anew, and this does not count as a failure.",
        "Nothing. If it repeats, look for pods on the node that take resources outside the "
        "scheduler.",
    ),
    Reason.STUCK_UNSCHEDULED: say(
        "The pod was released to its node and the scheduler has not bound it; it is placed anew.",
        "Read the scheduler's message, which this one repeats.",
    ),
    Reason.STUCK_NOT_STARTED: say(
        "The pod is bound and its container did not start in time; it is placed anew.",
        "Read the pod's events and the slice's reason in the GPUNode.",
    ),
    Reason.PREEMPTED: say(
        "Its devices were needed by one of higher priority, or by one that is owed more time on "
        "them; this one was asked to checkpoint and waits for its turn.",
        "Wait, or raise its priority class or its weight.",
    ),
    Reason.MEMBER_LOST: say(
        "A member vanished (node lost, evicted, deleted): the gang starts anew, uncounted.",
        "Nothing; the message names the member.",
    ),
    Reason.RESTART_LIMIT: say(
        "A member failed and failurePolicy.maxRestarts was used up.",
        "Read the log of the failed pod, correct the cause and create the job again.",
    ),
    Reason.EXIT_CODE: say(
        "A member ended with an exit code that failurePolicy.retryExitCodes does not retry.",
        "Read the log of the failed pod, or add the code to retryExitCodes.",
    ),
    Reason.COMPLETED: say("The work is done without an error.", "Nothing."),
    Reason.WITHIN_OBJECTIVE: say("The observed slowdown keeps the objective.", "Nothing."),
    Reason.ABOVE_OBJECTIVE: say(
        "The observed slowdown is above the objective.",
        "See the neighbours with `kubectl ullage top`; a WorkloadProfile that states the real "
        "use lets the next decision avoid it.",
    ),
    Reason.INVALID_OBJECT: say(
        "The newest version of the object cannot be used; the last good one stays in force.",
        "Correct the field that the message names.",
    ),
    Reason.SOLVER_TIMEOUT: say(
        "A decision took longer than its deadline; the last good plan stands.",
        "If it repeats, look at ullage_decision_seconds and give the operator more CPU.",
    ),
    Reason.SOLVER_CRASHED: say(
        "The decision process ended unexpectedly; the last good plan stands.",
        "Read the operator's log, and raise its memory limit if it was killed for memory.",
    ),
    Reason.WRITE_REFUSED: say(
        "The API server keeps refusing a write of the operator or the agent.",
        "Read the message: usually a missing permission or CRDs older than the product; upgrade "
        "the chart ullage-crds.",
    ),
}

_NODE: Final[Mapping[Reason, Explanation]] = {
    Reason.SLOT_UNKNOWN: say(
        "kubelet does not yet say which pod holds the slot; the start is tried again.",
        "Nothing; kubelet asks again within seconds.",
    ),
    Reason.POD_UNKNOWN: say(
        "The agent has not yet seen the pod that kubelet named; the start is tried again.",
        "Nothing. If it lasts, look whether the agent can read pods.",
    ),
    Reason.PLACEMENT_MISSING: say(
        "The pod asks for a slot and the node has no slice for it.",
        "Start it through a TrainingJob or InferenceService; a pod cannot ask for slots itself.",
    ),
    Reason.EPOCH_STALE: say(
        "The slice comes from an operator that has been replaced.",
        "Nothing; the leading operator decides anew.",
    ),
    Reason.SLOT_COUNT: say(
        "The container holds another number of slots than it has slices.",
        "Do not set ullage.dev/slot in the template; the operator does.",
    ),
    Reason.DRAINING: say(
        "The previous user of the slice has not left the device yet.",
        "Nothing; the start is tried again. If it lasts, look for a process that ignores SIGTERM.",
    ),
    Reason.CAPACITY_EXCEEDED: say(
        "The slice would give the device more memory, containers or contexts than it may have.",
        "Nothing; it is placed anew. If it repeats, compare spec and status of the GPUNode.",
    ),
    Reason.PREDICTION_REFUSED: say(
        "A node foresees that a neighbour would be slowed beyond its objective. Agents of this "
        "version leave risk to the operator and never say it.",
        "Nothing; it is placed anew.",
    ),
    Reason.MPS_NOT_READY: say(
        "The MPS server of the device does not answer; the start is tried again.",
        "If it lasts, look at the node agent's MPS container and the Xid errors of the node.",
    ),
    Reason.FOREIGN_PLUGIN: say(
        "The node also advertises nvidia.com/gpu: two owners of one device are never allowed, so "
        "the agent offers nothing.",
        "Remove NVIDIA's device plugin from the node, or the label ullage.dev/node.",
    ),
    Reason.DEVICE_LOST: say(
        "The driver no longer finds the device; its slices have failed.",
        "Look at the node's kernel log for Xid errors; most lost devices need a reboot.",
    ),
    Reason.UNENFORCED: say(
        "A process runs on the device without the limits of its slice; its pod is evicted.",
        "Look for variables in the template that override the MPS settings.",
    ),
    Reason.ENFORCED: say("The limits of the slice were verified.", "Nothing."),
    Reason.RETIRED: say(
        "The agent withdrew from the node and removed its files.",
        "Set spec.retire of the GPUNode to false to use the node again.",
    ),
    Reason.CDI_UNAVAILABLE: say(
        "The container runtime does not read CDI files, so no slice can be handed over.",
        "Turn CDI on: containerd 1.7 `enable_cdi`, or use containerd 2 or CRI-O.",
    ),
    Reason.DEVICE_CONFIG_MISSING: say(
        "The node is set to emulated devices and the file that names them is missing or wrong.",
        "Write /var/lib/ullage/emulated.json on the node; the message names the fault.",
    ),
    Reason.DRIVER_MISSING: say(
        "The node is set to NVIDIA devices and the driver or its library does not answer.",
        "Run nvidia-smi on the node; the message says what is missing.",
    ),
    Reason.REGISTERED: say("kubelet knows the agent and its slots.", "Nothing."),
    Reason.KUBELET_AWAY: say(
        "kubelet does not answer; running containers are untouched.",
        "Look at kubelet on the node; the agent registers again by itself.",
    ),
    Reason.CPU_LIMIT_BELOW_SHARE: say(
        "The container's CPU limit is below the share of its emulated device, which it therefore "
        "cannot use up.",
        "Raise resources.limits.cpu of the device container, or lower gpu.share.",
    ),
    Reason.SLO_AT_RISK: say(
        "A container runs above nine tenths of its objective; nobody is paused for it yet.",
        "Nothing, or ask for a larger share at its next start.",
    ),
    Reason.BEST_EFFORT_PAUSED: say(
        "A container without an objective stands still for some seconds, because a neighbour on "
        "the device is above its own.",
        "Nothing: it goes on by itself. Give it an objective (slo) if it must never be paused.",
    ),
    Reason.BEST_EFFORT_RESUMED: say(
        "A paused container runs again.", "Nothing; the message says what the pause showed."
    ),
    Reason.INTERFERING: say(
        "A neighbour kept its objective only while this container stood still.",
        "Nothing: it is moved to another device. Ask for a smaller share, or a whole device.",
    ),
    Reason.SELF_VIOLATING: say(
        "A container is above its objective, and not because of its neighbours: pausing them did "
        "not help, or there are none.",
        "Lower its load, add replicas, ask for a larger share, or loosen the objective.",
    ),
    Reason.PAUSE_FAILED: say(
        "A container is above its objective and its neighbours could not be paused.",
        "Look at the guard container of the node agent: it needs the host's cgroup tree, writable.",
    ),
}

REASON_GROUPS: Final[Mapping[str, Mapping[Reason, Explanation]]] = {
    "Waiting and refusing": _WAITING,
    "Life of a workload": _LIFE,
    "Taking turns": ROUNDS,
    "Choice of an accelerator": COST,
    "Sharing and learning": SHARING,
    "Node": _NODE,
}
"""Every reason by chapter, in the order of the reference page."""

REASONS: Final[Mapping[Reason, Explanation]] = {
    reason: said for group in REASON_GROUPS.values() for reason, said in group.items()
}
"""The same table without chapters."""


def _when(true_when: str, *, good: bool = True) -> ConditionExplanation:
    return ConditionExplanation(true_when=true_when, good_when_true=good)


CONDITIONS: Final[Mapping[ConditionType, ConditionExplanation]] = {
    ConditionType.ADMITTED: _when(
        "every member has a slice in a GPUNode's spec; False carries the reason that binds"
    ),
    ConditionType.PLACED: _when("every member is bound and its slices are Prepared or later"),
    ConditionType.READY: _when(
        "TrainingJob: every member runs; InferenceService: all replicas are ready; GPUNode: the "
        "agent is registered with kubelet and serves"
    ),
    ConditionType.ENFORCED: _when("every slice is Attached under verified limits"),
    ConditionType.SLO_MET: _when(
        "the observed slowdown or latency is within the objective in at least two of the last "
        "three windows; absent without an objective or an observation"
    ),
    ConditionType.FINISHED: _when(
        "the job has ended; the reason is Completed or that of the failure"
    ),
    ConditionType.LATE_BINDING: _when(
        "the container runtime reads the files that hand over a slice (GPUNode)"
    ),
    ConditionType.RETIRED: _when("the agent has left the node on request (GPUNode)"),
    ConditionType.SHARING: _when(
        "absent while every GPU is shared as well as it can be; False names those that are not, "
        "and why (GPUNode)"
    ),
    ConditionType.FRESH: _when("the measured values hold for what runs now (WorkloadProfile)"),
    ConditionType.CONFLICTING: _when(
        "a declared speed is off by more than a fifth from the measured one (WorkloadProfile)",
        good=False,
    ),
    ConditionType.DEGRADED: _when("something does not work as it should", good=False),
    ConditionType.INVALID: _when(
        "the newest version of the object cannot be used and the last good one stands",
        good=False,
    ),
    ConditionType.SOLVER_DEGRADED: _when(
        "decisions do not come in time and the last good plan stands (SchedulingPolicy)",
        good=False,
    ),
    ConditionType.DEVICE_LOST: _when(
        "the driver no longer finds a device that it had (GPUNode)", good=False
    ),
}
"""Every condition type."""
