# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Durations of simulations, each with its reason."""

from __future__ import annotations

from typing import Final

PROGRESS_S: Final = 0.5
"""Time between two reports of a worker. Chosen."""
PROGRESS_LOOK_S: Final = 0.2
"""Time between two checks for reports of workers. Chosen."""
MARKET_TICK_S: Final = 600
"""Resolution of a drawn spot market. Chosen."""
DECISIONS_REST_S: Final = 120.0
"""Time within which decisions must settle, beyond the waits of guards and back-offs. Chosen."""
STEP_DEFAULT_S: Final = 1.0
"""Step time of a job without one in the table, unless the job is shorter. Chosen."""
SYNTHETIC_DEVICE_S: Final = 114_700.0
"""Mean seconds of a drawn job on the reference type times its mean gang: derived from the
distributions in :mod:`ullage_simulate.synthetic`."""
TRIAL_MEDIAN_S: Final = 600.0
"""Median work of a drawn trial. Chosen."""
