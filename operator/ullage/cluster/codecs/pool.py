# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a CapacityPool as JSON, both ways.

What was written reads back equal, else the operator would write for ever, and a new process would
go on from other figures than the one before it. Numbers keep nine significant digits, the hazard,
which follows from others, four, and times whole seconds; ``pool_as_stored`` says what is left.
"""

from __future__ import annotations

from ullage.api.codec import derived, nested
from ullage.api.reasons import ConditionType
from ullage.cluster.codecs.objects import ranked
from ullage.cluster.records.pool import LaunchRecord, PoolStatus

_read_launches, _write_launches = derived(LaunchRecord)


def _launches_to_wire(launches: LaunchRecord) -> dict[str, object]:
    """What is known of launches; nothing before the first one."""
    return {} if launches == LaunchRecord() else _write_launches(launches)


pool_status_from_wire, pool_status_to_wire = derived(
    PoolStatus,
    launches=nested(_read_launches, _launches_to_wire),
    conditions=ranked((ConditionType.PRICE_FRESH, ConditionType.HAZARD_KNOWN)),
)


def pool_as_stored(status: PoolStatus) -> PoolStatus:
    """What reading the written status gives."""
    return pool_status_from_wire(pool_status_to_wire(status))
