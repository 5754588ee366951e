# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of a node and its devices mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

NODE: Final[Mapping[Reason, Explanation]] = {
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
        "Nothing; the leading operator decides again.",
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
        "Nothing; it is placed again. If it repeats, compare spec and status of the GPUNode.",
    ),
    Reason.PREDICTION_REFUSED: say(
        "A node predicts that a neighbour would be slowed beyond its objective. Agents of this "
        "version leave risk to the operator and never say it.",
        "Nothing; it is placed again.",
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
        "A container runs above nine tenths of its objective; no one is paused for it yet.",
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
"""Reasons that the node agent and its guard give."""
