# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of jobs in tiers mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

TIERS: Final[Mapping[Reason, Explanation]] = {
    Reason.WAITS_FOR_LEAD: say(
        "Its members have their places and start when the pod runs that leads them and keeps the "
        "copy of their state.",
        "Nothing; it takes seconds. If it lasts, the message says what that pod waits for: usually "
        "memory for twice elasticity.backup.stateBytes on a machine that is not taken away.",
    ),
    Reason.LEAD_LOST: say(
        "The pod that leads a job in tiers is gone, and the copy of the state with it: every "
        "member starts again from the last checkpoint.",
        "Nothing when its machine was lost. When it failed by itself, the message says with which "
        "exit code: read its log, and check that elasticity.backup.stateBytes is large enough.",
    ),
    Reason.STAGE_CHANGED: say(
        "Transient members became many or few against reliable ones, so others own the state or "
        "compute now.",
        "Nothing; elasticity.tiers fixes the stage where it should not change.",
    ),
    Reason.ROLLED_BACK: say(
        "Members that owned state were lost without notice: the others went back to the last step "
        "of which the lead had a whole copy, and do the steps since again.",
        "Nothing. If it is frequent, push more often (elasticity.backup) or have more reliable "
        "members.",
    ),
    Reason.COPY_HELD: say("The lead holds a whole copy of the state.", "Nothing."),
    Reason.RELIABLE_OWN: say(
        "The members on machines that stay own all of the state; no copy is needed.", "Nothing."
    ),
    Reason.NO_COPY: say(
        "No whole copy of the state is in memory: a loss now means another start from a "
        "checkpoint.",
        "Nothing at the beginning. If it lasts, members cannot push fast enough: raise "
        "elasticity.backup.everySteps and maxLagSteps.",
    ),
    Reason.NOTICE_LONG_ENOUGH: say(
        "Members whose machines are taken away with notice hand over in half of it.", "Nothing."
    ),
    Reason.NOTICE_TOO_SHORT: say(
        "Half of the shortest notice of the pools that the job may use is less than handing over "
        "takes. With elasticity.onNotice Flush it is not started; once it has started, it runs on, "
        "and such a notice is a loss without one.",
        "Lower elasticity.backup.maxLagSteps or state in dirtyBytesPerStep what a step really "
        "changes, leave out pools with a short notice, or set onNotice: Checkpoint.",
    ),
}
"""Reasons that a job in tiers meets."""
