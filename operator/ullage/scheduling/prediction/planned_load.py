# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The load that neighbours of a scaled service are judged at: the forecast of its autoscaler.

A neighbour that fits at the current load may not fit a minute later, when the load has grown. The
forecast is for the time when replicas requested now serve, so it is divided among those. Newcomers
are judged at the maximum of the last twenty minutes: a neighbour that soon leaves again costs more
than it gains. For services that others scale the declared or the measured load counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.engines.admission.queue_map import Load, replica_load

STEP: Final = 1.1
"""Loads are rounded up to powers of this: a forecast that wanders by a few percent every fifteen
seconds changes no plan (our choice, as windows of one load are cut)."""
LEAST_PER_S: Final = 1e-3
MOST_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """Requests per second that a service's replicas are planned for, and how many those are.

    ``recent_per_s`` is the most that was planned for or came in the last twenty minutes.
    """

    requests_per_s: float
    recent_per_s: float
    replicas: int

    def of_each(self, replicas: int, *, cv2: float = 1.0, recent: bool = False) -> Load:
        """The load of one replica, rounded up.

        Args:
            replicas: Among how many it is divided.
            cv2: Squared coefficient of variation of the times between arrivals.
            recent: Whether the most of the last twenty minutes counts.
        """
        total = self.recent_per_s if recent else self.requests_per_s
        exact = replica_load(total, max(1, replicas), cv2=cv2)
        if exact.requests_per_s <= LEAST_PER_S:
            return Load(requests_per_s=LEAST_PER_S, cv2=cv2)
        # a hair less than a whole step is that step: rounding twice changes nothing
        steps = math.ceil(math.log(exact.requests_per_s, STEP) - 1e-6)
        return Load(requests_per_s=STEP**steps, cv2=cv2)


def planned_load(workload: WorkloadRecord) -> PlannedLoad | None:
    """What a service's autoscaler plans for; ``None`` = others scale it, or its load is not known.

    Args:
        workload: Any workload, with the status of the last cycle.
    """
    record = workload.status.scaling
    if workload.scaling is None or record is None or not record.forecast:
        return None
    forecast = float(record.forecast)
    if not math.isfinite(forecast) or forecast < 0:
        return None
    rates = record.history.rates_milli if record.history is not None else ()
    recent = max((rate / 1e3 for rate in rates), default=0.0)
    return PlannedLoad(
        requests_per_s=min(forecast, MOST_PER_S),
        recent_per_s=min(max(forecast, recent), MOST_PER_S),
        replicas=max(1, record.chosen.replicas),
    )
