# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What it takes to adopt Ullage: a first install as printed, kinds that share, pods that do not.

``python -m bench.adopt``. Images are built before the time is taken; nodes bear their label.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

import numpy as np

from bench import report
from bench.adopt_kinds import CASES, shared_kinds
from bench.adopt_latency import Paired, measure
from bench.local import started
from bench.report import Figure, Row
from demo.cluster import EmulatedDevice
from demo.first_install import FirstShare, first_share, remove_example
from demo.progress import ending_with_a_reason
from ullage.ports import ApiError

DEVICES: Final = {
    "node-1": [EmulatedDevice(core=0, percent=60)],
    "node-2": [EmulatedDevice(core=1, percent=60)],
}
PODS: Final = 2000
PAIRS: Final = 10


def bars(noise_high: float) -> report.Bars:
    """What the figures must be; latency is judged by the noise of its own run."""
    return {
        "kinds": lambda kinds: kinds >= 8,
        "commands": lambda commands: commands == 3,
        "minutes_to_first_share": lambda minutes: minutes <= 3,
        "unlabelled_p99_ratio": lambda ratio: ratio <= noise_high,
    }


def adopt() -> tuple[FirstShare, dict[str, float]]:
    """Install for the first time on the local cluster, then run every kind."""
    with started("adopt", DEVICES, logs=("operator", "node")) as (local, steps):
        with steps.step("the printed commands, until a Deployment and a Job share", expect_s=60):
            first = first_share(local)
        remove_example(local)
        return first, shared_kinds(local, steps)


def _rows(first: FirstShare, kinds: dict[str, float]) -> list[Row]:
    missing = ", ".join(case.kind for case in CASES if case.kind not in kinds)
    shapes = sum(bool(case.group) for case in CASES if case.kind in kinds)
    return [
        Row(what="kinds whose pods share", ours=f"{len(kinds)}, {shapes} of them by shape",
            baseline=f"not: {missing}" if missing else "", limit="at least 8"),
        Row(what="commands of a first install", ours=str(len(first.commands)), limit="3"),
        Row(what="from the first command to the first share, minutes",
            ours=f"{first.seconds / 60:.2f}", limit="3"),
    ]  # fmt: skip


def _latency_rows(paired: Paired, figures: dict[str, Figure]) -> list[Row]:
    def milliseconds(percentile: float) -> tuple[str, str]:
        both = (np.percentile(side, percentile) for side in (paired.installed, paired.without))
        ours, baseline = (f"{1000 * value:.2f}" for value in both)
        return ours, baseline

    middle, late = milliseconds(50), milliseconds(99)
    interval = f"{figures['unlabelled_p99_ratio_low']} to {figures['unlabelled_p99_ratio_high']}"
    noise = f"noise {figures['noise_low']} to {figures['noise_high']}"
    return [
        Row(what="unlabelled pod, ms to create, p50", ours=middle[0], baseline=middle[1]),
        Row(what="unlabelled pod, ms to create, p99", ours=late[0], baseline=late[1]),
        Row(what="p99 with our policies over without", limit=noise,
            ours=f"{figures['unlabelled_p99_ratio']} ({interval})"),
    ]  # fmt: skip


def main() -> None:
    """Measure, print one table, write build/bench/adopt.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS, help="with the policies, and without")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of blocks of these pods")
    options = parser.parse_args()
    with ending_with_a_reason(ApiError):
        first, kinds = adopt()
        latency = asyncio.run(measure(options.pods, options.pairs))
    low, high = latency.interval()
    noise_low, noise_high = latency.noise()
    figures: dict[str, Figure] = {
        "kinds": len(kinds),
        "minutes_to_first_share": round(first.seconds / 60, 2),
        "commands": len(first.commands),
        "unlabelled_p99_ratio": round(latency.ratio(), 3),
        "unlabelled_p99_ratio_low": round(low, 3),
        "unlabelled_p99_ratio_high": round(high, 3),
        "noise_low": round(noise_low, 3),
        "noise_high": round(noise_high, 3),
        "unlabelled_p50_ratio": round(latency.ratio(50), 3),
        "unlabelled_pods": int(latency.installed.size),
        **{f"seconds_{kind.lower()}": round(took, 1) for kind, took in kinds.items()},
    }
    report.write("adopt", figures, [*_rows(first, kinds), *_latency_rows(latency, figures)])
    raise SystemExit(report.judge(figures, bars(noise_high)))


if __name__ == "__main__":
    main()
