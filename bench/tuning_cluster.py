# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search whose trials divide two devices, beside fixed widths, on the local cluster.

``python -m bench.tuning_cluster``. The same trials by successive halving run three times, one after
the other: widths chosen by the operator, a fixed share for every trial, and a whole device for
every trial. Trials are the digits network on real kubelets; a device is one processor core. The
makespan is the search's own, from its first trial to its end. Figures go into ``tuning.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from bench import report
from bench.cluster_objects import Json, get
from bench.local import installed
from demo.cluster import Cluster, EmulatedDevice
from demo.images import image_name
from demo.progress import CommandFailed

KIND: Final = "tuningjobs.ullage.dev"
DEVICES: Final = {f"node-{at + 1}": [EmulatedDevice(core=at)] for at in range(2)}
PERCENT: Final = 25
TRIALS: Final = 9
EPOCHS: Final = 540
"""Of the trial that is never stopped; the first rung has a ninth of them."""
LIMIT_S: Final = 1_800.0
BARS: Final[report.Bars] = {
    "real_vs_fixed": lambda found: found >= 1.5,
    "real_promotions_equal": lambda found: found == 1,
}


def run(cluster: Cluster, way: Way) -> Search:
    """Run a search to its end.

    Raises:
        CommandFailed: it fails, or does not end.
    """
    name, namespace = f"{way.value}-{time.time():.0f}", f"tuning-{way.value}"
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(search(way, name, namespace)))
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        status: Json = get(cluster, KIND, name, namespace).get("status", {})
        if status.get("phase") == "Succeeded":
            return _search(status)
        if status.get("phase") == "Failed":
            raise CommandFailed(f"{way.value}: {status.get('message')}")
        time.sleep(2.0)
    raise CommandFailed(f"{way.value}: the search does not end within {LIMIT_S:.0f} s")


def _search(status: Json) -> Search:
    began, ended = (datetime.fromisoformat(status[at]) for at in ("startTime", "completionTime"))
    return Search(
        makespan_s=(ended - began).total_seconds(),
        ran=frozenset((one["trial"], one["epoch"]) for one in status["results"]),
        resizes=len(status.get("resizes", ())),
    )


def figures_of(found: Mapping[Way, Search]) -> dict[str, report.Figure]:
    """Figures of the three searches."""
    ours = found[Way.DIVIDED]
    others = [one for way, one in found.items() if way is not Way.DIVIDED]
    return {
        "real_vs_fixed": round(found[Way.SHARES].makespan_s / ours.makespan_s, 3),
        "real_vs_whole_devices": round(found[Way.WHOLE].makespan_s / ours.makespan_s, 3),
        "real_makespan_s": ours.makespan_s,
        "real_resizes": ours.resizes,
        "real_promotions_equal": int(all(one.ran == ours.ran for one in others)),
    }


def main() -> int:
    """Measure, print one table, add the figures to build/bench/tuning.json."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with installed("tuning", DEVICES, logs=("operator", "node")) as (local, steps):
        found = dict[Way, Search]()
        for way in Way:
            with steps.step(f"search with {way.value}", expect_s=300):
                found[way] = run(local, way)
    figures = figures_of(found)
    rows = [
        report.Row(
            what=f"makespan beside {name}, seconds",
            ours=f"{found[Way.DIVIDED].makespan_s:.0f}",
            baseline=f"{found[way].makespan_s:.0f}",
            limit=limit,
        )
        for way, name, limit in (
            (Way.SHARES, f"{PERCENT} % for every trial", "a third less"),
            (Way.WHOLE, "a whole device for every trial", ""),
        )
    ]
    report.write("tuning", report.figures_before("tuning") | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
