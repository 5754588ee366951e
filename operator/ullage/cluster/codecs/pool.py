# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a CapacityPool as JSON, both ways.

What was written reads back equal, else the operator would write for ever, and a new process would
go on from other figures than the one before it. Numbers keep nine significant digits, the hazard,
which follows from others, four, and times whole seconds; ``pool_as_stored`` says what is left.
"""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived, nested
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.objects import ranked
from ullage.cluster.records.pool import LaunchRecord, PoolStatus

_LAUNCHES: Final = derived(LaunchRecord)


def _launches_to_wire(launches: LaunchRecord) -> dict[str, object]:
    """What is known of launches; nothing before the first one."""
    return {} if launches == LaunchRecord() else _LAUNCHES.write(launches)


POOL_STATUS: Final = derived(
    PoolStatus,
    launches=nested(_LAUNCHES._replace(write=_launches_to_wire)),
    conditions=ranked((ConditionType.PRICE_FRESH, ConditionType.HAZARD_KNOWN)),
)
pool_status_from_wire, pool_status_to_wire = POOL_STATUS.read, POOL_STATUS.write


def pool_as_stored(status: PoolStatus) -> PoolStatus:
    """What reading the written status gives."""
    return pool_status_from_wire(pool_status_to_wire(status))
