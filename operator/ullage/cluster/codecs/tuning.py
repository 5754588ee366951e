# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a TuningJob as JSON, both ways; what was written reads back equal."""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived
from ullage.api.reasons import ConditionType
from ullage.api.wire_fields import Listed
from ullage.cluster.codecs.objects import ranked
from ullage.cluster.records.tuning import TuningStatus

CONDITIONS: Final = (
    ConditionType.COMPLETE,
    ConditionType.FAILED,
    ConditionType.PLANNED,
    ConditionType.STALLED,
    ConditionType.POOL_TOO_SMALL,
)
TUNING_STATUS: Final = derived(
    TuningStatus,
    groups=Listed(order=lambda one: (one.epoch, one.name)),
    conditions=ranked(CONDITIONS),
)
tuning_status_from_wire, tuning_status_to_wire = TUNING_STATUS.read, TUNING_STATUS.write


def tuning_as_stored(status: TuningStatus) -> TuningStatus:
    """What reading the written status gives."""
    return tuning_status_from_wire(tuning_status_to_wire(status))
