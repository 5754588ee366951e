# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Validation rules for jobs in tiers; listed in ``rules``."""

from __future__ import annotations

from typing import Final

from ullage.api.rule import Rule, at_least

_ON: Final = "self.tiers != 'Disabled'"

TIERS_NEED_BOUNDS: Final = Rule(
    name="tiers-need-bounds",
    rule="self.tiers == 'Disabled' || self.minReplicas < self.maxReplicas",
    message="in tiers members come and go between minReplicas and maxReplicas: lower minReplicas "
    "or raise maxReplicas, or leave tiers out",
    field=".tiers",
)
TIERS_NEED_RELIABLE: Final = Rule(
    name="tiers-need-reliable",
    rule=f"({_ON}) == (self.reliableReplicas > 0)",
    message="elasticity.tiers and elasticity.reliableReplicas belong together: set tiers and at "
    "least one reliable member, or leave both out",
    field=".reliableReplicas",
)
RELIABLE_WITHIN_BOUNDS: Final = Rule(
    name="reliable-within-bounds",
    rule="self.reliableReplicas <= self.minReplicas",
    message="elasticity.reliableReplicas is above elasticity.minReplicas: reliable members always "
    "run, so raise minReplicas or lower reliableReplicas",
    expression="'elasticity.reliableReplicas (%d) is above elasticity.minReplicas (%d): reliable "
    "members always run, so raise minReplicas or lower reliableReplicas'"
    ".format([self.reliableReplicas, self.minReplicas])",
    field=".reliableReplicas",
)
TIERS_NEED_BACKUP: Final = Rule(
    name="tiers-need-backup",
    rule=f"({_ON}) == has(self.backup)",
    message="elasticity.tiers and elasticity.backup belong together: set the size of the state in "
    "backup.stateBytes, or leave both out",
    field=".backup",
)
FLUSH_NEEDS_TIERS: Final = Rule(
    name="flush-needs-tiers",
    rule=f"self.onNotice != 'Flush' || {_ON}",
    message="onNotice Flush hands a member's state to others, which needs a job in tiers: set "
    "tiers: Auto, or onNotice: Checkpoint",
    field=".onNotice",
)
LAG_COVERS_PUSHES: Final = Rule(
    name="lag-covers-pushes",
    rule="self.maxLagSteps >= self.everySteps",
    message="backup.maxLagSteps is below backup.everySteps, so the job would wait for a copy that "
    "no member pushes: raise maxLagSteps or lower everySteps",
    expression="'backup.maxLagSteps (%d) is below backup.everySteps (%d), so the job would wait "
    "for a copy that no member pushes: raise maxLagSteps or lower everySteps'"
    ".format([self.maxLagSteps, self.everySteps])",
    field=".maxLagSteps",
)
STATE_POSITIVE: Final = Rule(
    name="state-positive",
    rule=at_least("1Ki"),
    message="backup.stateBytes must be an amount of at least 1Ki: write it with a unit such as 6Gi",
)
DIRTY_POSITIVE: Final = Rule(
    name="dirty-positive",
    rule=at_least("1Ki"),
    message="backup.dirtyBytesPerStep must be an amount of at least 1Ki such as 600Mi: leave it "
    "out if a step changes the whole state",
)
