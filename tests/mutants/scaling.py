# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of scaling by objective: what is never done on missing data, and in which order."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

LIFECYCLE: Final = "operator/ullage/scheduling/lifecycle"
ENGINE: Final = "operator/ullage/engines/scaling"

REPLICAS: Final = ("tests/unit/scheduling/test_replicas_follow_the_objective.py",)
BINS: Final = ("tests/unit/engines/scaling/test_bins_are_followed.py",)
LOADS: Final = ("tests/unit/node/telemetry/test_loads_of_replicas.py",)

MUTANTS: Final = (
    Mutant(
        "while some replicas report nothing none is taken away",
        f"{LIFECYCLE}/scaling.py",
        "    if load.missing:",
        "    if False:",
        REPLICAS,
    ),
    Mutant(
        "replicas that serve all the time stay",
        f"{LIFECYCLE}/scaling.py",
        "min(_busy(load, service_time), service.replicas)",
        "0",
        REPLICAS,
    ),
    Mutant(
        "people may set the number while the load is not known",
        f"{LIFECYCLE}/scaling.py",
        "if standing is None or standing.reason is Reason.LOAD_UNKNOWN:",
        "if standing is None:",
        REPLICAS,
    ),
    Mutant(
        "a node that is silent says nothing of the load",
        f"{LIFECYCLE}/service_load.py",
        "abs(view.now - record.heartbeat) <= STALE_S",
        "True",
        REPLICAS,
    ),
    Mutant(
        "after a gap needs start again",
        f"{ENGINE}/following.py",
        "needs = memory.needs if 0 <= gap_s < GAP_BINS * terms.bin_s else ()",
        "needs = memory.needs",
        BINS,
    ),
    Mutant(
        "a target out of reach is relaxed",
        f"{ENGINE}/following.py",
        "return target if kept else",
        "return target if True else",
        BINS,
    ),
    Mutant(
        "an old page is no load",
        "deviceplugin/ullage_node/telemetry/loads.py",
        "or now - pages[-1].at_s > STALE_SECONDS",
        "",
        LOADS,
    ),
)
