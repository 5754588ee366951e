# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of the autoscaler, each with its reason."""

from __future__ import annotations

from typing import Final

SCALE_DOWN_HOLD_S: Final = 120.0
"""Time for which fewer replicas must have been enough. Chosen."""
SEASON_SLOT_S: Final = 900.0
"""Length of the slots of a season. Chosen."""
SERVICE_LEAST_S: Final = 1e-6
"""Shortest estimated service time."""
