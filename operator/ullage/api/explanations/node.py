# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of nodes and their devices. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

NODE: Final[Mapping[Reason, Explanation]] = {
    Reason.SLOT_UNKNOWN: say(
        "kubelet does not report yet which pod holds the slot; kubelet retries the start.",
        "Nothing; kubelet retries within seconds.",
    ),
    Reason.POD_UNKNOWN: say(
        "The agent has not seen the pod that kubelet named yet; kubelet retries the start.",
        "Nothing. If it lasts, check that the agent can read pods.",
    ),
    Reason.PLACEMENT_MISSING: say(
        "The pod requests a slot, but the node has no slice for it.",
        "Start it through a TrainingJob or InferenceDeployment; pods request no slots themselves.",
    ),
    Reason.EPOCH_STALE: say(
        "The slice comes from an operator that is no longer the leader.",
        "Nothing; the current leader decides again.",
    ),
    Reason.SLOT_COUNT: say(
        "The container's number of slots differs from its number of slices.",
        "Do not set ullage.dev/slot in the template; the operator sets it.",
    ),
    Reason.DRAINING: say(
        "The previous user of the slice has not left the device yet.",
        "Nothing; kubelet retries the start. If it lasts, look for a process that ignores SIGTERM.",
    ),
    Reason.CAPACITY_EXCEEDED: say(
        "The slice would exceed the device's memory, containers or contexts.",
        "Nothing; the operator places it again. If it repeats, compare spec and status of the "
        "GPUNode.",
    ),
    Reason.PREDICTION_REFUSED: say(
        "A node predicts a slowdown beyond a neighbour's objective. Agents of this version leave "
        "risk to the operator and never report this reason.",
        "Nothing; the operator places it again.",
    ),
    Reason.MPS_NOT_READY: say(
        "The MPS server of the device does not answer; kubelet retries the start.",
        "If it lasts, look at the node agent's MPS container and the Xid errors of the node.",
    ),
    Reason.FOREIGN_PLUGIN: say(
        "The node also advertises nvidia.com/gpu. A device must not have two owners, so the agent "
        "offers nothing.",
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
        "The container runtime does not read CDI files, so the agent cannot hand over slices.",
        "Turn CDI on: containerd 1.7 `enable_cdi`, or use containerd 2 or CRI-O.",
    ),
    Reason.DEVICE_CONFIG_MISSING: say(
        "The node is set to emulated devices, but the file that names them is missing or wrong.",
        "Write /var/lib/ullage/emulated.json on the node; the message names the fault.",
    ),
    Reason.DRIVER_MISSING: say(
        "The node is set to NVIDIA devices, but the driver or its library does not answer.",
        "Run nvidia-smi on the node; the message says what is missing.",
    ),
    Reason.REGISTERED: say("The agent and its slots are registered with kubelet.", "Nothing."),
    Reason.KUBELET_AWAY: say(
        "kubelet does not answer; running containers continue.",
        "Look at kubelet on the node; the agent registers again by itself.",
    ),
    Reason.CPU_LIMIT_BELOW_SHARE: say(
        "The container's CPU limit is below the share of its emulated device, so it cannot use all "
        "of its share.",
        "Raise resources.limits.cpu of the device container, or lower gpu.share.",
    ),
    Reason.SLO_AT_RISK: say(
        "A container runs above nine tenths of its objective; the guard pauses no neighbour yet.",
        "Nothing, or request a larger share at its next start.",
    ),
    Reason.BEST_EFFORT_PAUSED: say(
        "The guard pauses a container without an objective for some seconds, because a neighbour "
        "on the device is above its objective.",
        "Nothing: it resumes by itself. Give it an objective (slo) if it must never be paused.",
    ),
    Reason.BEST_EFFORT_RESUMED: say(
        "A paused container runs again.", "Nothing; the message says what the pause showed."
    ),
    Reason.INTERFERING: say(
        "A neighbour met its objective only while this container was paused.",
        "Nothing: the operator moves it to another device. Request a smaller share, or a whole "
        "device.",
    ),
    Reason.SELF_VIOLATING: say(
        "A container is above its objective, and its neighbours are not the cause: pausing them "
        "did not help, or there are none.",
        "Lower its load, add replicas, request a larger share, or loosen the objective.",
    ),
    Reason.PAUSE_FAILED: say(
        "A container is above its objective, but the guard cannot pause its neighbours.",
        "Look at the guard container of the node agent: it needs write access to the host's "
        "cgroup tree.",
    ),
}
"""Reasons that the node agent and its guard report."""
