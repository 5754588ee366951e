# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains why work waits or is refused. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

WAITING: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITING_FOR_DECISION: say(
        "The operator has accepted the workload and has not decided about it yet.",
        "Wait a moment. If it lasts, check that an operator runs and leads: look at its /readyz "
        "and at the condition SolverDegraded of the SchedulingPolicy `default`.",
    ),
    Reason.WAITING_FOR_GATE: say(
        "A scheduling gate of another controller, for example Kueue's, keeps pods back. Until it "
        "is gone nothing is reserved, no node is requested, and no time limit runs.",
        "The message names the pod and the gate: ask that controller, with Kueue by `kubectl get "
        "workloads.kueue.x-k8s.io`.",
    ),
    Reason.SUSPENDED: say(
        "spec.suspend is true: the pods are gone and hold no device.",
        "Set spec.suspend to false to let it run again.",
    ),
    Reason.NO_CAPACITY: say(
        "Every suitable device is taken.",
        "Wait, request less (gpu.count, gpu.share.minPercent), allow more accelerators, or add "
        "nodes; `kubectl ullage why` names the device that comes closest.",
    ),
    Reason.NO_NODE_MATCHES: say(
        "No managed node passes the pod's node selector, affinity, taints and resource requests.",
        "Compare the template with the nodes labelled ullage.dev/node=true: labels, taints, and "
        "free CPU and memory.",
    ),
    Reason.NODE_AFFINITY_CONFLICT: say(
        "The template's node affinity already pins another node or matches none, so the operator "
        "cannot send the pod to the chosen node.",
        "Remove matchFields and empty terms from the template's required node affinity.",
    ),
    Reason.HOST_PORT_TAKEN: say(
        "Containers of the pod take a port of their node (hostPort), and on the nodes that would "
        "do another pod has it.",
        "Wait until that pod ends, leave hostPort out and use a Service, or add nodes.",
    ),
    Reason.VOLUME_NOT_READY: say(
        "A PersistentVolumeClaim of the pod can be used on no node now: it does not exist, is not "
        "bound yet, or is for one pod (ReadWriteOncePod) and another uses it.",
        "The message names the claim: `kubectl describe pvc` says what it waits for.",
    ),
    Reason.VOLUME_ELSEWHERE: say(
        "The volume of a PersistentVolumeClaim is not reached from the nodes that would do, or "
        "none can be bound or made for it there.",
        "Compare the node affinity of the PersistentVolume, or allowedTopologies of its "
        "StorageClass, with the nodes that have devices; wait for a device on a node that "
        "reaches it.",
    ),
    Reason.SPREAD_UNEVEN: say(
        "A topologySpreadConstraint with whenUnsatisfiable DoNotSchedule would not hold on the "
        "nodes that have room.",
        "The message names the domain and both counts: wait for room in the others, raise "
        "maxSkew, or use ScheduleAnyway. With minDomains and nodeAffinityPolicy Honor no domain "
        "takes more than maxSkew pods: use nodeAffinityPolicy Ignore.",
    ),
    Reason.POD_AFFINITY: say(
        "The pod requires others near it (podAffinity), and where devices are free there are none.",
        "Start those pods first, on nodes of a domain with devices, or make the term preferred.",
    ),
    Reason.POD_ANTI_AFFINITY: say(
        "The pod excludes others (podAntiAffinity), or they exclude it, and where devices are free "
        "there is one of them.",
        "Wait until it ends, add nodes, or make the term preferred.",
    ),
    Reason.POD_RULES_TOO_LARGE: say(
        "The pod has more terms of affinity, spread constraints, tolerations, resources, ports or "
        "claims than are judged of one pod, so no node is known to be right for it.",
        "The message names the field, how many there are and how many are judged: use fewer, or a "
        "label that stands for them.",
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
    Reason.CHECKPOINT_UNAVAILABLE: say(
        "The workload asks for gpu.lane.switching Checkpoint, and no suitable device's node can "
        "suspend programs: it is off by default, and MIG devices do not allow it.",
        "Leave switching out, allow other accelerators, or ask your administrator for chart value "
        "node.checkpoint.enabled.",
    ),
    Reason.PREDICTED_SLO_BREACH: say(
        "The prediction says that sharing the device would slow this workload or a neighbour "
        "beyond its objective.",
        "Raise slo.maxSlowdown, request another share, declare a WorkloadProfile if the workload "
        "uses less than assumed, or wait for a neighbour to end.",
    ),
    Reason.MEMORY_WOULD_OVERFLOW: say(
        "The requested memory, with the context's overhead, exceeds the device's free memory. If "
        "this holds for every empty device, the workload can never fit.",
        "Lower gpu.memory.limit or allow an accelerator with more memory.",
    ),
    Reason.CONTEXT_LIMIT: say(
        "The device already serves its maximum number of containers.",
        "Wait for one to end, or allow other devices.",
    ),
    Reason.PERCENT_LIMIT: say(
        "The shares on the device would add up to more than packing.maxPercentSum.",
        "Lower gpu.share.minPercent, wait, or raise packing.maxPercentSum in the SchedulingPolicy.",
    ),
    Reason.TRUST_DOMAIN: say(
        "Workloads of another trust domain share the device.",
        "Give workloads that may share a device the same spec.trustDomain, and have the "
        "administrator grant it to their namespaces. Without one, only workloads of the same "
        "namespace share.",
    ),
    Reason.TRUST_DOMAIN_NOT_GRANTED: say(
        "spec.trustDomain names a domain that the administrator did not grant to this namespace, "
        "so the operator does not place the workload.",
        "Leave spec.trustDomain out to share within the namespace, or ask the administrator to "
        "list the namespace under that name in spec.trustDomains of the SchedulingPolicy "
        "`default`.",
    ),
    Reason.TENANT_NOT_ALLOWED: say(
        "spec.tenant names a tenant that the administrator opened to other namespaces, so the "
        "operator does not place the workload.",
        "Name a tenant of this namespace, or ask the administrator to list the namespace under "
        "that name in spec.tenants of the SchedulingPolicy `default`.",
    ),
    Reason.QUOTA_EXCEEDED: say(
        "The workload's tenant holds its quota of every accelerator type that the workload may "
        "use, and its cohort has too little to borrow. The message has what it holds, its nominal "
        "quota and what it can borrow, in percent of devices.",
        "Wait until work of the tenant or its cohort ends, ask for a smaller share or another "
        "type, or ask the administrator to raise spec.tenants[].quota of the SchedulingPolicy "
        "`default`. With reclaimWithinCohort, what others borrowed comes back at once from work "
        "that saves its state.",
    ),
    Reason.GANG_INCOMPLETE: say(
        "There is room for some members but not for all, and a gang starts whole or not at all.",
        "Wait, or lower spec.replicas; the message counts the members that fit.",
    ),
    Reason.PODS_MISSING: say(
        "Pods share the label ullage.dev/gang or a PodGroup, and fewer exist than "
        "ullage.dev/gang-size or the PodGroup's minCount says. Pods of another run or revision of "
        "the controller do not count.",
        "Create the others, or correct that number; the message counts. A Deployment in a rolling "
        "update creates them together with spec.strategy.type Recreate.",
    ),
    Reason.GANG_COMPLETE: say(
        "More pods share the label ullage.dev/gang than ullage.dev/gang-size says; the youngest of"
        " them wait until others end.",
        "Nothing, if they are spares. Otherwise correct ullage.dev/gang-size in the template.",
    ),
    Reason.RESERVATION_REFUSED: say(
        "The node refused a slice that the operator chose; the operator looks for another device.",
        "Nothing at first. If it repeats, the message has the node's own reason.",
    ),
    Reason.RESERVATION_EXPIRED: say(
        "The node did not acknowledge the slices of the gang in time, so the operator removed "
        "them.",
        "Nothing at first. If it repeats, look at the node agent's pod and the heartbeat of the "
        "GPUNode.",
    ),
    Reason.NODE_LEAVES: say(
        "The node is being drained, retired or taken back by its owner, so it takes nothing new. "
        "Nothing is wrong with it.",
        "Wait for another node. `kubectl ullage drain NODE --undo` ends a drain.",
    ),
    Reason.NODE_UNHEALTHY: say(
        "The node is not ready, or its agent has not reported for three heartbeats.",
        "Look at the Node and at the node agent's pod on it.",
    ),
    Reason.DEVICE_UNHEALTHY: say(
        "The device reports errors and gets no work until it has been without errors for a while.",
        "Look at devices[].health and the conditions of the GPUNode; the device returns by itself "
        "once the fault clears.",
    ),
    Reason.CREATE_REFUSED: say(
        "The API server refused to create a pod, Deployment or Service; the message is its own.",
        "Correct what the message names: the template, a quota, or an admission policy.",
    ),
    Reason.NAME_CONFLICT: say(
        "An object that Ullage did not create has a name that this workload needs; the operator "
        "did not overwrite it.",
        "Rename the workload, or remove the object that the message names.",
    ),
    Reason.NO_PORT: say(
        "The first container of the template names no port, so there is nothing to serve.",
        "Add containers[0].ports with a containerPort.",
    ),
    Reason.NO_ROUTER_IMAGE: say(
        "The service asks for a router (spec.batching), and the operator knows no image for it; "
        "requests go to the replicas directly.",
        "Set operator.routerImage in the chart, or take spec.batching out.",
    ),
    Reason.ROUTER_STARTING: say(
        "No pod of the router is ready yet. A Service that led to the replicas still does.",
        "Nothing; it takes seconds. If it lasts, look at the pods of the Deployment that the "
        "message names.",
    ),
    Reason.ROUTER_FAILS: say(
        "The router's container does not run; the message has the last lines of its log, or "
        "kubelet's reason.",
        "Do what the message asks for. A router needs limits.queue + 1,256 open files: where nodes "
        "allow fewer, lower batching.limits.queue or raise the limit of their container runtime.",
    ),
    Reason.ROUTER_SERVES: say("The router takes requests.", "Nothing."),
    Reason.ROUTER_DRAINS: say(
        "The InferenceDeployment is deleted: its router answers what it holds, then replicas go.",
        "Nothing; after two minutes the rest goes without it.",
    ),
    Reason.LEAD_ENDS: say(
        "The TrainingJob in tiers is deleted: its members save and end, then the lead goes.",
        "Nothing; after two minutes the rest goes in any order.",
    ),
    Reason.TRIALS_STOP: say(
        "The TuningJob is deleted: its trials stop, and results that exist are counted first.",
        "Nothing; after a minute the rest goes in any order.",
    ),
    Reason.RESIZE_PENDING: say(
        "The work runs with a share or amount of memory that differs from spec.gpu; a running "
        "container is never resized.",
        "Set sharing.resizable to Restart so that the operator restarts it (a job needs "
        "spec.checkpoint), restart it yourself, or wait if the message says that room is missing.",
    ),
    Reason.RESIZING: say(
        "The work restarts: spec.gpu requests another share or amount of memory and "
        "sharing.resizable is Restart, or an elastic gang changes its number of members.",
        "Nothing: a job resumes from its checkpoint; replicas leave once their replacement serves.",
    ),
    Reason.NO_ROOM_TO_SURGE: say(
        "The rolling update waits: there is no free slice for one more replica, and stopping the "
        "only one would drop requests.",
        "Free a slice, add a second replica, or wait.",
    ),
    Reason.HELD_FOR_ANOTHER: say(
        "The operator holds room for a workload that has waited longer than the skip limit.",
        "Wait; raise gangSkipLimit in the SchedulingPolicy to hold room later.",
    ),
    Reason.MULTI_GPU: say(
        "The workload requests shares of more than one device; a container shares only one device.",
        "Set gpu.count to 1, or use gpu.mode Exclusive.",
    ),
    Reason.ENFORCEMENT_MISSING: say(
        "A workload on the device runs without verified limits, so no workload may join it.",
        "Wait until its limits are verified or it is evicted; `kubectl ullage top` shows which.",
    ),
    Reason.SLO_INFEASIBLE: say(
        "The workload cannot meet its objective even alone on a whole device of this kind; or, "
        "under MinCostSLO, it cannot meet its deadline. The message says which.",
        "Raise the objective above the time alone in the message, or allow a faster accelerator. "
        "For a deadline: move it, or supply what the message says is missing.",
    ),
    Reason.LOAD_INFEASIBLE: say(
        "The offered load alone breaks the objective: the cause is the queue, not a neighbour.",
        "Add replicas, lower spec.load, or raise the objective.",
    ),
    Reason.NEED_PROFILE: say(
        "Too few co-locations like this one were observed to certify the risk budget (the message "
        "counts them); or work with a latency objective runs alone until its latency is measured.",
        "Wait for a probation or for the measurement, declare or import profiles of the class, or "
        "use gpu.mode Exclusive.",
    ),
    Reason.NOT_WORTH_SHARING: say(
        "Together the workloads would do less work than without the newcomer, or less than one "
        "after the other.",
        "Wait for another device, or lower risk.minCombinedPercent in the SchedulingPolicy.",
    ),
}
"""Reasons that keep work from starting."""
