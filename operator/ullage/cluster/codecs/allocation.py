# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The division of the cluster's time, ``SchedulingPolicy.status.lastSolve``, as JSON both ways."""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived
from ullage.cluster.records.status import SolveRecord

SOLVE: Final = derived(SolveRecord)
solve_from_wire, solve_to_wire = SOLVE.read, SOLVE.write
