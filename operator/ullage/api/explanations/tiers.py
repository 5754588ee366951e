# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of jobs in tiers. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

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
