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
}
"""Reasons that a job in tiers meets."""
