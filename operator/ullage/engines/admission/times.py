# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of co-locations and trials, each with its reason."""

from __future__ import annotations

from typing import Final

COLOCATION_WINDOW_S: Final = 30.0
"""Rows of one mixture closer than this in time are one co-location. Chosen."""
MEETING_GAP_S: Final = 900.0
"""Windows of one mixture further apart than this belong to two meetings. Chosen."""
PROBATION_LEAST_S: Final = 20.0
"""Shortest trial beside others: a shorter one shows too little. Chosen."""
PROBATION_MOST_S: Final = 60.0
"""Longest requested trial. Chosen."""
