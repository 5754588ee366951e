# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unused device time: what the work needs of a device, and which time is the host's."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

METER: Final = "deviceplugin/ullage_node/telemetry/usage.py"
RULES: Final = "operator/ullage/engines/efficiency/rules.py"
STEPS: Final = "operator/ullage/engines/efficiency/step_rules.py"
EVIDENCE: Final = "operator/ullage/scheduling/accounting/step_evidence.py"
SAMPLE: Final = "operator/ullage/scheduling/observation/profiling.py"

METERED: Final = ("tests/unit/node/telemetry/test_device_time_is_added_up.py",)
EXPLAINED: Final = ("tests/unit/engines/efficiency/test_unused_time_is_explained.py",)
DIVIDED: Final = ("tests/unit/engines/efficiency/test_parts_of_steps_explain_unused_time.py",)
JOINED: Final = ("tests/unit/scheduling/test_ranks_and_traces_explain_device_time.py",)
SAMPLED: Final = ("tests/unit/scheduling/test_a_sample_of_jobs_is_traced.py",)

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
    Mutant(
        "a claim explains unused time alone",
        STEPS,
        "begin = max(used_ms, int(ends[claim.part] - claim.share * steps_ms))",
        "begin = int(ends[claim.part] - claim.share * steps_ms)",
        DIVIDED,
    ),
    Mutant(
        "parts of a step are disjoint",
        STEPS,
        "        end -= longest[part]\n",
        "",
        DIVIDED,
    ),
    Mutant(
        "data that one rank waits for is not what all wait for",
        STEPS,
        "waits = min(min(1.0,",
        "waits = max(min(1.0,",
        DIVIDED,
    ),
    Mutant(
        "a trace of other pods says nothing",
        EVIDENCE,
        "if pods.isdisjoint(trace.pods) or ",
        "if ",
        JOINED,
    ),
    Mutant(
        "a program without the hook is not asked for a trace",
        SAMPLE,
        " and (by_template or seen.hooked)",
        "",
        SAMPLED,
    ),
    Mutant(
        "requests that the API does not show yet are under way",
        SAMPLE,
        "terms.max_concurrent - seen.sampled_under_way - len(not_shown)",
        "terms.max_concurrent - seen.sampled_under_way",
        SAMPLED,
    ),
)
