# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of a workload's lifecycle. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

LIFE: Final[Mapping[Reason, Explanation]] = {
    Reason.PLACED: say("Every member has its slices.", "Nothing; status.placement lists them."),
    Reason.RESERVING: say(
        "The operator has chosen the slices, and their nodes are reserving them.",
        "Nothing; it takes seconds.",
    ),
    Reason.STARTING: say(
        "All slices are reserved; the pods are being bound and started.",
        "Nothing. If it lasts, look at the pods' events: images are pulled in this phase.",
    ),
    Reason.RUNNING: say("Every member runs.", "Nothing."),
    Reason.LOST_RACE: say(
        "kubelet did not admit the pod because another pod took the room first. The operator "
        "creates the pod again and counts no failure.",
        "Nothing. If it repeats, look for pods on the node that take resources without the "
        "scheduler.",
    ),
    Reason.FOREIGN_POD: say(
        "A pod names this workload as its owner, but the operator did not create it: its name, "
        "owner or API group differs from what the operator sets. The operator leaves it alone, "
        "gives it no device and does not count it.",
        "Find out who created the pod and delete it. Keep the chart's admission policy on "
        "(admissionPolicy.enabled): it refuses such pods.",
    ),
    Reason.STUCK_UNSCHEDULED: say(
        "The operator released the pod to its node, but kube-scheduler did not bind it in time; "
        "the operator places it again.",
        "Read kube-scheduler's message, which this message repeats.",
    ),
    Reason.STUCK_NOT_STARTED: say(
        "The pod is bound, but its container did not start in time; the operator places it again.",
        "Read the pod's events and the slice's reason in the GPUNode.",
    ),
    Reason.PREEMPTED: say(
        "A workload of higher priority, or one that is owed more time, needed the devices. This "
        "workload was asked to checkpoint and waits for its turn.",
        "Wait, or raise its priority class or its weight.",
    ),
    Reason.EVICTION_NOTICE: say(
        "The provider or the administrator will take the machine away. The node accepts no new "
        "work, and running work moves in time.",
        "Nothing. The message names the node and the time; docs/notices.md gives the order in "
        "which work leaves.",
    ),
    Reason.SPOT_INTERRUPTED: say(
        "A pod is on a machine that the provider takes back, or on a node that an autoscaler "
        "removes. A job saves its work and restarts elsewhere, which counts as no failure. A "
        "replica is replaced before it goes, if there is room.",
        "Nothing. If work is lost, set spec.checkpoint and save on SIGTERM within the notice, "
        "which is 30 seconds to two minutes with most providers.",
    ),
    Reason.MEMBER_LOST: say(
        "A member is gone (node lost, evicted, deleted). The gang restarts, which counts as no "
        "failure.",
        "Nothing; the message names the member.",
    ),
    Reason.SIZED: say(
        "The elastic gang started with as many members as there was room for.",
        "Nothing; it grows when there is lasting room.",
    ),
    Reason.SHRUNK: say(
        "The elastic gang continues with fewer members, from its checkpoint or in place: it lost a "
        "member or a node, found less room, or gave devices to work of higher priority.",
        "Nothing; it grows again when there is lasting room. Add nodes, or raise its priority "
        "class if other work took its devices.",
    ),
    Reason.GROWN: say(
        "The elastic gang continues with more members, from its checkpoint or in place, because "
        "there was lasting room.",
        "Nothing; lower elasticity.maxReplicas to keep it smaller.",
    ),
    Reason.RESTART_LIMIT: say(
        "A member failed, and no restarts of failurePolicy.maxRestarts are left.",
        "Read the log of the failed pod, correct the cause and create the job again.",
    ),
    Reason.EXIT_CODE: say(
        "A member ended with an exit code that failurePolicy.retryExitCodes does not retry.",
        "Read the log of the failed pod, or add the code to retryExitCodes.",
    ),
    Reason.COMPLETED: say("The work finished without an error.", "Nothing."),
    Reason.WITHIN_OBJECTIVE: say("The observed slowdown is within the objective.", "Nothing."),
    Reason.ABOVE_OBJECTIVE: say(
        "The observed slowdown is above the objective.",
        "Look at the neighbours with `kubectl ullage top`. A WorkloadProfile with the real use "
        "lets the next decision avoid this.",
    ),
    Reason.INVALID_OBJECT: say(
        "The newest version of the object is unusable; the last good one stays in force.",
        "Correct the field that the message names.",
    ),
    Reason.DECISION_FAILED: say(
        "The operator cannot decide about this object. Its pods and devices stay as they are, and "
        "decisions about all other objects continue.",
        "Correct the field that the message names. If none is wrong, report the fault with the "
        "object's YAML and the operator's log line `set aside`.",
    ),
    Reason.SOLVER_TIMEOUT: say(
        "A decision took longer than its time limit; the last good plan stays in force.",
        "If it repeats, look at ullage_decision_seconds and give the operator more CPU.",
    ),
    Reason.SOLVER_CRASHED: say(
        "The decision process ended unexpectedly; the last good plan stays in force.",
        "Read the operator's log, and raise its memory limit if it was killed for memory.",
    ),
    Reason.WRITE_REFUSED: say(
        "The API server keeps refusing a write of the operator or the agent.",
        "Read the message. The usual cause is a missing permission, or CRDs older than Ullage: "
        "upgrade the chart ullage-crds.",
    ),
}
"""Reasons of a workload that has its devices."""
