# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explanations of sharing and learning; :mod:`ullage.api.explanations.all` joins them.

Standard library only; must never decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

SHARING: Final[Mapping[Reason, Explanation]] = {
    Reason.SHARING_ADMITTED: say(
        "The workload joined others on a device; the message has the predicted slowdowns and the "
        "margin that every objective keeps.",
        "Nothing. `kubectl ullage top` compares what was predicted with what is observed.",
    ),
    Reason.SHARING_REJECTED: say(
        "The workload may not join the others on any device, because the risk to someone's "
        "objective would be too great; the message names whose, and what is missing.",
        "Loosen the objective that binds, ask for another share, or let it wait; `kubectl ullage "
        "why` shows the figures.",
    ),
    Reason.MADE_ROOM: say(
        "The job starts again with a smaller share, so that another workload fits beside it: both "
        "together are predicted to reach clearly more than it alone, and no one's objective is at "
        "risk. The message says for whom, and which share it keeps.",
        "Nothing: it goes on from its checkpoint, and is not asked again for ten minutes. Raise "
        "gpu.share.minPercent for a floor, or set sharing.resizable to Never.",
    ),
    Reason.PROBATION_STARTED: say(
        "Nothing certain is known of this class of work yet, so it is tried out at a small share "
        "for a short time, with the guard watching.",
        "Nothing. It stays if no one's objective breaks.",
    ),
    Reason.PROBATION_COMMITTED: say(
        "The trial ended well and the workload stays; what was measured counts from now on.",
        "Nothing.",
    ),
    Reason.PROBATION_ROLLED_BACK: say(
        "The trial broke someone's objective, or measured nothing, and the workload was taken "
        "off the device.",
        "Let it wait for a device of its own, or loosen the objectives; risk.probationSecondsPer"
        "Class of the SchedulingPolicy says what trials may cost.",
    ),
    Reason.SLICE_UNENFORCED: say(
        "The limits of a slice could not be proven on its device, so it counts as the whole "
        "device and no one is admitted beside it.",
        "See the GPUNode's status.slices: the message says which limit was not seen; the driver "
        "and the MPS server of the node are the first places to look.",
    ),
    Reason.MEASURED: say("The values of the profile were measured on what runs now.", "Nothing."),
    Reason.DRIFTED: say(
        "The class of work no longer takes the times that it took, so what was learned of it is "
        "not used any more.",
        "Nothing if the program or its data changed. Give work that differs another "
        "ullage.dev/class label, so that each keeps its own profile.",
    ),
    Reason.IMAGE_CHANGED: say(
        "Another image runs under the same name, so measuring starts again.",
        "Nothing. Pin images by digest to keep profiles across registries.",
    ),
    Reason.PROFILE_UPDATED: say(
        "What is known of a class of work changed its meaning: it counts from now on, or no "
        "longer; the message says why.",
        "Nothing. The profile's condition Fresh says how it stands.",
    ),
    Reason.PROFILE_CONFLICT: say(
        "A declared speed of the profile is off by more than a fifth from the measured one.",
        "Correct or remove the row in spec.solo, or give the work another ullage.dev/class label.",
    ),
    Reason.LEARNING_FAILED: say(
        "What was observed on this type of device could not be learned from, or not in time; the "
        "last good model stands. The message has the cause.",
        "Drop the row that the message names from its WorkloadProfile; if learning is late, raise "
        "ULLAGE_LEARN_DEADLINE_SECONDS or give the operator more CPU.",
    ),
    Reason.DECLARED_DIFFERS: say(
        "A declared speed of the profile is off by more than a fifth from the measured one; the "
        "measured one is used.",
        "Correct or remove the row in spec.solo, or give the work another ullage.dev/class label "
        "if it is not the same.",
    ),
}
