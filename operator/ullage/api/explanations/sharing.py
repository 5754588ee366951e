# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of sharing and learning. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

SHARING: Final[Mapping[Reason, Explanation]] = {
    Reason.SHARING_ADMITTED: say(
        "The workload joined others on a device; the message has the predicted slowdowns and the "
        "margin that every objective keeps.",
        "Nothing. `kubectl ullage top` compares predicted with observed slowdowns.",
    ),
    Reason.SHARING_REJECTED: say(
        "The workload may not join others on any device, because the risk to an objective would be "
        "too high; the message names the objective's owner, and what is missing.",
        "Loosen the binding objective, request another share, or wait; `kubectl ullage why` shows "
        "the figures.",
    ),
    Reason.MADE_ROOM: say(
        "The job restarts with a smaller share, so that another workload fits beside it. The "
        "prediction: both together do clearly more work than the job alone, with no objective at "
        "risk. The message names the other workload and the share that the job keeps.",
        "Nothing: the job resumes from its checkpoint, and makes room again after ten minutes at "
        "the earliest. Raise gpu.share.minPercent for a floor, or set sharing.resizable to Never.",
    ),
    Reason.OBJECTIVES_CONFLICT: say(
        "An objective is broken on a device that only work with objectives shares. The newest that "
        "finds another place moves; else one with sharing.resizable: Restart gets a smaller share; "
        "else the least important with spec.checkpoint goes and waits.",
        "Nothing where someone gives way; the message says who. Where no one can, add "
        "spec.checkpoint or sharing.resizable to one of them, add devices, or loosen an objective.",
    ),
    Reason.PROBATION_STARTED: say(
        "This workload class has too little data yet, so it runs a short trial at a small share, "
        "with the guard watching.",
        "Nothing. It stays if every objective holds.",
    ),
    Reason.PROBATION_COMMITTED: say(
        "The trial ended well and the workload stays; its measurements count from now on.",
        "Nothing.",
    ),
    Reason.PROBATION_ROLLED_BACK: say(
        "The trial broke an objective, or measured nothing, and the workload left the device.",
        "Let it wait for a device of its own, or loosen the objectives; risk.probationSecondsPer"
        "Class of the SchedulingPolicy limits what trials may cost.",
    ),
    Reason.LANE_ASSIGNED: say(
        "The workload takes turns in a lane of a device. The message names the other workloads of "
        "the lane, and says what each keeps and what their steps use in turn.",
        "Nothing. `kubectl ullage why` shows how much it waits.",
    ),
    Reason.MEMORY_CONTRACT_EXCEEDED: say(
        "A program that takes turns in a lane took more memory than spec.gpu.lane declares. Its "
        "lane grows up to the size of its slice; beyond that the step runs out of memory.",
        "Set persistent and ephemeral of spec.gpu.lane to the values in the message, measured with "
        "the largest batch, and restart the job.",
    ),
    Reason.SLICE_UNENFORCED: say(
        "The node could not verify the limits of a slice, so the slice counts as the whole device "
        "and no workload is admitted beside it.",
        "Read the message in the GPUNode's status.slices: it names the unverified limit. Check the "
        "driver and the MPS server of the node first.",
    ),
    Reason.MEASURED: say("The profile holds measurements of the running work.", "Nothing."),
    Reason.DRIFTED: say(
        "The step times of the class changed, so Ullage no longer uses what it learned about it.",
        "Nothing if the program or its data changed. Give different work another "
        "ullage.dev/class label, so that each kind keeps its own profile.",
    ),
    Reason.IMAGE_CHANGED: say(
        "Another image runs under the same name, so measuring starts again.",
        "Nothing. Pin images by digest to keep profiles across registries.",
    ),
    Reason.PROFILE_UPDATED: say(
        "The data of a workload class counts from now on, or no longer; the message says why.",
        "Nothing. The profile's condition Fresh has its present state.",
    ),
    Reason.PROFILE_CONFLICT: say(
        "A declared speed of the profile differs from the measured one by more than a fifth.",
        "Correct or remove the row in spec.solo, or give the work another ullage.dev/class label.",
    ),
    Reason.LEARNING_FAILED: say(
        "Learning from the observations of this device type failed or took too long; the last good "
        "model stays in force. The message has the cause.",
        "Remove the row that the message names from its WorkloadProfile. If learning is late, "
        "raise ULLAGE_LEARN_DEADLINE_SECONDS or give the operator more CPU.",
    ),
    Reason.CLASS_FAULTED: say(
        "A program of the class faulted a device while no other class was on it. The class shares "
        "devices with itself alone, on trial, until spec.faults.isolationHours of the "
        "SchedulingPolicy have passed without a further fault.",
        "Mend the program: `compute-sanitizer` finds most faults of this kind. An administrator "
        "clears the class in spec.faults.cleared of the SchedulingPolicy `default`.",
    ),
    Reason.DECLARED_DIFFERS: say(
        "A declared speed of the profile differs from the measured one by more than a fifth; "
        "Ullage uses the measured one.",
        "Correct or remove the row in spec.solo, or give different work another ullage.dev/class "
        "label.",
    ),
}
