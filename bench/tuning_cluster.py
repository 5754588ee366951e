# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search whose trials divide two devices, beside fixed widths and Ray Tune, on the local cluster.

``python -m bench.tuning_cluster``. The same trials by successive halving run three times, one after
the other: widths chosen by the operator, a fixed share for every trial, and a whole device for
every trial. Trials are the digits network on real kubelets; a device is one processor core. The
makespan is the search's own, from its first trial to its end. When the cluster is gone, Ray Tune
runs the same trials on the same cores where it is installed (``bench.tuning_ray``); its makespan
goes from the first actor that runs to the last result. Figures go into ``tuning.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from bench import report, tuning_ray
from bench.cluster_objects import Json, get
from bench.local import installed
from bench.tuning_ray import SETTINGS, WHOLE, RaySearch, Setting
from bench.tuning_search import DEVICES, EPOCHS, PERCENT, Search, Way, search, terms
from demo.cluster import Cluster, EmulatedDevice
from demo.progress import CommandFailed, Progress
from ullage.engines.tuning.algorithms import SearchTerms

KIND: Final = "tuningjobs.ullage.dev"
NODES: Final = {f"node-{at + 1}": [EmulatedDevice(core=at)] for at in range(DEVICES)}
LIMIT_S: Final = 1_800.0
BARS: Final[report.Bars] = {
    "real_vs_fixed": lambda found: found >= 1.5,
    "real_promotions_equal": lambda found: found == 1,
}
RAY_BARS: Final[report.Bars] = {
    "real_vs_ray": lambda found: found >= 1.2,
    "real_ray_promotions_equal": lambda found: found == 1,
}
"""Of runs that Ray Tune took part in."""
RAY_FIGURES: Final = (
    "real_vs_ray",
    *(f"real_vs_{one.name}" for one in (*SETTINGS, WHOLE)),
    "real_ray_promotions_equal",
)
"""Not measured unless both ran, one after the other."""


def run(cluster: Cluster, way: Way, epochs: int) -> Search:
    """Run a search to its end.

    Args:
        cluster: Where.
        way: How wide trials run.
        epochs: Of the trial that is never stopped.

    Raises:
        CommandFailed: it fails, or does not end.
    """
    name, namespace = f"{way.value}-{time.time():.0f}", f"tuning-{way.value}"
    cluster.kubectl("create", "namespace", namespace)
    wanted = json.dumps(search(way, name, namespace, epochs))
    cluster.kubectl("apply", "--filename", "-", stdin=wanted)
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
        "real_fixed_makespan_s": found[Way.SHARES].makespan_s,
        "real_whole_devices_makespan_s": found[Way.WHOLE].makespan_s,
        "real_resizes": ours.resizes,
        "real_promotions_equal": int(all(one.ran == ours.ran for one in others)),
    }


def ray_figures_of(
    found: Mapping[Setting, RaySearch], ours: Search | None
) -> dict[str, report.Figure]:
    """Figures of Ray Tune; its best setting that resizes trials counts.

    Args:
        found: Every setting; empty where Ray Tune did not run.
        ours: The search whose trials divided devices, in the same run; ``None`` = none ran.
    """
    figures: dict[str, report.Figure] = dict.fromkeys(RAY_FIGURES)
    for setting, one in found.items():
        figures[f"real_{setting.name}_makespan_s"] = round(one.makespan_s, 1)
        figures[f"real_{setting.name}_resizes"] = one.resizes
    if found and ours:
        for setting, one in found.items():
            figures[f"real_vs_{setting.name}"] = round(one.makespan_s / ours.makespan_s, 3)
        best = min(found[one].makespan_s for one in SETTINGS)
        figures["real_vs_ray"] = round(best / ours.makespan_s, 3)
        equal = all(one.ran == ours.ran for one in found.values())
        figures["real_ray_promotions_equal"] = int(equal)
    return figures


def by_ray(steps: Progress, searched: SearchTerms) -> dict[Setting, RaySearch]:
    """Every setting of Ray Tune; none, and a line that says why, where one fails."""
    found = {}
    for setting in (*SETTINGS, WHOLE):
        with steps.step(f"search with Ray Tune from {setting.percent} %", expect_s=150):
            try:
                found[setting] = tuning_ray.run(searched, setting)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"failed: the same trials by Ray Tune; {error}", file=sys.stderr)
                return {}
    return found


def on_the_cluster(epochs: int) -> dict[Way, Search]:
    """Every way on the local cluster, which is gone afterwards."""
    found = dict[Way, Search]()
    with installed("tuning", NODES, logs=("operator", "node")) as (local, steps):
        for way in Way:
            with steps.step(f"search with {way.value}", expect_s=300):
                found[way] = run(local, way, epochs)
    return found


def rows_of(found: Mapping[Way, Search], rays: Mapping[Setting, RaySearch]) -> list[report.Row]:
    """Makespans beside ours."""
    ours = f"{found[Way.DIVIDED].makespan_s:.0f}" if found else "not measured"
    beside: list[tuple[str, Search, str]] = []
    if found:
        beside = [
            (f"{PERCENT} % for every trial", found[Way.SHARES], "a third less"),
            ("a whole device for every trial", found[Way.WHOLE], ""),
        ]
    for setting, one in rays.items():
        name = f"Ray Tune, {setting.percent} % and more for every trial"
        if setting == WHOLE:
            name = "Ray Tune, a whole device for every trial"
        beside.append((name, one, "" if setting == WHOLE else "a sixth less"))
    return [
        report.Row(
            what=f"makespan beside {name}, seconds",
            ours=ours,
            baseline=f"{one.makespan_s:.0f}",
            limit=limit,
        )
        for name, one, limit in beside
    ]


def main() -> int:
    """Measure, print one table, add the figures to build/bench/tuning.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-ray", action="store_true", help="no cluster; compares nothing")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the longest trial")
    asked = parser.parse_args()
    searched = terms(asked.epochs)
    tuning_ray.rungs(searched)  # refuses epochs before anything starts
    found = {} if asked.only_ray else on_the_cluster(asked.epochs)
    figures = figures_of(found) if found else {}
    bars = dict(BARS) if found else {}
    rays: dict[Setting, RaySearch] = {}
    if why := tuning_ray.why_not():
        print(f"not measured: the same trials by Ray Tune; {why}", file=sys.stderr)
    else:
        rays = by_ray(Progress(), searched)
        bars |= RAY_BARS if found or not rays else {}
    figures |= ray_figures_of(rays, found.get(Way.DIVIDED))
    report.write("tuning", report.figures_before("tuning") | figures, rows_of(found, rays))
    return report.judge(figures, bars)


if __name__ == "__main__":
    sys.exit(main())
