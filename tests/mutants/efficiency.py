# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unused device time: what the work needs of a device, and which time is the host's."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

METER: Final = "deviceplugin/ullage_node/telemetry/usage.py"
RULES: Final = "operator/ullage/engines/efficiency/rules.py"

METERED: Final = ("tests/unit/node/telemetry/test_device_time_is_added_up.py",)
EXPLAINED: Final = ("tests/unit/engines/efficiency/test_unused_time_is_explained.py",)

MUTANTS: Final = (
    Mutant(
        "kernels of a tenth of a second need what they used in it",
        METER,
        "kernels_s = min(could_work_s, ratio * passed_s)",
        "kernels_s = could_work_s",
        METERED,
    ),
    Mutant(
        "kernels beside another container are not known to be its own",
        METER,
        "if alone and (ratio := _kernel_ratio(tenant, reading)) is not None:",
        "if (ratio := _kernel_ratio(tenant, reading)) is not None:",
        METERED,
    ),
    Mutant(
        "time in which nothing ran counts where a slowdown is weighed",
        METER,
        "most_s = SLOWDOWN_MOST * window.could_work_s",
        "most_s = SLOWDOWN_MOST * sum(window.worked_s.values())",
        METERED,
    ),
    Mutant(
        "work takes longer by what is missing of the share",
        METER,
        "seconds * (percent / share - 1)",
        "seconds * (1 - share / percent)",
        METERED,
    ),
    Mutant(
        "time between steps is not the host's",
        RULES,
        "evidence.recent.kernel_idle_percent - (100 - evidence.recent.duty_percent)",
        "evidence.recent.kernel_idle_percent",
        EXPLAINED,
    ),
)
