# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of enforcement on the node: limits that are proven, and who has to pause."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

NVIDIA: Final = "deviceplugin/ullage_node/devices/nvidia"
GUARD: Final = "deviceplugin/ullage_node/guard"

PROOF: Final = ("tests/unit/node/devices", "tests/contract/devices")
PAUSES: Final = ("tests/unit/node/guard", "tests/property/node")

MUTANTS: Final = (
    Mutant(
        "one step of multiprocessors too many is an escape",
        f"{NVIDIA}/proof.py",
        "if seen.sm_seen > seen.sm_allowed:",
        "if seen.sm_seen > seen.sm_allowed + SM_STEP:",
        PROOF,
    ),
    Mutant(
        "a share is rounded down to the hardware's step",
        f"{NVIDIA}/proof.py",
        "return min(sm_total, max(SM_STEP, wanted - wanted % SM_STEP))",
        "return min(sm_total, max(SM_STEP, wanted - wanted % SM_STEP + SM_STEP))",
        PROOF,
    ),
    Mutant(
        "memory above the cap is an escape",
        f"{NVIDIA}/proof.py",
        "    if seen.memory_mib > seen.cap_mib:",
        "    if seen.memory_mib > 2 * seen.cap_mib:",
        PROOF,
    ),
    Mutant(
        "the least important neighbour has to go",
        f"{GUARD}/machine.py",
        "guilty = min(\n            local,",
        "guilty = max(\n            local,",
        PAUSES,
    ),
)
