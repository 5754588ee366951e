# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The service of the autoscaler's bench: its times and what it promises."""

from __future__ import annotations

import math
from typing import Final

from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime

QUANTILE: Final = 0.99
SLO_OF_MEAN: Final = 5.0
"""The objective, in mean service times."""
MEAN_S: Final = 0.4
CV2: Final = 0.5
"""Of the service times, log-normal."""
SERVICE: Final = ServiceTime(mean_s=MEAN_S, sigma=math.sqrt(math.log1p(CV2)))
TARGET: Final = LatencyTarget(limit_s=SLO_OF_MEAN * MEAN_S, quantile=QUANTILE)
