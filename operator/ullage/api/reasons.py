# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The table of reasons and conditions: each with what it means, what helps and what it stands for.

A condition, an Event or a refusal carries a reason. Here it is declared once: the reference page,
``kubectl ullage explain`` and refusals print its texts, decisions go by its standing, never by a
text. Standard library only. An API version never removes a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Flag, StrEnum, auto
from itertools import groupby
from typing import Final, Self

_REPORT: Final = (
    "Call ullage_run.tuning.report(epoch, value) at the end of each epoch, and end after the epoch "
    "in ULLAGE_TRIAL_EPOCHS."
)


class Standing(Flag):
    """Properties of a reason that decisions go by; a reason may have several."""

    PLAIN = 0
    GOOD = auto()
    """Nothing is wrong: its Event is no warning."""
    QUIET = auto()
    """Comes and goes for a whole line of workloads at once, so that it is no news."""
    MOVING = auto()
    """Does not hold yet and will shortly, by itself."""
    UNDECIDED = auto()
    """As the last decision about a replica it does not say that there is no place."""
    FOREIGN = auto()
    """Devices would not help: others have to act first."""
    OF_THE_API = auto()
    """The API server took no write."""
    OF_THE_NODE = auto()
    """Holds for all devices of a node."""
    OF_THE_OBJECTIVE = auto()
    """An edited objective is told to be so, as condition ``Degraded``, while it is."""
    NEVER_FITS = auto()
    """Even an empty cluster has no place; a decision for good lists no refusals."""
    NO_NODE_HELPS = auto()
    """One more node would change nothing."""
    LASTING = auto()
    """Waiting does not lift it on a node: the slice becomes ``Refused`` and gives its room back."""
    OURS = auto()
    """An ending that we bring about: budgets are honoured, the pod gets its signal and grace."""
    PREEMPTION = auto()
    """An ending for the sake of another workload, which gets the devices."""
    LEAVES_DEVICES = auto()
    """An ending after which others may have the devices."""
    TAKEN = auto()
    """An ending that takes devices from a job that neither failed nor asked for it."""
    SUDDEN = auto()
    """An ending that no one asked the job to prepare for."""
    BLAMES_DEVICE = auto()
    """The workload leaves the device out for a while."""
    LEAVES_NODE = auto()
    """The workload leaves the whole node out for a while."""
    RANKED = auto()
    """A job may well run on the type."""
    RULED_OUT = auto()
    """A verdict on a type after which no one starts there."""
    NOT_MEASURED = auto()
    """A verdict on a type that one run there replaces."""
    STAYS = auto()
    """Says no more of the pools of a job than that they stay as they are."""
    OWNER_ACTS = auto()
    """The pools of a job ask someone to do something: told once, when it comes."""
    NEVER_STARTS = auto()
    """A job with a deadline does not start."""
    TURNS_FROM_SPOT = auto()
    """A job takes on-demand capacity for its deadline."""
    SCALES = auto()
    """The number of replicas changes."""
    NO_METRIC = auto()
    """A trial ended without a value that could be compared."""
    REFUSES_TRACE = auto()
    """The analysis of a trace refuses the file."""


class Reason(StrEnum):
    """Reasons as stable words for people, alerts and scripts."""

    meaning: str
    what_to_do: str
    """The remedy, as whole sentences."""
    standing: Standing
    in_short: str
    """The remedy of a refusal in a few words, behind "to help: "."""

    def __new__(
        cls,
        word: str,
        meaning: str = "",
        what_to_do: str = "Nothing.",
        standing: Standing = Standing.PLAIN,
        in_short: str = "see kubectl ullage why",
    ) -> Self:
        """A member is written as its word and what belongs to it."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning, member.what_to_do = meaning, what_to_do
        member.standing, member.in_short = standing, in_short
        return member

    # Waiting and refusals
    WAITING_FOR_DECISION = (
        "WaitingForDecision",
        "The operator has accepted the workload and has not decided about it yet.",
        "Wait a moment. If it lasts, check that an operator runs and leads: look at its /readyz "
        "and at the condition SolverDegraded of the SchedulingPolicy `default`.",
        Standing.QUIET | Standing.MOVING | Standing.UNDECIDED,
        "wait: the types are compared in the next decision",
    )
    WAITING_FOR_GATE = (
        "WaitingForGate",
        "A scheduling gate of another controller, for example Kueue's, keeps pods back. Until it "
        "is gone nothing is reserved, no node is requested, and no time limit runs.",
        "The message names the pod and the gate: ask that controller, with Kueue by `kubectl get "
        "workloads.kueue.x-k8s.io`.",
        Standing.GOOD | Standing.FOREIGN,
    )
    SUSPENDED = (
        "Suspended",
        "spec.suspend is true: the pods are gone and hold no device.",
        "Set spec.suspend to false to let it run again.",
        Standing.GOOD | Standing.LEAVES_DEVICES,
    )
    NO_CAPACITY = (
        "NoCapacity",
        "Every suitable device is taken.",
        "Wait, request less (gpu.count, gpu.share.minPercent), allow more accelerators, or add "
        "nodes; `kubectl ullage why` names the device that comes closest.",
        Standing.PLAIN,
        "wait for a device, ask for less, or add nodes",
    )
    NO_NODE_MATCHES = (
        "NoNodeMatches",
        "No managed node passes the pod's node selector, affinity, taints and resource requests.",
        "Compare the template with the nodes labelled ullage.dev/node=true: labels, taints, and "
        "free CPU and memory.",
        Standing.NEVER_FITS,
        "change the template's node rules or accelerators, or label a node",
    )
    NODE_AFFINITY_CONFLICT = (
        "NodeAffinityConflict",
        "The template's node affinity already pins another node or matches none, so the operator "
        "cannot send the pod to the chosen node.",
        "Remove matchFields and empty terms from the template's required node affinity.",
        Standing.NEVER_FITS,
        "take matchFields and empty terms out of the node affinity",
    )
    HOST_PORT_TAKEN = (
        "HostPortTaken",
        "Containers of the pod take a port of their node (hostPort), and on the nodes that would "
        "do another pod has it.",
        "Wait until that pod ends, leave hostPort out and use a Service, or add nodes.",
        Standing.PLAIN,
        "wait until the port is free, or leave hostPort out",
    )
    VOLUME_NOT_READY = (
        "VolumeNotReady",
        "A PersistentVolumeClaim of the pod can be used on no node now: it does not exist, is not "
        "bound yet, or is for one pod (ReadWriteOncePod) and another uses it.",
        "The message names the claim: `kubectl describe pvc` says what it waits for.",
        Standing.PLAIN,
        "look at the claim: kubectl describe pvc",
    )
    VOLUME_ELSEWHERE = (
        "VolumeElsewhere",
        "The volume of a PersistentVolumeClaim is not reached from the nodes that would do, or "
        "none can be bound or made for it there.",
        "Compare the node affinity of the PersistentVolume, or allowedTopologies of its "
        "StorageClass, with the nodes that have devices; wait for a device on a node that "
        "reaches it.",
        Standing.PLAIN,
        "wait for a device on a node that reaches the volume",
    )
    SPREAD_UNEVEN = (
        "SpreadUneven",
        "A topologySpreadConstraint with whenUnsatisfiable DoNotSchedule would not hold on the "
        "nodes that have room.",
        "The message names the domain and both counts: wait for room in the others, raise "
        "maxSkew, or use ScheduleAnyway. With minDomains and nodeAffinityPolicy Honor no domain "
        "takes more than maxSkew pods: use nodeAffinityPolicy Ignore.",
        Standing.PLAIN,
        "wait for room in the other domains, or raise maxSkew",
    )
    POD_AFFINITY = (
        "PodAffinity",
        "The pod requires others near it (podAffinity), and where devices are free there are none.",
        "Start those pods first, on nodes of a domain with devices, or make the term preferred.",
        Standing.PLAIN,
        "start the pods that it wants near it, or make the term preferred",
    )
    POD_ANTI_AFFINITY = (
        "PodAntiAffinity",
        "The pod excludes others (podAntiAffinity), or they exclude it, and where devices are free "
        "there is one of them.",
        "Wait until it ends, add nodes, or make the term preferred.",
        Standing.PLAIN,
        "wait until the other pod ends, or make the term preferred",
    )
    POD_RULES_TOO_LARGE = (
        "PodRulesTooLarge",
        "The pod has more terms of affinity, spread constraints, tolerations, resources, ports or "
        "claims than are judged of one pod, so no node is known to be right for it.",
        "The message names the field, how many there are and how many are judged: use fewer, or a "
        "label that stands for them.",
        Standing.PLAIN,
        "use fewer terms, ports or claims",
    )
    UNKNOWN_ACCELERATOR = (
        "UnknownAccelerator",
        "An entry of spec.accelerators is neither a DeviceProfile nor a device of any node.",
        "Use a key that `kubectl get gpunodes.ullage.dev -o yaml` shows under devices[].model, "
        "or create the DeviceProfile.",
        Standing.NEVER_FITS,
        "use a key of `kubectl get deviceprofiles.ullage.dev`",
    )
    GANG_TOO_LARGE = (
        "GangTooLarge",
        "Even an empty cluster has fewer suitable devices than all members need together.",
        "Lower spec.replicas or gpu.count, allow more accelerators, or add nodes.",
        Standing.NEVER_FITS,
        "lower spec.replicas or gpu.count, or add nodes",
    )
    MODE_UNSUPPORTED = (
        "ModeUnsupported",
        "No suitable device offers the requested mode; an NVIDIA device offers Fractional only "
        "where MPS serves it.",
        "Use gpu.mode Exclusive, allow other accelerators, or turn MPS on for the node.",
        Standing.NEVER_FITS,
        "use gpu.mode Exclusive, or allow other accelerators",
    )
    CHECKPOINT_UNAVAILABLE = (
        "CheckpointUnavailable",
        "The workload asks for gpu.lane.switching Checkpoint, and no suitable device's node can "
        "suspend programs: it is off by default, and MIG devices do not allow it.",
        "Leave switching out, allow other accelerators, or ask your administrator for chart value "
        "node.checkpoint.enabled.",
        Standing.NEVER_FITS,
        "leave gpu.lane.switching out, or allow other accelerators",
    )
    PREDICTED_SLO_BREACH = (
        "PredictedSLOBreach",
        "The prediction says that sharing the device would slow this workload or a neighbour "
        "beyond its objective.",
        "Raise slo.maxSlowdown, request another share, declare a WorkloadProfile if the workload "
        "uses less than assumed, or wait for a neighbour to end.",
        Standing.OF_THE_OBJECTIVE | Standing.OURS,
        "raise slo.maxSlowdown, ask for another share, declare a WorkloadProfile, or wait",
    )
    MEMORY_WOULD_OVERFLOW = (
        "MemoryWouldOverflow",
        "The requested memory, with the context's overhead, exceeds the device's free memory. If "
        "this holds for every empty device, the workload can never fit.",
        "Lower gpu.memory.limit or allow an accelerator with more memory.",
        Standing.NEVER_FITS,
        "lower gpu.memory.limit or gpu.share.minPercent, or wait",
    )
    CONTEXT_LIMIT = (
        "ContextLimit",
        "The device already serves its maximum number of containers.",
        "Wait for one to end, or allow other devices.",
        Standing.PLAIN,
        "wait for a neighbour to end, or add nodes",
    )
    DEVICES_NOT_COMBINED = (
        "DevicesNotCombined",
        "A container asks for several devices of a kind of which it can have one, such as MIG "
        "devices.",
        "Set gpu.count to 1 and use more members, or allow an accelerator of whole GPUs.",
        Standing.NEVER_FITS,
        "set gpu.count to 1, or allow other accelerators",
    )
    SHARE_TOO_SMALL = (
        "ShareTooSmall",
        "The node cannot enforce a share as small as gpu.share.minPercent: the kernel takes no CPU "
        "quota below 1 % of a core, of which an emulated device may be a part.",
        "Raise gpu.share.minPercent to the percent that the message names, or allow other "
        "accelerators.",
        Standing.NEVER_FITS,
        "raise gpu.share.minPercent, or allow other accelerators",
    )
    PERCENT_LIMIT = (
        "PercentLimit",
        "The shares on the device would add up to more than packing.maxPercentSum.",
        "Lower gpu.share.minPercent, wait, or raise packing.maxPercentSum in the SchedulingPolicy.",
        Standing.NEVER_FITS,
        "lower gpu.share.minPercent, or wait for a neighbour to end",
    )
    TRUST_DOMAIN = (
        "TrustDomain",
        "Workloads of another trust domain share the device.",
        "Give workloads that may share a device the same spec.trustDomain, and have the "
        "administrator grant it to their namespaces. Without one, only workloads of the same "
        "namespace share.",
        Standing.LASTING,
        "wait for an empty device or one of your namespace, allow other accelerators, or run in "
        "the namespace whose devices you share; your administrator can let namespaces share by "
        "spec.trustDomain",
    )
    TRUST_DOMAIN_NOT_GRANTED = (
        "TrustDomainNotGranted",
        "spec.trustDomain names a domain that the administrator did not grant to this namespace, "
        "so the operator does not place the workload.",
        "Leave spec.trustDomain out to share within the namespace, or ask the administrator to "
        "list the namespace under that name in spec.trustDomains of the SchedulingPolicy "
        "`default`.",
        Standing.NO_NODE_HELPS,
        "leave trustDomain out to share within your namespace, or ask your administrator to list "
        "it in spec.trustDomains of the SchedulingPolicy",
    )
    TENANT_NOT_ALLOWED = (
        "TenantNotAllowed",
        "spec.tenant names a tenant that the administrator opened to other namespaces, so the "
        "operator does not place the workload.",
        "Name a tenant of this namespace, or ask the administrator to list the namespace under "
        "that name in spec.tenants of the SchedulingPolicy `default`.",
        Standing.NO_NODE_HELPS,
        "name another tenant, or ask your administrator to list the namespace under it in "
        "spec.tenants of the SchedulingPolicy",
    )
    QUOTA_EXCEEDED = (
        "QuotaExceeded",
        "The workload's tenant holds its quota of every accelerator type that the workload may "
        "use, and its cohort has too little to borrow. The message has what it holds, its nominal "
        "quota and what it can borrow, in percent of devices.",
        "Wait until work of the tenant or its cohort ends, ask for a smaller share or another "
        "type, or ask the administrator to raise spec.tenants[].quota of the SchedulingPolicy "
        "`default`. With reclaimWithinCohort, what others borrowed comes back at once from work "
        "that saves its state.",
        Standing.NO_NODE_HELPS,
        "wait until work of the tenant or its cohort ends, ask for less, or ask your administrator "
        "to raise spec.tenants[].quota of the SchedulingPolicy",
    )
    GANG_INCOMPLETE = (
        "GangIncomplete",
        "There is room for some members but not for all, and a gang starts whole or not at all.",
        "Wait, or lower spec.replicas; the message counts the members that fit.",
    )
    PODS_MISSING = (
        "PodsMissing",
        "Pods share the label ullage.dev/gang or a PodGroup, and fewer exist than "
        "ullage.dev/gang-size or the PodGroup's minCount says. Pods of another run or revision of "
        "the controller do not count.",
        "Create the others, or correct that number; the message counts. A Deployment in a rolling "
        "update creates them together with spec.strategy.type Recreate.",
    )
    GANG_COMPLETE = (
        "GangComplete",
        "More pods share the label ullage.dev/gang than ullage.dev/gang-size says; the youngest of"
        " them wait until others end.",
        "Nothing, if they are spares. Otherwise correct ullage.dev/gang-size in the template.",
    )
    RESERVATION_REFUSED = (
        "ReservationRefused",
        "The node refused a slice that the operator chose; the operator looks for another device.",
        "Nothing at first. If it repeats, the message has the node's own reason.",
        Standing.UNDECIDED,
        "wait: the device is tried again later",
    )
    RESERVATION_EXPIRED = (
        "ReservationExpired",
        "The node did not acknowledge the slices of the gang in time, so the operator removed "
        "them.",
        "Nothing at first. If it repeats, look at the node agent's pod and the heartbeat of the "
        "GPUNode.",
        Standing.UNDECIDED,
    )
    NODE_LEAVES = (
        "NodeLeaves",
        "The node is being drained, retired or taken back by its owner, so it takes nothing new. "
        "Nothing is wrong with it.",
        "Wait for another node. `kubectl ullage drain NODE --undo` ends a drain.",
        Standing.UNDECIDED | Standing.OF_THE_NODE,
        "wait for another node, or end the drain",
    )
    NODE_UNHEALTHY = (
        "NodeUnhealthy",
        "The node is not ready, or its agent has not reported for three heartbeats.",
        "Look at the Node and at the node agent's pod on it.",
        Standing.UNDECIDED | Standing.TAKEN | Standing.SUDDEN | Standing.OF_THE_NODE,
        "check the node and its agent",
    )
    DEVICE_UNHEALTHY = (
        "DeviceUnhealthy",
        "The device reports errors and gets no work until it has been without errors for a while.",
        "Look at devices[].health and the conditions of the GPUNode; the device returns by itself "
        "once the fault clears.",
        Standing.PLAIN,
        "check the device, or allow other accelerators",
    )
    CREATE_REFUSED = (
        "CreateRefused",
        "The API server refused to create a pod, Deployment or Service; the message is its own.",
        "Correct what the message names: the template, a quota, or an admission policy.",
        Standing.FOREIGN | Standing.OF_THE_API,
    )
    NAME_CONFLICT = (
        "NameConflict",
        "An object that Ullage did not create has a name that this workload needs; the operator "
        "did not overwrite it.",
        "Rename the workload, or remove the object that the message names.",
        Standing.FOREIGN | Standing.OF_THE_API,
    )
    NO_PORT = (
        "NoPort",
        "The first container of the template names no port, so there is nothing to serve.",
        "Add containers[0].ports with a containerPort.",
    )
    NO_ROUTER_IMAGE = (
        "NoRouterImage",
        "The service asks for a router (spec.batching), and the operator knows no image for it; "
        "requests go to the replicas directly.",
        "Set operator.routerImage in the chart, or take spec.batching out.",
    )
    ROUTER_STARTING = (
        "RouterStarting",
        "No pod of the router is ready yet. A Service that led to the replicas still does.",
        "Nothing; it takes seconds. If it lasts, look at the pods of the Deployment that the "
        "message names.",
    )
    ROUTER_FAILS = (
        "RouterFails",
        "The router's container does not run; the message has the last lines of its log, or "
        "kubelet's reason.",
        "Do what the message asks for. A router needs limits.queue + 1,256 open files: where nodes "
        "allow fewer, lower batching.limits.queue or raise the limit of their container runtime.",
    )
    ROUTER_SERVES = "RouterServes", "The router takes requests."
    ROUTER_DRAINS = (
        "RouterDrains",
        "The InferenceDeployment is deleted: its router answers what it holds, then replicas go.",
        "Nothing; after two minutes the rest goes without it.",
    )
    LEAD_ENDS = (
        "LeadEnds",
        "The TrainingJob in tiers is deleted: its members save and end, then the lead goes.",
        "Nothing; after two minutes the rest goes in any order.",
    )
    TRIALS_STOP = (
        "TrialsStop",
        "The TuningJob is deleted: its trials stop, and results that exist are counted first.",
        "Nothing; after a minute the rest goes in any order.",
    )
    ENDS_UNORDERED = (
        "EndsUnordered",
        "The operator brings at most 1,000 objects of a kind, and 200 of them in a namespace, to "
        "an end in order; this one is beyond. Deleted, it and what it made go in any order; a "
        "CapacityPool beyond gets no prices.",
        "Delete objects that are not needed, or use more namespaces; `kubectl ullage doctor` "
        "counts them.",
    )
    RESIZE_PENDING = (
        "ResizePending",
        "The work runs with a share or amount of memory that differs from spec.gpu; a running "
        "container is never resized.",
        "Set sharing.resizable to Restart so that the operator restarts it (a job needs "
        "spec.checkpoint), restart it yourself, or wait if the message says that room is missing.",
    )
    RESIZING = (
        "Resizing",
        "The work restarts: spec.gpu requests another share or amount of memory and "
        "sharing.resizable is Restart, or an elastic gang changes its number of members.",
        "Nothing: a job resumes from its checkpoint; replicas leave once their replacement serves.",
        Standing.OURS,
    )
    NO_ROOM_TO_SURGE = (
        "NoRoomToSurge",
        "The rolling update waits: there is no free slice for one more replica, and stopping the "
        "only one would drop requests.",
        "Free a slice, add a second replica, or wait.",
        Standing.UNDECIDED,
    )
    HELD_FOR_ANOTHER = (
        "HeldForAnother",
        "The operator holds room for a workload that has waited longer than the skip limit.",
        "Wait; raise gangSkipLimit in the SchedulingPolicy to hold room later.",
        Standing.QUIET,
        "wait until the older one runs",
    )
    ENFORCEMENT_MISSING = (
        "EnforcementMissing",
        "A workload on the device runs without verified limits, so no workload may join it.",
        "Wait until its limits are verified or it is evicted; `kubectl ullage top` shows which.",
        Standing.PLAIN,
        "wait until its limits are verified or it has gone",
    )
    SLO_INFEASIBLE = (
        "SLOInfeasible",
        "The workload cannot meet its objective even alone on a whole device of this kind; or, "
        "under MinCostSLO, it cannot meet its deadline. The message says which.",
        "Raise the objective above the time alone in the message, or allow a faster accelerator. "
        "For a deadline: move it, or supply what the message says is missing.",
        Standing.OF_THE_OBJECTIVE,
        "raise the objective above the solo time, or allow other accelerators",
    )
    LOAD_INFEASIBLE = (
        "LoadInfeasible",
        "The offered load alone breaks the objective: the cause is the queue, not a neighbour.",
        "Add replicas, lower spec.load, or raise the objective.",
        Standing.OF_THE_OBJECTIVE,
        "add replicas, lower spec.load, or raise the objective",
    )
    NEED_PROFILE = (
        "NeedProfile",
        "Too few co-locations like this one were observed to certify the risk budget (the message "
        "counts them); or work with a latency objective runs alone until its latency is measured.",
        "Wait for a probation or for the measurement, declare or import profiles of the class, or "
        "use gpu.mode Exclusive.",
        Standing.OF_THE_OBJECTIVE,
        "wait until it is tried or measured, declare or import a WorkloadProfile, or use gpu.mode "
        "Exclusive",
    )
    NOT_WORTH_SHARING = (
        "NotWorthSharing",
        "Together the workloads would do less work than without the newcomer, or less than one "
        "after the other.",
        "Wait for another device, or lower risk.minCombinedPercent in the SchedulingPolicy.",
        Standing.PLAIN,
        "wait for another device, or ask for another share",
    )
    # Lifecycle of a workload
    PLACED = (
        "Placed",
        "Every member has its slices.",
        "Nothing; status.placement lists them.",
        Standing.GOOD | Standing.UNDECIDED,
    )
    RESERVING = (
        "Reserving",
        "The operator has chosen the slices, and their nodes are reserving them.",
        "Nothing; it takes seconds.",
        Standing.MOVING,
    )
    STARTING = (
        "Starting",
        "All slices are reserved; the pods are being bound and started.",
        "Nothing. If it lasts, look at the pods' events: images are pulled in this phase.",
        Standing.MOVING,
    )
    RUNNING = "Running", "Every member runs."
    LOST_RACE = (
        "LostRace",
        "kubelet did not admit the pod because another pod took the room first. The operator "
        "creates the pod again and counts no failure.",
        "Nothing. If it repeats, look for pods on the node that take resources without the "
        "scheduler.",
    )
    NOT_ADOPTED = (
        "NotAdopted",
        "The pod has a label of ullage.dev that asks for a device, and was created where no"
        " admission policy of Ullage prepared it, or while its webhook did not answer; it runs"
        " without a device of ours.",
        "Switch admissionPolicy.adoption on in the chart; kubectl ullage doctor says what prepares"
        " pods and whether it answers. Then create the pod again.",
    )
    FOREIGN_POD = (
        "ForeignPod",
        "A pod names this workload as its owner, but the operator did not create it: its name, "
        "owner or API group differs from what the operator sets. The operator leaves it alone, "
        "gives it no device and does not count it.",
        "Find out who created the pod and delete it. Keep the chart's admission policy on "
        "(admissionPolicy.enabled): it refuses such pods.",
    )
    STUCK_UNSCHEDULED = (
        "StuckUnscheduled",
        "The operator released the pod to its node, but kube-scheduler did not bind it in time; "
        "the operator places it again.",
        "Read kube-scheduler's message, which this message repeats.",
        Standing.LEAVES_NODE,
    )
    STUCK_NOT_STARTED = (
        "StuckNotStarted",
        "The pod is bound, but its container did not start in time; the operator places it again.",
        "Read the pod's events and the slice's reason in the GPUNode.",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "The image of a container could not be pulled for a minute. The pod goes, and its share "
        "with it; the next try waits a minute, then twice as long each time, five minutes at most. "
        "A bare pod stays: it gives its share back, and gets one on its node again once kubelet "
        "has the image.",
        "The message has what the registry answered. Mend the image's name or tag, or the pull "
        "secret, and create the workload again.",
    )
    PREEMPTED = (
        "Preempted",
        "A workload of higher priority, or one that is owed more time, needed the devices. This "
        "workload was asked to checkpoint and waits for its turn.",
        "Wait, or raise its priority class or its weight.",
        Standing.OURS | Standing.PREEMPTION | Standing.TAKEN | Standing.LEAVES_DEVICES,
    )
    QUOTA_RECLAIMED = (
        "QuotaReclaimed",
        "The workload's tenant had borrowed quota, and another tenant of the cohort reclaimed its "
        "nominal quota. This workload was asked to checkpoint and starts again when the quota has "
        "room.",
        "Wait, stay within the nominal quota of your tenant, or ask the administrator to raise it "
        "(spec.tenants[].quota of the SchedulingPolicy).",
        Standing.OURS | Standing.PREEMPTION | Standing.TAKEN | Standing.LEAVES_DEVICES,
    )
    EVICTION_NOTICE = (
        "EvictionNotice",
        "The provider or the administrator will take the machine away. The node accepts no new "
        "work, and running work moves in time.",
        "Nothing. The message names the node and the time; docs/notices.md gives the order in "
        "which work leaves.",
    )
    SPOT_INTERRUPTED = (
        "SpotInterrupted",
        "A pod is on a machine that the provider takes back, or on a node that an autoscaler "
        "removes. A job saves its work and restarts elsewhere, which counts as no failure. A "
        "replica is replaced before it goes, if there is room.",
        "Nothing. If work is lost, set spec.checkpoint and save on SIGTERM within the notice, "
        "which is 30 seconds to two minutes with most providers.",
        Standing.OURS | Standing.TAKEN,
    )
    MEMBER_LOST = (
        "MemberLost",
        "A member is gone (node lost, evicted, deleted). The gang restarts, which counts as no "
        "failure.",
        "Nothing; the message names the member.",
        Standing.TAKEN | Standing.SUDDEN,
    )
    SIZED = (
        "Sized",
        "The elastic gang started with as many members as there was room for.",
        "Nothing; it grows when there is lasting room.",
    )
    SHRUNK = (
        "Shrunk",
        "The elastic gang continues with fewer members, from its checkpoint or in place: it lost a "
        "member or a node, found less room, or gave devices to work of higher priority.",
        "Nothing; it grows again when there is lasting room. Add nodes, or raise its priority "
        "class if other work took its devices.",
    )
    GROWN = (
        "Grown",
        "The elastic gang continues with more members, from its checkpoint or in place, because "
        "there was lasting room.",
        "Nothing; lower elasticity.maxReplicas to keep it smaller.",
    )
    RESTART_LIMIT = (
        "RestartLimit",
        "A member failed, and no restarts of failurePolicy.maxRestarts are left.",
        "Read the log of the failed pod, correct the cause and create the job again.",
    )
    EXIT_CODE = (
        "ExitCode",
        "A member ended with an exit code other than 0. The message has the code, kubelet's word "
        "for it, and the last line that the program left.",
        "Read the log of the failed pod. OOMKilled: raise the container's memory limit. A code "
        "that another start may cure: add it to failurePolicy.retryExitCodes.",
        Standing.SUDDEN | Standing.LEAVES_DEVICES,
    )
    COMPLETED = (
        "Completed",
        "The work finished without an error.",
        "Nothing.",
        Standing.GOOD,
    )
    WITHIN_OBJECTIVE = "WithinObjective", "The observed slowdown is within the objective."
    ABOVE_OBJECTIVE = (
        "AboveObjective",
        "The observed slowdown is above the objective.",
        "Look at the neighbours with `kubectl ullage top`. A WorkloadProfile with the real use "
        "lets the next decision avoid this.",
    )
    INVALID_OBJECT = (
        "InvalidObject",
        "The newest version of the object is unusable; the last good one stays in force.",
        "Correct the field that the message names.",
        Standing.FOREIGN,
    )
    DECISION_FAILED = (
        "DecisionFailed",
        "The operator cannot decide about this object. Its pods and devices stay as they are, and "
        "decisions about all other objects continue.",
        "Correct the field that the message names. If none is wrong, report the fault with the "
        "object's YAML and the operator's log line `set aside`.",
    )
    SOLVER_TIMEOUT = (
        "SolverTimeout",
        "A decision took longer than its time limit; the last good plan stays in force.",
        "If it repeats, look at ullage_decision_seconds and give the operator more CPU.",
    )
    SOLVER_CRASHED = (
        "SolverCrashed",
        "The decision process ended unexpectedly; the last good plan stays in force.",
        "Read the operator's log, and raise its memory limit if it was killed for memory.",
    )
    WRITE_REFUSED = (
        "WriteRefused",
        "The API server keeps refusing a write of the operator or the agent.",
        "Read the message. The usual cause is a missing permission, or CRDs older than Ullage: "
        "upgrade the chart ullage-crds.",
        Standing.FOREIGN | Standing.OF_THE_API,
    )
    # Jobs in tiers
    WAITS_FOR_LEAD = (
        "WaitsForLead",
        "The members have their devices and wait for the coordinator's pod, which leads them and "
        "holds the copy of their state.",
        "Nothing; it takes seconds. If it lasts, the message says what that pod waits for: usually "
        "memory for twice elasticity.backup.stateBytes on an on-demand or reserved machine.",
    )
    LEAD_LOST = (
        "LeadLost",
        "The coordinator's pod of a job in tiers is gone, and with it the copy of the state. Every "
        "member restarts from the last checkpoint.",
        "Nothing if its machine was lost. If the pod failed by itself, the message has its exit "
        "code: read its log, and check that elasticity.backup.stateBytes is large enough.",
    )
    STAGE_CHANGED = (
        "StageChanged",
        "The ratio of transient to reliable members changed, so other members own the state or "
        "compute now.",
        "Nothing; set elasticity.tiers to fix the stage.",
    )
    ROLLED_BACK = (
        "RolledBack",
        "Members that owned state were lost without notice. The others went back to the last step "
        "of which the coordinator had a whole copy, and repeat the steps since.",
        "Nothing. If it is frequent, push more often (elasticity.backup) or use more reliable "
        "members.",
    )
    COPY_HELD = "CopyHeld", "The coordinator holds a whole copy of the state."
    RELIABLE_OWN = "ReliableOwn", "The reliable members own all of the state, so no copy is needed."
    NO_COPY = (
        "NoCopy",
        "No whole copy of the state is in memory: after a loss now, the job restarts from a "
        "checkpoint.",
        "Nothing at the beginning. If it lasts, members cannot push fast enough: raise "
        "elasticity.backup.everySteps and maxLagSteps.",
    )
    NOTICE_LONG_ENOUGH = (
        "NoticeLongEnough",
        "After a notice, members can hand over their state in half of its time.",
    )
    NOTICE_TOO_SHORT = (
        "NoticeTooShort",
        "Half of the shortest notice of the job's pools is less than a hand-over takes. With "
        "elasticity.onNotice Flush the job does not start. A running job continues, and treats "
        "such a notice as a loss without notice.",
        "Lower elasticity.backup.maxLagSteps, state in dirtyBytesPerStep what a step really "
        "changes, exclude pools with a short notice, or set onNotice: Checkpoint.",
        Standing.FOREIGN,
    )
    # Taking turns
    WAITS_FOR_FEWER_NODES = (
        "WaitsForFewerNodes",
        "There is room for the gang, but on more nodes than it needs, and the profile of its class "
        "says that it is slower there. It waits a while for room on fewer.",
        "Wait; the message says how long. Or correct acrossNodes in the WorkloadProfile.",
    )
    WAITS_FOR_ROUND = (
        "WaitsForRound",
        "Other jobs are owed more time on its devices; this job gets its turn in a later round.",
        "Wait. The message says how much time the job is promised and owed, and which jobs are "
        "ahead. Raise its weight or that of its tenant, or allow more accelerators.",
        Standing.QUIET,
    )
    NO_FEASIBLE_ACCELERATOR = (
        "NoFeasibleAccelerator",
        "No single accelerator type is feasible: none can run all members (a turn never mixes "
        "types), or none keeps the bounds of spec.cost. The message says which.",
        "Lower spec.replicas or gpu.count, allow more accelerators, add nodes, loosen spec.cost, "
        "or use the objective FIFO.",
    )
    ROUND_SCHEDULED = (
        "RoundScheduled",
        "The job has its turn, with devices of the type that the objective assigns to it.",
        "Nothing; it continues in later rounds until another job is owed more.",
        Standing.GOOD,
    )
    ESTIMATE_USED = (
        "EstimateUsed",
        "The job's speed is not known on every type, so time slicing uses an estimate.",
        "Nothing: a measurement replaces it. Declare stepsPerSecond in a WorkloadProfile to get "
        "the right time from the start.",
    )
    # Choice of an accelerator
    ESTIMATED = (
        "Estimated",
        "Ullage estimates speeds on device types where the class never ran.",
        "Nothing. One run on such a type replaces the estimate with a measurement.",
    )
    INSTANCE_SELECTED = (
        "InstanceSelected",
        "One accelerator serves spec.cost best; the message has time and cost of the first two.",
        "Nothing, or name it in spec.accelerators.",
    )
    ADVICE_ONLY = (
        "AdviceOnly",
        "There is a best accelerator, but its data is incomplete; its row says what is missing.",
        "Supply the missing data: a measured step, or the memory that the job needs.",
    )
    CAPACITY_DECIDES = "CapacityDecides", "The job has a deadline, which decides its capacity."
    RECOMMENDED = (
        "Recommended",
        "Of the available accelerators, this one serves spec.cost best.",
        "Nothing.",
        Standing.RANKED,
    )
    FEASIBLE = (
        "Feasible",
        "The job runs there within its bounds, but another accelerator is better or as good.",
        "Nothing.",
        Standing.RANKED,
    )
    BETTER_CHOICE = (
        "BetterChoice",
        "Another accelerator would save much of what is left of the job's time or cost. A job with "
        "spec.checkpoint starts again there once there is room and no one waits for it.",
        "Nothing, or set spec.checkpoint; the policy's spec.reconsider says how much is much.",
        Standing.GOOD | Standing.OURS,
    )
    MEMORY_TOO_LARGE = (
        "MemoryTooLarge",
        "The job needs more memory than a device of the type has, so the type is never "
        "recommended.",
        "Make the batch smaller, or use a type with more memory.",
        Standing.RULED_OUT,
        "make the batch smaller, or allow types with more memory",
    )
    DID_NOT_RUN = (
        "DidNotRun",
        "The job ran on the type and completed no step.",
        "Look at its pods of that time for the cause.",
        Standing.RULED_OUT,
    )
    NO_ESTIMATE = (
        "NoEstimate",
        "The speed on the type is unknown, and no measurement allows an estimate.",
        "Run the class once on any type, declare stepsPerSecond in a WorkloadProfile, or give the "
        "DeviceProfiles peakFlops and memoryBytesPerSecond.",
        Standing.NOT_MEASURED,
    )
    FAMILY_NOT_MEASURED = (
        "FamilyNotMeasured",
        "No class of the job's family was measured on the type. Other families say too little to "
        "estimate from: by them a step is off by half or more, as by the average ratio.",
        "Run a class of the family once on the type, import a trace of the class, or declare "
        "stepsPerSecond in a WorkloadProfile.",
        Standing.NOT_MEASURED,
    )
    NOT_AVAILABLE = (
        "NotAvailable",
        "The cluster has no healthy devices of the type in the number that the job needs.",
        "Wait, or add nodes.",
    )
    PRICE_MISSING = (
        "PriceMissing",
        "A choice by cost needs a price, and the type has none.",
        "Set spec.pricePerHour of its DeviceProfile, or create a CapacityPool of the type. On the "
        "SchedulingPolicy: time slicing follows MaxMinFairness until then.",
        Standing.PLAIN,
        "set pricePerHour of the DeviceProfile, or create a CapacityPool",
    )
    COST_SETTLED = (
        "CostSettled",
        "The job has ended; the message has its cost and the cost of the same time on on-demand.",
        "Nothing; `kubectl ullage cost` shows all jobs, status.spend this one.",
    )
    OVER_COST = (
        "OverCost",
        "The training would cost more than spec.cost.maxCost there.",
        "Raise maxCost, or take another type.",
        Standing.RULED_OUT,
        "raise spec.cost.maxCost, or allow other accelerators",
    )
    OVER_TIME = (
        "OverTime",
        "The training would take longer than spec.cost.maxTime there.",
        "Raise maxTime, or take another type.",
        Standing.RULED_OUT,
        "raise spec.cost.maxTime, or allow other accelerators",
    )
    MEMORY_UNKNOWN = (
        "MemoryUnknown",
        "The job's device memory need is unknown, so the type is advice only.",
        "Set gpu.memory.limit, declare peakMemoryBytes in a WorkloadProfile, or run the job once.",
    )
    NOT_ANCHORED = (
        "NotAnchored",
        "The speed is estimated from other classes or peak rates alone, so the type is advice "
        "only.",
        "Run the class once on any type.",
    )
    INPUT_BOUND = (
        "InputBound",
        "The job waits for its input, so a faster device may not help.",
        "Speed up its input first; `kubectl ullage top` shows how busy its device is.",
    )
    COUNT_CHANGES_BATCH = (
        "CountChangesBatch",
        "Another number of devices changes the batch of a step, and so how the training converges.",
        "Keep the number, or choose the batch again.",
    )
    # Pools of capacity
    PRICE_READ = (
        "PriceRead",
        "The pool's price source answered recently, and its price is accepted.",
    )
    NEVER_PRICED = (
        "NeverPriced",
        "The pool's price source has returned no price yet, so no job chooses the pool by cost.",
        "For a new pool, wait a minute. Otherwise check spec.priceSource and the message.",
    )
    PRICE_STALE = (
        "PriceStale",
        "The last price is more than six hours old; it stays in force until a new one arrives.",
        "Check that the writer of the price still runs.",
    )
    PRICE_OUTLIER = (
        "PriceOutlier",
        "The source returns more than three times the accepted price. Price feeds can show such "
        "values for weeks, so the previous price stays in force.",
        "If the new price is right, delete the pool and create it again, or give it another "
        "priceSource. Otherwise nothing.",
    )
    PRICE_UNREADABLE = (
        "PriceUnreadable",
        "The price source returned no price, or not the requested one; the message says what is "
        "wrong. The previous price stays in force.",
        "Correct spec.priceSource, or the object that it names.",
    )
    PRICE_UNREACHABLE = (
        "PriceUnreachable",
        "The price source does not answer. The operator retries with increasing delays, and the "
        "previous price stays in force.",
        "Check what the message names: the address, the network policy and the rights of the "
        "operator's pod.",
    )
    HAZARD_LEARNED = (
        "HazardLearned",
        "The pool's hazard rests on observations more than on the prior.",
    )
    HAZARD_FROM_PRIOR = (
        "HazardFromPrior",
        "The pool has few observations, so its hazard rests mostly on the prior.",
        "Nothing; Ullage learns the hazard while the pool has nodes. spec.prior.advisorBand "
        "improves the prior.",
    )
    # Spot, on-demand and deadlines
    POOL_ACQUIRED = (
        "PoolAcquired",
        "Ullage chose pools for the job by the cost of an hour of its work, losses included.",
        "Nothing; `kubectl ullage why` shows the next best pool and both prices.",
    )
    POOL_RELEASED = "PoolReleased", "The job left a pool: its work is cheaper without it."
    OFFER_SWITCHED = (
        "OfferSwitched",
        "The job moves to other capacity, where it saves more money or time than the restart "
        "costs. It resumes from its checkpoint, and the restart counts as no failure.",
        "Nothing. Raise minSavingsPercent or decisionPeriod of the SchedulingPolicy to move less "
        "often.",
        Standing.OURS,
    )
    GAIN_TOO_SMALL = (
        "GainTooSmall",
        "No other pool is better by enough to pay for a move, so the job stays.",
        "Nothing.",
        Standing.STAYS,
    )
    MINIMUM_HOLD = (
        "MinimumHold",
        "Another pool is better, but the job chose its present pool too recently.",
        "Nothing; spot.minHold of the SchedulingPolicy sets the time.",
        Standing.STAYS,
    )
    LIMITS_SHRANK = (
        "LimitsShrank",
        "The job holds more than its limits now allow: the budget shrank, or a pool is gone.",
        "Raise spec.cost.budgetPerHour, or allow other capacity.",
    )
    BUDGET_TOO_SMALL = (
        "BudgetTooSmall",
        "No pool takes all members within spec.cost.budgetPerHour at present prices.",
        "Raise budgetPerHour, lower replicas, or wait for lower prices.",
        Standing.OURS | Standing.OWNER_ACTS,
    )
    NO_POOL = (
        "NoPool",
        "No CapacityPool fits the job's accelerator, node labels, devices per node and allowed "
        "capacity types; or its chosen pools were deleted, and then running work continues.",
        "Read the message; allow more accelerators or spot, or create a pool.",
        Standing.OWNER_ACTS,
    )
    SPOT_AVAILABLE = "SpotAvailable", "The deadline leaves room for spot, and spot is available."
    SPOT_RUNNING = (
        "SpotRunning",
        "The job runs on spot until the provider takes it back.",
        "Nothing.",
        Standing.STAYS,
    )
    FALLBACK_TO_ON_DEMAND = (
        "FallbackToOnDemand",
        "Progress is behind the deadline schedule and no spot is available, so the job runs on "
        "on-demand until it has caught up.",
        "Nothing. A later deadline or a smaller job would need less on-demand.",
        Standing.TURNS_FROM_SPOT,
    )
    ON_DEMAND_HELD = (
        "OnDemandHeld",
        "The job keeps its on-demand capacity: moving to spot now would cost another restart, "
        "which its progress does not pay for yet.",
        "Nothing.",
        Standing.STAYS,
    )
    DEADLINE_SAFETY_NET = (
        "DeadlineSafetyNet",
        "The remaining time is just enough, so the job stays on on-demand until it is done.",
        "Nothing.",
        Standing.TURNS_FROM_SPOT,
    )
    WAITING_FOR_SPOT = (
        "WaitingForSpot",
        "Progress is ahead of the deadline schedule and no spot is available, so the job waits for "
        "spot; waiting costs nothing.",
        "Nothing; the job takes on-demand in time. Set spec.cost.allowSpot to false not to wait.",
    )
    ON_DEMAND_MISSING = (
        "OnDemandMissing",
        "The deadline requires on-demand capacity and none is available: no pool, no price, or "
        "above the budget. The job may miss its deadline.",
        "Create an OnDemand CapacityPool that suits the job, or raise budgetPerHour.",
        Standing.OURS | Standing.OWNER_ACTS,
    )
    DEADLINE_INFEASIBLE = (
        "DeadlineInfeasible",
        "The work and two restarts take longer than the deadline allows, so the job does not "
        "start.",
        "Set a later deadline, run on more or faster devices, or correct estimatedWork.",
        Standing.OWNER_ACTS | Standing.NEVER_STARTS,
    )
    DEADLINE_KEPT = (
        "DeadlineKept",
        "At present progress the job meets its deadline, restarts included.",
    )
    DEADLINE_AT_RISK = (
        "DeadlineAtRisk",
        "The remaining work and a restart take longer than the remaining time.",
        "Read the message. A later deadline, or more on-demand capacity, would help.",
    )
    WORK_UNKNOWN = (
        "WorkUnknown",
        "The length of the work is unknown, so Ullage cannot plan the deadline: the job states no "
        "estimate, and the speed of its class is neither measured nor declared.",
        "Set spec.cost.estimatedWork, or declare stepsPerSecond in a WorkloadProfile.",
        Standing.OWNER_ACTS | Standing.NEVER_STARTS,
    )
    WORK_DONE = "WorkDone", "All work is done; the job holds no capacity."
    POOL_ORDERED = (
        "PoolOrdered",
        "The chosen pool has no free node. The operator requests one with a placeholder pod, and "
        "the cluster's autoscaler buys the machine.",
        "Wait a few minutes. If no node arrives, read the Events of the placeholder pod and the "
        "autoscaler's log.",
    )
    POOL_ENDS = (
        "PoolEnds",
        "The CapacityPool is deleted: nothing more is requested of it, and it stays until the "
        "instances that were requested are ready or given up.",
        "Nothing; after 15 minutes it goes without them.",
    )
    LAUNCH_FAILED = (
        "LaunchFailed",
        "A requested node did not arrive in time; the pool counts a launch failure.",
        "Read the message and the autoscaler's log. Usual causes: quota, capacity of the zone, or "
        "labels of the pool that no node group has.",
    )
    # Scaling of services
    LOAD_UNKNOWN = (
        "LoadUnknown",
        "No node reports how many requests the service gets, so its replicas stay as they are.",
        "Wait until a replica is ready and has answered requests. If it lasts, look for the Event "
        "LatencyUnmeasured of the pods: the histogram that spec.slo.metric names must be readable "
        "and count requests.",
    )
    STEADY = (
        "Steady",
        "The number of replicas is what the objective needs at the load to come, or fewer have not "
        "been enough for two minutes yet.",
        "Nothing.",
        Standing.GOOD,
    )
    SCALED_UP = (
        "ScaledUp",
        "The objective needs more replicas at the load to come.",
        "Nothing. Replicas that find no device wait, and `kubectl ullage why` says for what.",
        Standing.GOOD | Standing.SCALES,
    )
    SCALED_DOWN = (
        "ScaledDown",
        "Fewer replicas were enough for two minutes.",
        "Nothing.",
        Standing.GOOD | Standing.SCALES,
    )
    AT_MAXIMUM = (
        "AtMaximum",
        "The objective needs more replicas than scaling.maxReplicas allows.",
        "Raise scaling.maxReplicas, give replicas a larger share, or loosen spec.slo.",
    )
    SCALED_TO_ZERO = (
        "ScaledToZero",
        "No request came for scaling.idleSeconds, or for longer if one came soon after the last "
        "time. The service has no replica; its router holds the next request while one starts.",
        "Nothing; the next request wakes it. To keep a replica, set scaling.minReplicas and "
        "replicas to 1.",
        Standing.GOOD | Standing.SCALES,
    )
    WOKEN = (
        "Woken",
        "A replica starts, because a request waits or the router does not report whether one does.",
        "Nothing. `kubectl ullage why` shows what the replica waits for.",
        Standing.GOOD | Standing.SCALES,
    )
    OUT_OF_REACH = (
        "OutOfReach",
        "Requests that do not wait take longer than the objective allows, so more replicas cannot "
        "keep it. There are as many as keep waiting short.",
        "Give replicas a larger share or a faster accelerator, or loosen spec.slo. With "
        "sharing.resizable: Restart the operator chooses the accelerator, and with a range in "
        "gpu.share and gpu.memory.limit the share, too.",
    )
    SHARE_CHOSEN = (
        "ShareChosen",
        "The operator chose another share of a device or another accelerator for the replicas: it "
        "costs less at the largest load of the last twenty minutes, or more replicas of the "
        "present kind cannot keep the objective. Replicas are replaced one after the other.",
        "Nothing. To keep both, set sharing.resizable to Never; to keep the share, set minPercent "
        "and maxPercent of gpu.share to the same number; to keep the accelerator, name it alone in "
        "spec.accelerators.",
    )
    PEAK_AHEAD = (
        "PeakAhead",
        "The load of the service beside the job is forecast to grow, and the service needs the "
        "job's share to keep its objective. The job restarts from its checkpoint: with a smaller "
        "share if sharing.resizable allows one that is small enough, else wherever there is room.",
        "Nothing: the job returns when the forecast leaves room, to this device after five minutes "
        "at the earliest. If it must not give way, give it a higher priority than the service, or "
        "an objective.",
        Standing.OURS | Standing.TAKEN | Standing.BLAMES_DEVICE,
    )
    # Trials of a search
    TRIALS_RUN = "TrialsRun", "Trials of the search run or wait for devices."
    SEARCH_ENDED = (
        "SearchEnded",
        "Every trial has ended; status.bestTrial holds the best parameters.",
    )
    NO_RESULT = (
        "NoResult",
        "Every trial has ended, and none has a value.",
        "See status.results for the reasons, and the logs of the trials. " + _REPORT,
    )
    WAITS_FOR_SUGGESTIONS = (
        "WaitsForSuggestions",
        "Every suggested trial has ended, and the external client may suggest more.",
        "Nothing while the client runs; afterwards, set spec.suggestionsEnded to true.",
    )
    SUGGESTION_REFUSED = (
        "SuggestionRefused",
        "A suggested trial lacks a parameter, has one outside the search space, or would run "
        "beyond algorithm.maxEpochs.",
        "Let the client choose parameters from spec.searchSpace, under a new trial number.",
    )
    TOO_MANY_TRIALS_FAILED = (
        "TooManyTrialsFailed",
        "More trials failed than spec.maxFailedTrials allows; the running ones were stopped.",
        "Look at the logs of the failed trials, fix the program, and create the TuningJob again.",
    )
    TRIAL_STARTED = "TrialStarted", "The TrainingJob of a trial was created."
    TRIAL_RESIZED = (
        "TrialResized",
        "A trial gets more or less of a device, because its group is expected to end sooner, or "
        "because no device had room for it; a running one resumes from its checkpoint.",
        "Nothing. Leave out spec.resources for trials that never change.",
    )
    TRIAL_STOPPED = (
        "TrialStopped",
        "The trial does not go on: others of its group were better, or the search has ended.",
    )
    TRIAL_FAILED = (
        "TrialFailed",
        "The TrainingJob of a trial failed; the trial has no value and does not go on.",
        "Look at the logs of the trial.",
    )
    GROUP_FINISHED = (
        "GroupFinished",
        "Every trial of a group has ended, and the best of them go on.",
    )
    MAKESPAN_ESTIMATED = (
        "MakespanEstimated",
        "The first trial has ended; status.groups shows when groups will have ended.",
    )
    NOTHING_MEASURED = (
        "NothingMeasured",
        "No trial has ended yet, so it is unknown how long trials take.",
    )
    NO_TRIAL_RUNS = (
        "NoTrialRuns",
        "Trials are due, and for ten minutes none has run, started or ended. The message names "
        "what their TrainingJobs wait for.",
        "Look up the named reasons; `kubectl ullage why` explains each TrainingJob.",
    )
    NO_DEVICE_FITS = (
        "NoDeviceFits",
        "Even an empty cluster has no device that could take a trial.",
        "Request less in spec.trialTemplate.gpu, allow more accelerators, or add nodes. A change "
        "counts for trials that start later; delete the TrainingJobs that wait.",
    )
    METRIC_MISSING = (
        "MetricMissing",
        "A trial succeeded but reported no value for the epoch at which trials are compared.",
        _REPORT,
        Standing.NO_METRIC,
    )
    METRIC_NOT_A_NUMBER = (
        "MetricNotANumber",
        "A trial reported a value that is not a finite number; it does not go on.",
        "Nothing if training diverged; otherwise report a plain number.",
        Standing.NO_METRIC,
    )
    # Sharing and learning
    SHARING_ADMITTED = (
        "SharingAdmitted",
        "The workload joined others on a device; the message has the predicted slowdowns and the "
        "margin that every objective keeps.",
        "Nothing. `kubectl ullage top` compares predicted with observed slowdowns.",
    )
    SHARING_REJECTED = (
        "SharingRejected",
        "The workload may not join others on any device, because the risk to an objective would be "
        "too high; the message names the objective's owner, and what is missing.",
        "Loosen the binding objective, request another share, or wait; `kubectl ullage why` shows "
        "the figures.",
    )
    MADE_ROOM = (
        "MadeRoom",
        "The job restarts with a smaller share, so that another workload fits beside it. The "
        "prediction: both together do clearly more work than the job alone, with no objective at "
        "risk. The message names the other workload and the share that the job keeps.",
        "Nothing: the job resumes from its checkpoint, and makes room again after ten minutes at "
        "the earliest. Raise gpu.share.minPercent for a floor, or set sharing.resizable to Never.",
        Standing.OURS,
    )
    OBJECTIVES_CONFLICT = (
        "ObjectivesConflict",
        "An objective is broken on a device that only work with objectives shares. The newest that "
        "finds another place moves; else one with sharing.resizable: Restart gets a smaller share; "
        "else the least important with spec.checkpoint goes and waits.",
        "Nothing where someone gives way; the message says who. Where no one can, add "
        "spec.checkpoint or sharing.resizable to one of them, add devices, or loosen an objective.",
        Standing.UNDECIDED | Standing.OURS | Standing.TAKEN | Standing.BLAMES_DEVICE,
    )
    PROBATION_STARTED = (
        "ProbationStarted",
        "This workload class has too little data yet, so it runs a short trial at a small share, "
        "with the guard watching.",
        "Nothing. It stays if every objective holds.",
    )
    PROBATION_COMMITTED = (
        "ProbationCommitted",
        "The trial ended well and the workload stays; its measurements count from now on.",
    )
    PROBATION_ROLLED_BACK = (
        "ProbationRolledBack",
        "The trial broke an objective, or measured nothing, and the workload left the device.",
        "Let it wait for a device of its own, or loosen the objectives; risk.probationSecondsPer"
        "Class of the SchedulingPolicy limits what trials may cost.",
        Standing.UNDECIDED | Standing.OURS | Standing.TAKEN | Standing.BLAMES_DEVICE,
        "wait, the device is tried again after five minutes; or ask for another share, raise the "
        "objective, or declare a WorkloadProfile",
    )
    LANE_ASSIGNED = (
        "LaneAssigned",
        "The workload takes turns in a lane of a device. The message names the other workloads of "
        "the lane, and says what each keeps and what their steps use in turn.",
        "Nothing. `kubectl ullage why` shows how much it waits.",
    )
    MEMORY_CONTRACT_EXCEEDED = (
        "MemoryContractExceeded",
        "A program that takes turns in a lane took more memory than spec.gpu.lane declares. Its "
        "lane grows up to the size of its slice; beyond that the step runs out of memory.",
        "Set persistent and ephemeral of spec.gpu.lane to the values in the message, measured with "
        "the largest batch, and restart the job.",
    )
    SLICE_UNENFORCED = (
        "SliceUnenforced",
        "The node could not verify the limits of a slice, so the slice counts as the whole device "
        "and no workload is admitted beside it.",
        "Read the message in the GPUNode's status.slices: it names the unverified limit. Check the "
        "driver and the MPS server of the node first.",
    )
    MEASURED = "Measured", "The profile holds measurements of the running work."
    DRIFTED = (
        "Drifted",
        "The step times of the class changed, so Ullage no longer uses what it learned about it.",
        "Nothing if the program or its data changed. Give different work another "
        "ullage.dev/class label, so that each kind keeps its own profile.",
    )
    IMAGE_CHANGED = (
        "ImageChanged",
        "Another image runs under the same name, so measuring starts again.",
        "Nothing. Pin images by digest to keep profiles across registries.",
    )
    PROFILE_UPDATED = (
        "ProfileUpdated",
        "The data of a workload class counts from now on, or no longer; the message says why.",
        "Nothing. The profile's condition Fresh has its present state.",
    )
    PROFILE_CONFLICT = (
        "ProfileConflict",
        "A declared speed of the profile differs from the measured one by more than a fifth.",
        "Correct or remove the row in spec.solo, or give the work another ullage.dev/class label.",
    )
    LEARNING_FAILED = (
        "LearningFailed",
        "Learning from the observations of this device type failed or took too long; the last good "
        "model stays in force. The message has the cause.",
        "Remove the row that the message names from its WorkloadProfile. If learning is late, "
        "raise ULLAGE_LEARN_DEADLINE_SECONDS or give the operator more CPU.",
    )
    CLASS_FAULTED = (
        "ClassFaulted",
        "A program of the class faulted a device while no other class was on it. The class shares "
        "devices with itself alone, on trial, until spec.faults.isolationHours of the "
        "SchedulingPolicy have passed without a further fault.",
        "Mend the program: `compute-sanitizer` finds most faults of this kind. An administrator "
        "clears the class in spec.faults.cleared of the SchedulingPolicy `default`.",
    )
    DECLARED_DIFFERS = (
        "DeclaredDiffers",
        "A declared speed of the profile differs from the measured one by more than a fifth; "
        "Ullage uses the measured one.",
        "Correct or remove the row in spec.solo, or give different work another ullage.dev/class "
        "label.",
    )
    # Slow ranks
    STRAGGLER_FOUND = (
        "StragglerFound",
        "A rank of the job takes longer for its own part of a step than the others, which wait "
        "for it.",
        "`kubectl ullage why` shows all ranks. spec.stragglers.policy Rebalance gives slow ranks "
        "smaller batches, where the program allows it.",
    )
    STRAGGLER_GONE = (
        "StragglerGone",
        "The slow rank of the job is as fast as the others again.",
        "Nothing.",
        Standing.GOOD,
    )
    BATCHES_DIVIDED = (
        "BatchesDivided",
        "Slow ranks of the job get smaller batches, and the others larger ones; the global batch "
        "and the trained model stay the same.",
        "Nothing.",
        Standing.GOOD,
    )
    STRAGGLER_REPLACED = (
        "StragglerReplaced",
        "A rank was slow for spec.stragglers.replaceAfter because of its node, so its member "
        "starts on another one. The job leaves the node out for an hour; other work does not.",
        "Nothing. `kubectl ullage why` says from where to where and why.",
        Standing.OURS | Standing.OF_THE_NODE | Standing.LEAVES_NODE,
        "wait for another node, or until the hour is over",
    )
    STRAGGLER_KEPT = (
        "StragglerKept",
        "A rank has been slow for spec.stragglers.replaceAfter, and its member is not replaced.",
        "The message says why; `kubectl ullage why` shows all ranks.",
    )
    RANK_COMPUTES_LONGER = (
        "RankComputesLonger",
        "One rank of the job computes longer than the others, and neither its CPU limit nor other "
        "pods on its device explain it.",
        "Where other jobs are slow on its node, too, delete its pod; spec.stragglers.replaceAfter "
        "does so for gangs whose membership is InPlace.",
    )
    RANK_THROTTLED = (
        "RankThrottled",
        "One rank of the job is stopped at its CPU limit more often than the others.",
        "Raise the CPU limit of its container.",
    )
    RANK_BESIDE_NEIGHBOURS = (
        "RankBesideNeighbours",
        "One rank of the job computes longer than the others, and more pods share its device.",
        "Suspend or move a neighbour; spec.slo.maxSlowdown keeps such neighbours away.",
    )
    RANK_WAITS_FOR_DATA = (
        "RankWaitsForData",
        "One rank of the job waits longer for its batches than the others.",
        "Give the loader more workers, or look at `kubectl ullage why` for pods that take the "
        "volume.",
    )
    RANK_COMMUNICATES_LONGER = (
        "RankCommunicatesLonger",
        "Communication of one rank of the job takes longer than that of the others.",
        "Look at the network of its node.",
    )
    # Data input
    IO_STARVED = (
        "IoStarved",
        "A container gets less of a volume than it wants, while another takes more than its fair "
        "share; the message names the volume and both.",
        "spec.io.fairness Enforce of the SchedulingPolicy limits the other to its fair share; or "
        "give one of both a volume of its own.",
    )
    IO_LIMITED = (
        "IoLimited",
        "A container is limited to its fair share of a volume, because another starves there.",
        "Nothing: the limit ends when no one waits. A volume of its own has no such limit.",
    )
    IO_TUNED = (
        "IoTuned",
        "The data loader of the program got other num_workers or prefetch_factor.",
        "Nothing; the message has the wait for data before and after.",
        Standing.GOOD,
    )
    IO_NOT_TUNED = (
        "IoNotTuned",
        "The data loader of the program keeps its settings; the message says why.",
        "Set num_workers and prefetch_factor in the program.",
        Standing.GOOD,
    )
    HOOK_NOT_INJECTED = (
        "HookNotInjected",
        "The step hook could not be put into the container, so its steps are not seen.",
        "The message names the cause; ullage_run in the image, with its record, works without "
        "injection.",
    )
    STEP_RECORD_INVALID = (
        "StepRecordInvalid",
        "The step record of the container cannot be read, so its steps are not seen.",
        "Only ullage_run, or the injected hook, should write into the directory of the record.",
    )
    LATENCY_UNMEASURED = (
        "LatencyUnmeasured",
        "The latency of the service is not measured, so its objective cannot be judged.",
        "Let the program report requests, as the message says.",
    )
    # Step traces
    TRACE_QUEUED = (
        "TraceQueued",
        "The request waits: its namespace or the cluster has as many traces under way as are "
        "allowed, or one of the pods is being traced for another request.",
        "Wait, or delete requests that are not needed. After ten minutes the request fails.",
    )
    NO_PODS = (
        "NoPods",
        "The job, or the labels of spec.podSelector, have no running pod that shares devices "
        "through Ullage.",
        "Check kind and name of the job, and that its pods run. Pods of a kind that is not "
        "Ullage's need a label ullage.dev/share or ullage.dev/devices.",
    )
    NOT_INSTRUMENTED = (
        "NotInstrumented",
        "The program has no hook that could trace its steps, and a running pod cannot get one. The "
        "job is not restarted for it.",
        "Set spec.runtime.inject to Auto for the next start of a TrainingJob, or the label "
        "ullage.dev/inject: Auto in the pod template of another controller.",
    )
    NO_STEPS = (
        "NoSteps",
        "The hook is in place, but no step of an optimizer was counted in two minutes.",
        "Create the request again once the job trains. Only programs with a torch optimizer count "
        "steps.",
    )
    JOB_ENDED = (
        "JobEnded",
        "The job, or the pod, ended before its steps were traced.",
        "Trace a job that runs for a minute longer.",
    )
    NODE_GONE = "NodeGone", "The node of the pod is gone.", "Create the request again."
    AGENT_SILENT = (
        "AgentSilent",
        "The agent of the node did not answer.",
        "Look at the node agent of the node: `kubectl ullage doctor NODE`.",
    )
    AGENT_TOO_OLD = (
        "AgentTooOld",
        "The agent of the node is of a version without step traces.",
        "Upgrade the node agents to the version of the operator.",
    )
    SAMPLED = (
        "Sampled",
        "The job is in the sample that SchedulingPolicy.spec.profiling traces in this period.",
    )
    STEPS_ASKED = "StepsAsked", "Nodes are asked which steps the pods have reached."
    TRACE_ARMED = "TraceArmed", "All pods know the first step to trace and have not reached it."
    CAPTURING = "Capturing", "Steps are being traced, or their traces analysed."
    TRACE_LATE = (
        "Late",
        "A rank was past the first step when it read the order. The trace is tried once more.",
        "Create the request again when the API server and the nodes respond faster.",
    )
    ALREADY_PROFILING = (
        "AlreadyProfiling",
        "The program's own profiler is running; torch allows one at a time.",
        "Turn the program's profiler off, or look at its own traces.",
    )
    NO_PROFILER = (
        "NoProfiler",
        "The torch of the program has no profiler.",
        "Use a torch that was built with Kineto, as the released ones are.",
    )
    DISK_FULL = (
        "DiskFull",
        "There was no room for the trace in the directory of the container's step records.",
        "Trace fewer steps, without stacks and shapes.",
    )
    CAPTURE_FAILED = (
        "CaptureFailed",
        "The program could not trace its steps, or what it wrote could not be used.",
        "The message says why. The program itself went on.",
    )
    TRACE_MISSING = (
        "TraceMissing",
        "A rank did not answer in time.",
        "See whether the job still makes steps: `kubectl ullage status`. Programs that count "
        "steps themselves have no hook: set spec.runtime.inject to Auto.",
    )
    RANK_UNKNOWN = (
        "RankUnknown",
        "The trace claims a rank that is not the pod's, or that another trace claims too.",
        "Set RANK, WORLD_SIZE and LOCAL_RANK as torchrun does.",
    )
    TRACE_PARTIAL = (
        "TracePartial",
        "Some ranks were traced; status.ranks has the reason for each of the others.",
        "Create the request again if the missing ranks matter.",
    )
    TRACE_DONE = "TraceDone", "Every chosen rank was traced.", "Nothing.", Standing.GOOD
    TRACE_TOO_LARGE = (
        "TraceTooLarge",
        "A trace has more bytes, events, names or levels of nesting than its analysis may read.",
        "The message names the limit: trace fewer steps, without stacks and shapes.",
        Standing.REFUSES_TRACE,
    )
    TRACE_INVALID = (
        "TraceInvalid",
        "A file is not a trace of PyTorch's profiler, is broken, or has no operation in its steps.",
        "The message names the place. Trace again; if the program writes such files itself, look "
        "at them with `kubectl ullage trace show FILE`.",
        Standing.REFUSES_TRACE,
    )
    TRACE_TOO_SLOW = (
        "TraceTooSlow",
        "The analysis of a trace exceeded its CPU time and was ended.",
        "Trace fewer steps, without stacks and shapes.",
        Standing.REFUSES_TRACE,
    )
    CLOCKS_UNALIGNED = (
        "ClocksUnaligned",
        "The ranks run on several nodes and share too few collectives to compare the clocks of "
        "these, so arrivals are judged by how long each rank waits.",
        "Trace more steps.",
    )
    STRAGGLER = (
        "Straggler",
        "One rank arrives last at most collectives, and the others wait for it.",
        "The message names the rank and the part of its step that is longer. Compute: look at "
        "its node and its neighbours with `kubectl ullage why`. Input: balance the data.",
    )
    EXPOSED_COMMUNICATION = (
        "ExposedCommunication",
        "More than a fifth of the step is communication during which the device computes nothing.",
        "Start collectives earlier (buckets of DistributedDataParallel, prefetch of FSDP), "
        "accumulate gradients, or place the ranks nearer to each other.",
    )
    WAITS_FOR_DATA = (
        "WaitsForData",
        "More than a tenth of the step waits for the next batch.",
        "Give the DataLoader more workers (num_workers), let it prefetch, or store the data "
        "nearer.",
    )
    HOST_BOUND = (
        "HostBound",
        "The device idles for more than a fifth of the step, mostly because the program starts "
        "its work too late.",
        "Compile the model (torch.compile), use CUDA graphs, or a larger batch.",
    )
    SHORT_KERNELS = (
        "ShortKernels",
        "Most kernels take less than 10 microseconds, and the device idles between them.",
        "Fuse them (torch.compile), use CUDA graphs, or a larger batch.",
    )
    SYNCHRONISES_OFTEN = (
        "SynchronisesOften",
        "The program waits for the device, or reads single values back, at one of ten operations "
        "or more.",
        "Read values such as loss.item() every some steps only, and copy with non_blocking=True.",
    )
    ALLOCATES_IN_STEPS = (
        "AllocatesInSteps",
        "The program allocates or frees device memory in its steps, which stops the device.",
        "Keep shapes fixed, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )
    PAGEABLE_COPIES = (
        "PageableCopies",
        "Copies between the device and memory that is not pinned take more than 5 % of the step.",
        "Set pin_memory=True in the DataLoader and copy with non_blocking=True.",
    )
    # Node
    SLOT_UNKNOWN = (
        "SlotUnknown",
        "kubelet does not report yet which pod holds the slot; kubelet retries the start.",
        "Nothing; kubelet retries within seconds.",
    )
    POD_UNKNOWN = (
        "PodUnknown",
        "The agent has not seen the pod that kubelet named yet; kubelet retries the start.",
        "Nothing. If it lasts, check that the agent can read pods.",
    )
    PLACEMENT_MISSING = (
        "PlacementMissing",
        "The pod requests a slot, but the node has no slice for it.",
        "Start it through a TrainingJob or InferenceDeployment; pods request no slots themselves.",
    )
    EPOCH_STALE = (
        "EpochStale",
        "The slice comes from an operator that is no longer the leader.",
        "Nothing; the current leader decides again.",
        Standing.LASTING,
    )
    SLOT_COUNT = (
        "SlotCount",
        "The container's number of slots differs from its number of slices.",
        "Do not set ullage.dev/slot in the template; the operator sets it.",
        Standing.LASTING,
    )
    DRAINING = (
        "Draining",
        "The previous user of the slice has not left the device yet.",
        "Nothing; kubelet retries the start. If it lasts, look for a process that ignores SIGTERM.",
    )
    CAPACITY_EXCEEDED = (
        "CapacityExceeded",
        "The slice would exceed the device's memory, containers or contexts.",
        "Nothing; the operator places it again. If it repeats, compare spec and status of the "
        "GPUNode.",
        Standing.LASTING,
    )
    PREDICTION_REFUSED = (
        "PredictionRefused",
        "A node predicts a slowdown beyond a neighbour's objective. Agents of this version leave "
        "risk to the operator and never report this reason.",
        "Nothing; the operator places it again.",
    )
    MPS_NOT_READY = (
        "MPSNotReady",
        "The MPS server of the device does not answer; kubelet retries the start.",
        "If it lasts, look at the node agent's MPS container and the Xid errors of the node.",
        Standing.PLAIN,
        "wait: the agent starts the server again, or look at its log",
    )
    FOREIGN_PLUGIN = (
        "ForeignPlugin",
        "The node also advertises nvidia.com/gpu. A device must not have two owners, so the agent "
        "offers nothing.",
        "Remove NVIDIA's device plugin from the node, or the label ullage.dev/node.",
    )
    DEVICE_LOST = (
        "DeviceLost",
        "The driver no longer finds the device; its slices have failed.",
        "Look at the node's kernel log for Xid errors; most lost devices need a reboot.",
        Standing.LASTING | Standing.TAKEN | Standing.SUDDEN,
    )
    UNENFORCED = (
        "Unenforced",
        "A process runs on the device without the limits of its slice; its pod is evicted.",
        "Look for variables in the template that override the MPS settings.",
    )
    ENFORCED = "Enforced", "The limits of the slice were verified."
    RETIRED = (
        "Retired",
        "The agent withdrew from the node and removed its files.",
        "Set spec.retire of the GPUNode to false to use the node again.",
    )
    CDI_UNAVAILABLE = (
        "CDIUnavailable",
        "The container runtime does not read CDI files, so the agent cannot hand over slices.",
        "Turn CDI on: containerd 1.7 `enable_cdi`, or use containerd 2 or CRI-O.",
    )
    DEVICE_CONFIG_MISSING = (
        "DeviceConfigMissing",
        "The node is set to emulated devices, but the file that names them is missing or wrong.",
        "Write /var/lib/ullage/emulated.json on the node; the message names the fault.",
    )
    DRIVER_MISSING = (
        "DriverMissing",
        "The node is set to NVIDIA devices, but the driver or its library does not answer.",
        "Run nvidia-smi on the node; the message says what is missing.",
    )
    REGISTERED = "Registered", "The agent and its slots are registered with kubelet."
    KUBELET_AWAY = (
        "KubeletAway",
        "kubelet does not answer; running containers continue.",
        "Look at kubelet on the node; the agent registers again by itself.",
    )
    CPU_LIMIT_BELOW_SHARE = (
        "CPULimitBelowShare",
        "The container's CPU limit is below the share of its emulated device, so it cannot use all "
        "of its share.",
        "Raise resources.limits.cpu of the device container, or lower gpu.share.",
    )
    SLO_AT_RISK = (
        "SLOAtRisk",
        "A container runs above nine tenths of its objective; the guard pauses no neighbour yet.",
        "Nothing, or request a larger share at its next start.",
    )
    BEST_EFFORT_PAUSED = (
        "BestEffortPaused",
        "The guard pauses a container without an objective for some seconds, because a neighbour "
        "on the device is above its objective.",
        "Nothing: it resumes by itself. Give it an objective (slo) if it must never be paused.",
    )
    BEST_EFFORT_RESUMED = (
        "BestEffortResumed",
        "A paused container runs again.",
        "Nothing; the message says what the pause showed.",
    )
    INTERFERING = (
        "Interfering",
        "A neighbour met its objective only while this container was paused.",
        "Nothing: the operator moves it to another device. Request a smaller share, or a whole "
        "device.",
        Standing.UNDECIDED | Standing.OURS | Standing.TAKEN | Standing.BLAMES_DEVICE,
    )
    SELF_VIOLATING = (
        "SelfViolating",
        "A container is above its objective, and its neighbours are not the cause: pausing them "
        "did not help, or there are none.",
        "Lower its load, add replicas, request a larger share, or loosen the objective.",
    )
    PAUSE_FAILED = (
        "PauseFailed",
        "A container is above its objective, but the guard cannot pause its neighbours.",
        "Look at the guard container of the node agent: it needs write access to the host's "
        "cgroup tree.",
    )


CHAPTERS: Final[Mapping[Reason, str]] = {
    Reason.WAITING_FOR_DECISION: "Waiting and refusals",
    Reason.PLACED: "Lifecycle of a workload",
    Reason.WAITS_FOR_LEAD: "Jobs in tiers",
    Reason.WAITS_FOR_FEWER_NODES: "Taking turns",
    Reason.ESTIMATED: "Choice of an accelerator",
    Reason.PRICE_READ: "Pools of capacity",
    Reason.POOL_ACQUIRED: "Spot, on-demand and deadlines",
    Reason.LOAD_UNKNOWN: "Scaling of services",
    Reason.TRIALS_RUN: "Trials of a search",
    Reason.SHARING_ADMITTED: "Sharing and learning",
    Reason.STRAGGLER_FOUND: "Slow ranks",
    Reason.IO_STARVED: "Data input and step records",
    Reason.TRACE_QUEUED: "Step traces",
    Reason.SLOT_UNKNOWN: "Node",
}
"""Titles of the reference page, by the reason that each begins with."""


def chapters() -> Iterator[tuple[str, Iterator[Reason]]]:
    """The table by chapter."""
    title = ""

    def title_of(reason: Reason) -> str:
        nonlocal title
        title = CHAPTERS.get(reason, title)
        return title

    return groupby(Reason, title_of)


_BY_WORD: Final[Mapping[str, Reason]] = {reason.value: reason for reason in Reason}


def reason_of(word: str) -> Reason | None:
    """The reason that a word on the wire is; ``None`` = it is of another version, or is none."""
    return _BY_WORD.get(word)


def standing_of(word: str | None) -> Standing:
    """Standings of a reason or of a word on the wire; none for an unknown one."""
    reason = None if word is None else reason_of(word)
    return Standing.PLAIN if reason is None else reason.standing


class ConditionType(StrEnum):
    """Condition types of a status: first those that are good when True, then those that are bad."""

    true_when: str
    good_when_true: bool

    def __new__(cls, word: str, true_when: str = "", good_when_true: bool = True) -> Self:
        """A member is written as its word, when it holds and whether that is the good state."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.true_when, member.good_when_true = true_when, good_when_true
        return member

    ADMITTED = (
        "Admitted",
        "every member has a slice in a GPUNode's spec; False carries the binding reason",
    )
    PLACED = "Placed", "every member is bound and its slices are Prepared or later"
    READY = (
        "Ready",
        "TrainingJob: every member runs; InferenceDeployment: all replicas are ready; GPUNode: the "
        "agent is registered with kubelet and serves",
    )
    ENFORCED = "Enforced", "every slice is Attached under verified limits"
    SLO_MET = (
        "SLOMet",
        "the observed slowdown or latency is within the objective in at least two of the last "
        "three windows; absent without an objective or an observation",
    )
    ROUTER_READY = (
        "RouterReady",
        "pods of the router are ready and the Service leads to them; absent without spec.batching",
    )
    FINISHED = "Finished", "the job has ended; the reason is Completed or that of the failure"
    COMPLETE = "Complete", "the job has ended well, as the condition of a Job says it"
    DEADLINE_SAFE = (
        "DeadlineSafe",
        "the remaining work and a restart fit before the deadline; with objective Deadline",
    )
    RECOVERABLE = (
        "Recoverable",
        "the state of a job in tiers survives the loss of its transient members",
    )
    NOTICE_FEASIBLE = (
        "NoticeFeasible",
        "members of a job in tiers can hand over their pending state in half of the shortest "
        "notice of its pools; absent if no pool states noticeSeconds",
    )
    PLANNED = (
        "Planned",
        "a trial has ended, so status.groups shows when groups will have ended; absent once the "
        "search has ended (TuningJob)",
    )
    AS_RECOMMENDED = (
        "AsRecommended",
        "the job has the type and number of devices that status.recommendation names first; False "
        "carries what stands in the way; absent without an aim or a cap in spec.cost",
    )
    SCALING_ACTIVE = (
        "ScalingActive",
        "the replicas of a service follow its objective; False while its load is not known; absent "
        "without scaling.policy SLO (InferenceDeployment)",
    )
    LATE_BINDING = (
        "LateBinding",
        "the container runtime reads the CDI files that hand over a slice (GPUNode)",
    )
    RETIRED = "Retired", "the agent has left the node on request (GPUNode)"
    SHARING = (
        "Sharing",
        "absent while sharing works fully on every GPU; False names the GPUs where it does not, "
        "and why (GPUNode)",
    )
    FRESH = "Fresh", "the measured values hold for the running work (WorkloadProfile)"
    PRICE_FRESH = "PriceFresh", "the price is accepted and less than six hours old (CapacityPool)"
    HAZARD_KNOWN = (
        "HazardKnown",
        "the hazard rests on observations more than on the prior (CapacityPool)",
    )
    STALLED = (
        "Stalled",
        "trials are due, and for ten minutes none has run, started or ended; absent otherwise "
        "(TuningJob)",
        False,
    )
    POOL_TOO_SMALL = (
        "PoolTooSmall",
        "no device could take a waiting trial even if the cluster were empty; absent otherwise "
        "(TuningJob)",
        False,
    )
    CONFLICTING = (
        "Conflicting",
        "a declared speed differs from the measured one by more than a fifth (WorkloadProfile)",
        False,
    )
    ISOLATED = (
        "Isolated",
        "the class faulted a device and shares devices with itself alone; absent otherwise "
        "(WorkloadProfile)",
        False,
    )
    DEADLINE_INFEASIBLE = (
        "DeadlineInfeasible",
        "the work and two restarts take longer than the deadline allows; the job is not started",
        False,
    )
    STRAGGLER_PRESENT = (
        "StragglerPresent",
        "a rank of the running job is slower than the others; the reason is the cause, the message "
        "names rank, pod and node; absent otherwise (TrainingJob)",
        False,
    )
    FAILED = "Failed", "the job has ended in failure, as the condition of a Job says it", False
    DEGRADED = "Degraded", "something does not work as it should", False
    INVALID = (
        "Invalid",
        "the newest version of the object is unusable and the last good one stays in force",
        False,
    )
    SOLVER_DEGRADED = (
        "SolverDegraded",
        "decisions are late or fail and the last good plan stays in force (SchedulingPolicy)",
        False,
    )
    DEVICE_LOST = (
        "DeviceLost",
        "the driver no longer finds one of the node's devices (GPUNode)",
        False,
    )
