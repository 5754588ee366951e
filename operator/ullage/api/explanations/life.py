# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of a workload's lifecycle, of tiers and turns. Standard library only."""

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
    Reason.NOT_ADOPTED: say(
        "The pod has a label of ullage.dev that asks for a device, and was created where no"
        " admission policy of Ullage prepared it, or while its webhook did not answer; it runs"
        " without a device of ours.",
        "Switch admissionPolicy.adoption on in the chart; kubectl ullage doctor says what prepares"
        " pods and whether it answers. Then create the pod again.",
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
    Reason.IMAGE_PULL_FAILED: say(
        "The image of a container could not be pulled for a minute. The pod goes, and its share "
        "with it; the next try waits a minute, then twice as long each time, five minutes at most. "
        "A bare pod stays: it gives its share back, and gets one on its node again once kubelet "
        "has the image.",
        "The message has what the registry answered. Mend the image's name or tag, or the pull "
        "secret, and create the workload again.",
    ),
    Reason.PREEMPTED: say(
        "A workload of higher priority, or one that is owed more time, needed the devices. This "
        "workload was asked to checkpoint and waits for its turn.",
        "Wait, or raise its priority class or its weight.",
    ),
    Reason.QUOTA_RECLAIMED: say(
        "The workload's tenant had borrowed quota, and another tenant of the cohort reclaimed its "
        "nominal quota. This workload was asked to checkpoint and starts again when the quota has "
        "room.",
        "Wait, stay within the nominal quota of your tenant, or ask the administrator to raise it "
        "(spec.tenants[].quota of the SchedulingPolicy).",
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
        "A member ended with an exit code other than 0. The message has the code, kubelet's word "
        "for it, and the last line that the program left.",
        "Read the log of the failed pod. OOMKilled: raise the container's memory limit. A code "
        "that another start may cure: add it to failurePolicy.retryExitCodes.",
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


ROUNDS: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITS_FOR_FEWER_NODES: say(
        "There is room for the gang, but on more nodes than it needs, and the profile of its class "
        "says that it is slower there. It waits a while for room on fewer.",
        "Wait; the message says how long. Or correct acrossNodes in the WorkloadProfile.",
    ),
    Reason.WAITS_FOR_ROUND: say(
        "Other jobs are owed more time on its devices; this job gets its turn in a later round.",
        "Wait. The message says how much time the job is promised and owed, and which jobs are "
        "ahead. Raise its weight or that of its tenant, or allow more accelerators.",
    ),
    Reason.NO_FEASIBLE_ACCELERATOR: say(
        "No single accelerator type is feasible: none can run all members (a turn never mixes "
        "types), or none keeps the bounds of spec.cost. The message says which.",
        "Lower spec.replicas or gpu.count, allow more accelerators, add nodes, loosen spec.cost, "
        "or use the objective FIFO.",
    ),
    Reason.ROUND_SCHEDULED: say(
        "The job has its turn, with devices of the type that the objective assigns to it.",
        "Nothing; it continues in later rounds until another job is owed more.",
    ),
    Reason.ESTIMATE_USED: say(
        "The job's speed is not known on every type, so time slicing uses an estimate.",
        "Nothing: a measurement replaces it. Declare stepsPerSecond in a WorkloadProfile to get "
        "the right time from the start.",
    ),
}
"""Reasons of objectives other than FIFO."""


TIERS: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITS_FOR_LEAD: say(
        "The members have their devices and wait for the coordinator's pod, which leads them and "
        "holds the copy of their state.",
        "Nothing; it takes seconds. If it lasts, the message says what that pod waits for: usually "
        "memory for twice elasticity.backup.stateBytes on an on-demand or reserved machine.",
    ),
    Reason.LEAD_LOST: say(
        "The coordinator's pod of a job in tiers is gone, and with it the copy of the state. Every "
        "member restarts from the last checkpoint.",
        "Nothing if its machine was lost. If the pod failed by itself, the message has its exit "
        "code: read its log, and check that elasticity.backup.stateBytes is large enough.",
    ),
    Reason.STAGE_CHANGED: say(
        "The ratio of transient to reliable members changed, so other members own the state or "
        "compute now.",
        "Nothing; set elasticity.tiers to fix the stage.",
    ),
    Reason.ROLLED_BACK: say(
        "Members that owned state were lost without notice. The others went back to the last step "
        "of which the coordinator had a whole copy, and repeat the steps since.",
        "Nothing. If it is frequent, push more often (elasticity.backup) or use more reliable "
        "members.",
    ),
    Reason.COPY_HELD: say("The coordinator holds a whole copy of the state.", "Nothing."),
    Reason.RELIABLE_OWN: say(
        "The reliable members own all of the state, so no copy is needed.", "Nothing."
    ),
    Reason.NO_COPY: say(
        "No whole copy of the state is in memory: after a loss now, the job restarts from a "
        "checkpoint.",
        "Nothing at the beginning. If it lasts, members cannot push fast enough: raise "
        "elasticity.backup.everySteps and maxLagSteps.",
    ),
    Reason.NOTICE_LONG_ENOUGH: say(
        "After a notice, members can hand over their state in half of its time.", "Nothing."
    ),
    Reason.NOTICE_TOO_SHORT: say(
        "Half of the shortest notice of the job's pools is less than a hand-over takes. With "
        "elasticity.onNotice Flush the job does not start. A running job continues, and treats "
        "such a notice as a loss without notice.",
        "Lower elasticity.backup.maxLagSteps, state in dirtyBytesPerStep what a step really "
        "changes, exclude pools with a short notice, or set onNotice: Checkpoint.",
    ),
}
"""Reasons of a job in tiers."""
